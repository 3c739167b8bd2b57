#include "mtrain/recipe/recipe_list.h"

#include <algorithm>
#include <set>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/repository.h"

namespace mtrain {
namespace {

constexpr uint64_t kMaxRecipe = 1 << 20;  // bytes
constexpr int kMaxDepth = 4;              // groups in groups

void collect(const SearchFolder& folder, const std::string& group, int depth,
             std::vector<ListedRecipe>& out) {
  std::error_code fault;
  for (fs::directory_iterator it(folder.path / group, fault), end; !fault && it != end;
       it.increment(fault)) {
    std::error_code ignored;
    std::string stem = it->path().stem().string();
    std::string name = group.empty() ? stem : group + "/" + stem;
    if (it->is_directory(ignored) && depth < kMaxDepth && !stem.starts_with('.'))
      collect(folder,
              group.empty() ? it->path().filename().string()
                            : group + "/" + it->path().filename().string(),
              depth + 1, out);
    else if (it->path().extension() == ".yaml" && it->is_regular_file(ignored))
      out.push_back({name, group, folder.path / (name + ".yaml"), folder.kind, "", false});
  }
}

}  // namespace

std::string recipe_description(std::string_view text) {
  while (!text.empty()) {
    size_t end = text.find('\n');
    std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty()) continue;
    if (!line.starts_with('#')) break;
    line = trim(line.substr(line.find_first_not_of('#') == std::string_view::npos
                                ? line.size()
                                : line.find_first_not_of('#')));
    if (!line.empty() && !line.starts_with("yaml-language-server:") &&
        !line.starts_with("@package"))
      return std::string(line.substr(0, std::min(line.find(". "), line.size() - 1) + 1));
  }
  return {};
}

std::vector<ListedRecipe> list_recipes(const std::vector<SearchFolder>& folders) {
  std::vector<ListedRecipe> out;
  for (const auto& folder : folders) collect(folder, "", 0, out);
  std::stable_sort(out.begin(), out.end(), [](const ListedRecipe& a, const ListedRecipe& b) {
    return std::tuple(!a.group.empty(), a.name) < std::tuple(!b.group.empty(), b.name);
  });
  std::set<std::string> seen;
  for (auto& recipe : out) {
    recipe.shadowed = !seen.insert(recipe.name).second;
    try {
      recipe.description = recipe_description(read_file(recipe.file, kMaxRecipe));
    } catch (const Error&) {
      recipe.description = "(cannot be read)";
    }
  }
  return out;
}

std::vector<RecipeUse> recipes_using(const std::string& path,
                                     const std::vector<SearchFolder>& folders) {
  std::vector<RecipeUse> out;
  ConfigRepository repository({});
  for (const auto& recipe : list_recipes(folders)) {
    Report ignored;
    const ConfigFile* file =
        recipe.shadowed ? nullptr
                        : repository.load_file(recipe.file.string(), std::nullopt, ignored);
    if (!file) continue;
    std::string package = file->has_package ? file->package : recipe.group;
    std::replace(package.begin(), package.end(), '/', '.');
    if (package == "_global_") package.clear();
    if (!package.empty() && !path.starts_with(package + ".")) continue;
    const Node* value = file->body.find(package.empty() ? path : path.substr(package.size() + 1));
    if (value && !value->is_map()) out.push_back({recipe.name, value->loc(), brief(*value)});
  }
  return out;
}

}  // namespace mtrain
