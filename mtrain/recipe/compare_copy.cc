#include "mtrain/recipe/compare_copy.h"

#include <algorithm>
#include <set>

#include "mtrain/base/text.h"
#include "mtrain/config/diff.h"
#include "mtrain/config/repository.h"
#include "mtrain/config/yaml_write.h"
#include "mtrain/recipe/copy_recipe.h"

namespace mtrain {
namespace {

constexpr uint64_t kMaxCompanion = uint64_t{1} << 20;  // bytes

/// The names in ${file_text:NAME} of a text; names that are computed are not found.
std::vector<std::string> named_texts(std::string_view text) {
  constexpr std::string_view kStart = "${file_text:";
  std::vector<std::string> out;
  for (size_t at = text.find(kStart); at != std::string_view::npos; at = text.find(kStart, at)) {
    at += kStart.size();
    const size_t end = text.find('}', at);
    if (end == std::string_view::npos) break;
    std::string_view name = trim(text.substr(at, end - at));
    if (name.size() > 1 && (name.front() == '\'' || name.front() == '"'))
      name = name.substr(1, name.size() - 2);
    if (name.find("${") == std::string_view::npos) out.emplace_back(name);
  }
  return out;
}

/// The section in whose folder an option lies: "optimizer" of optimizer/adamw.yaml.
std::string section_of(const fs::path& file, const SchemaCatalog& catalog) {
  const std::string folder = file.parent_path().filename().string();
  return catalog.section(folder) ? folder : "";
}

class Companions {
 public:
  explicit Companions(const SchemaCatalog& catalog) : catalog_(catalog) {}

  /// Adds a file unless its text is there already. `source`: of a YAML file, whose paths are
  /// rewritten.
  void add(const fs::path& from, const fs::path& to, const SourcePtr& source) {
    if (!seen_.insert(to).second || real_path(from) == real_path(to)) return;
    Report report;
    std::string text = source
                           ? copy_recipe(source, section_of(from, catalog_), {from.parent_path()},
                                         to.parent_path(), catalog_, report)
                                 .text
                           : read_file(from, kMaxCompanion);
    std::error_code ignored;
    if (fs::is_regular_file(to, ignored) && read_file(to, kMaxCompanion) == text) return;
    out.push_back({from, to, std::move(text)});
  }
  std::vector<CompanionFile> out;

 private:
  const SchemaCatalog& catalog_;
  std::set<fs::path> seen_;
};

/// True where a setting's value contains the name of the recipe, which is that of its file.
bool has_name(const Node* value) {
  return value && (value->expression().find("run:") != std::string::npos ||
                   value->expression().find("run.") != std::string::npos);
}

bool at_one_of(const Node* value, const std::vector<Location>& places) {
  if (!value) return false;
  const auto here = [&](const Location& place) {
    return place.line == value->loc().line && place.column == value->loc().column;
  };
  return std::any_of(places.begin(), places.end(), here) ||
         std::any_of(value->items().begin(), value->items().end(),
                     [&](const Node& item) { return at_one_of(&item, places); });
}

/// True for two absolute paths of one file.
bool same_file(const Node* a, const Node* b) {
  const auto path = [](const Node* node) {
    return node && node->kind() == NodeKind::string ? fs::path(node->as_text()) : fs::path();
  };
  return path(a).is_absolute() && path(b).is_absolute() && real_path(path(a)) == real_path(path(b));
}

std::string side(const Node* value) {
  if (!value) return "absent";
  return cat(brief(*value), value->loc() ? cat(" (", value->loc().text(), ")") : "");
}

}  // namespace

std::vector<CompanionFile> lacking_companions(const Recipe& original, const fs::path& to,
                                              const fs::path& copy_directory,
                                              const std::vector<SearchFolder>& folders,
                                              const SchemaCatalog& catalog) {
  const Composition& composition = original.config.composition();
  const fs::path own = real_path(composition.file).parent_path(),
                 target = real_path(to).parent_path();
  std::vector<fs::path> searched = {target};
  for (const auto& folder : folders) searched.push_back(folder.path);
  const ConfigRepository repository(searched);
  Companions companions(catalog);
  for (const auto& file : composition.files) {
    const fs::path from = real_path(file.file), relative = from.lexically_relative(own);
    const bool below_recipe = !relative.empty() && *relative.begin() != "..";
    if (file.file == composition.file || !file.source || !below_recipe) continue;
    const auto found = file.path.empty() ? std::nullopt : repository.find(file.path);
    if (!found || real_path(*found) != from) companions.add(from, target / relative, file.source);
  }
  for (const auto& file : composition.files)
    for (const auto& name :
         file.source ? named_texts(file.source->text()) : std::vector<std::string>()) {
      std::error_code ignored;
      if (fs::is_regular_file(original.directory / name, ignored))
        companions.add(original.directory / name, copy_directory / name, nullptr);
    }
  return std::move(companions.out);
}

std::vector<std::string> copy_differences(Recipe original, Recipe copy,
                                          const std::vector<Location>& by_hand,
                                          const PluginHost& plugins) {
  std::vector<std::string> out;
  std::set<std::pair<std::string, std::string>> known;
  for (const auto& fault : original.report.diagnostics())
    if (fault.severity == Severity::error) known.emplace(fault.code, fault.path);
  for (const auto& fault : copy.report.diagnostics())
    if (fault.severity == Severity::error && !known.contains({fault.code, fault.path}))
      out.push_back(cat(fault.path, fault.path.empty() ? "" : ": ", fault.message));
  if (!original.config.root().is_map() || !copy.config.root().is_map()) return out;
  make_input_paths_absolute(original, plugins);
  make_input_paths_absolute(copy, plugins);
  const Node before = original.config.resolved(), after = copy.config.resolved();
  for (const auto& d : differences(before, after)) {
    if (has_name(d.before) || has_name(d.after) || same_file(d.before, d.after)) continue;
    const bool is_path =
        std::any_of(original.inputs.begin(), original.inputs.end(),
                    [&](const InputPath& input) { return input.setting == d.path; });
    if (is_path && at_one_of(d.before, by_hand)) continue;
    out.push_back(cat(d.path, " would be ", side(d.after), ", not ", side(d.before)));
  }
  return out;
}

}  // namespace mtrain
