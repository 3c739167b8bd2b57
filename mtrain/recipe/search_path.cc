#include "mtrain/recipe/search_path.h"

#include <algorithm>
#include <cstdlib>

#include "mtrain/config/repository.h"

namespace mtrain {
namespace {

fs::path resolved(const fs::path& path) {
  std::error_code error;
  fs::path out = fs::weakly_canonical(path, error);
  return error ? path.lexically_normal() : out;
}

/// An environment variable that holds an absolute path; the XDG rules say to ignore any other.
std::optional<fs::path> absolute_from(const char* variable) {
  const char* value = std::getenv(variable);
  if (!value || !fs::path(value).is_absolute()) return std::nullopt;
  return value;
}

}  // namespace

fs::path shared_folder(const std::string& what) {
  return resolved(program_directory() / "../share/mtrain" / what);
}

std::vector<SearchFolder> search_folders(const std::vector<fs::path>& plugin_folders,
                                         const fs::path& own) {
  using enum SearchFolder::Kind;
  std::vector<SearchFolder> out;
  std::vector<fs::path> seen;
  auto add = [&](SearchFolder::Kind kind, const fs::path& path) {
    fs::path place = resolved(path);
    if (std::find(seen.begin(), seen.end(), place) != seen.end()) return;
    seen.push_back(std::move(place));
    out.push_back({kind, path});
  };
  if (!own.empty()) add(SearchFolder::Kind::recipe, own);
  add(project, "recipes");
  for (const auto& folder : plugin_folders) add(plugins, folder / "recipes");
  if (auto config = absolute_from("XDG_CONFIG_HOME"))
    add(user, *config / "mtrain");
  else if (auto home = absolute_from("HOME"))
    add(user, *home / ".config/mtrain");
  add(SearchFolder::Kind::system, "/etc/mtrain");
  add(built_in, shared_folder("recipes"));
  return out;
}

bool is_installed(const fs::path& file, const std::vector<SearchFolder>& folders) {
  const fs::path place = resolved(file);
  auto below = [&](const fs::path& folder) {
    const fs::path top = resolved(folder);
    return std::mismatch(top.begin(), top.end(), place.begin(), place.end()).first == top.end();
  };
  auto holds = [&](const SearchFolder& folder) {
    return folder.kind != SearchFolder::Kind::project && below(folder.path);
  };
  return below(shared_folder("recipes")) || std::any_of(folders.begin(), folders.end(), holds);
}

const char* name(SearchFolder::Kind kind) {
  switch (kind) {
    case SearchFolder::Kind::recipe:
      return "recipe's own";
    case SearchFolder::Kind::project:
      return "project";
    case SearchFolder::Kind::plugins:
      return "shipped with plugins";
    case SearchFolder::Kind::user:
      return "user";
    case SearchFolder::Kind::system:
      return "system";
    case SearchFolder::Kind::built_in:
      return "built-in";
  }
  return "?";
}

std::optional<FoundRecipe> find_recipe(const std::string& path_or_name,
                                       const std::vector<SearchFolder>& folders) {
  std::error_code ignored;
  fs::file_status status = fs::status(path_or_name, ignored);
  if (fs::exists(status) && !fs::is_directory(status))
    return FoundRecipe{path_or_name, std::nullopt};
  for (const auto& folder : folders)
    if (auto file = ConfigRepository({folder.path}).find(path_or_name))
      return FoundRecipe{*file, folder.kind};
  if (fs::exists(status)) return FoundRecipe{path_or_name, std::nullopt};
  return std::nullopt;
}

}  // namespace mtrain
