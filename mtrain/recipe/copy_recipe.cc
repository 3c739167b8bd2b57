#include "mtrain/recipe/copy_recipe.h"

#include <algorithm>

#include "mtrain/base/text.h"
#include "mtrain/config/text_edit.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/recipe/input_paths.h"

namespace mtrain {

fs::path real_path(const fs::path& path) {
  std::error_code error;
  fs::path out = fs::weakly_canonical(fs::absolute(path), error);
  return error ? fs::absolute(path).lexically_normal() : out;
}

namespace {

/// The path from one folder to another: relative, or absolute if they have only the root in common.
fs::path way(const fs::path& from, const fs::path& to) {
  const fs::path target = real_path(from), start = real_path(to);
  const bool related =
      std::distance(target.begin(),
                    std::mismatch(target.begin(), target.end(), start.begin(), start.end()).first) >
      1;
  return related ? target.lexically_relative(start) : target;
}

/// The text as one YAML scalar.
std::string yaml_scalar(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-+=@~${}";
  if (text.find_first_not_of(kPlain) == std::string::npos && text.find_first_of("{}@-") != 0)
    return text;
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("''") : std::string(1, c);
  return out + "'";
}

bool is_input_path(const SchemaCatalog& catalog, const std::string& section,
                   const std::string& path) {
  for (const Schema* owner : catalog.all_owners(section))
    for (const auto& spec : owner->fields) {
      const bool named = spec.path == path ||
                         std::find(spec.renamed_from.begin(), spec.renamed_from.end(), path) !=
                             spec.renamed_from.end();
      if (named && spec.input_path) return true;
    }
  return false;
}

class Copier {
 public:
  Copier(const SourcePtr& source, const std::vector<fs::path>& from, fs::path to,
         const SchemaCatalog& catalog)
      : source_(source), from_(from), to_(std::move(to)), catalog_(catalog) {}

  void walk(const std::string& section, const std::string& path, const Node& map) {
    for (const auto& entry : map.entries()) {
      const std::string child = join_path(path, entry.key);
      if (entry.value.is_map()) {
        walk(section, child, entry.value);
      } else if (is_input_path(catalog_, section, child)) {
        if (entry.value.is_list())
          for (const auto& item : entry.value.items()) value(item);
        else
          value(entry.value);
      }
    }
  }

  CopiedRecipe finish() {
    out_.text = apply_edits(source_->text(), std::move(edits_));
    return std::move(out_);
  }

 private:
  void value(const Node& node) {
    const std::string& given = node.as_text();
    if (node.kind() != NodeKind::string || given.empty() || node.is_missing() ||
        fs::path(given).is_absolute())
      return;
    if (names_path(given)) return;
    const auto holds = [&](const fs::path& folder) { return input_exists(folder / given); };
    const auto found = std::find_if(from_.begin(), from_.end(), holds);
    const fs::path moved = way(found == from_.end() ? from_.front() : *found, to_);
    if (moved == ".") return;
    const std::string_view text = source_->text();
    const size_t at = offset_of(text, node.loc());
    const std::string written =
        node.quoted() && at < text.size() ? cat(text[at], given, text[at]) : given;
    if (given.starts_with("${") || text.substr(at, written.size()) != written)
      out_.by_hand.push_back(node.loc());
    else
      edits_.push_back(
          {at, written.size(), yaml_scalar((moved / given).lexically_normal().string())});
  }

  /// "${model.init_from}": the path of another setting, which is adapted where it is written.
  bool names_path(const std::string& given) const {
    const size_t dot = given.find('.');
    return given.starts_with("${") && given.find('}') + 1 == given.size() && dot < given.size() &&
           is_input_path(catalog_, given.substr(2, dot - 2),
                         given.substr(dot + 1, given.size() - dot - 2));
  }

  SourcePtr source_;
  const std::vector<fs::path>& from_;  // not empty
  fs::path to_;
  const SchemaCatalog& catalog_;
  std::vector<TextEdit> edits_;
  CopiedRecipe out_;
};

}  // namespace

CopiedRecipe copy_recipe(const SourcePtr& source, const std::string& package,
                         const std::vector<fs::path>& from, const fs::path& to,
                         const SchemaCatalog& catalog, Report& report) {
  Copier copier(source, from, to, catalog);
  auto root = load_yaml(source, report);
  if (root && !package.empty()) {
    copier.walk(package, "", *root);
  } else if (root && root->is_map()) {
    for (const auto& entry : root->entries())
      if (catalog.section(entry.key) && entry.value.is_map())
        copier.walk(entry.key, "", entry.value);
  }
  return copier.finish();
}

}  // namespace mtrain
