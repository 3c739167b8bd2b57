#include "mtrain/config/migrate.h"

#include <map>
#include <set>

#include "mtrain/base/text.h"
#include "mtrain/config/text_edit.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

std::string parent_of(const std::string& path) {
  size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

class Migrator {
 public:
  Migrator(const SourcePtr& source, const SchemaCatalog& catalog)
      : source_(source), catalog_(catalog) {}

  void section(const std::string& name, const Node& body) {
    const Schema* core = catalog_.section(name);
    if (!core || !body.is_map()) return;
    renamed_.clear();
    present_.clear();
    learn(*core);
    std::string kind = catalog_.kind_of(name);
    const Node* type = body.get("type");
    if (const Schema* own = type ? catalog_.component(kind, type->as_text()) : nullptr)
      learn(*own);
    else
      for (const auto& component : catalog_.components(kind))
        learn(*catalog_.component(kind, component));
    body_ = &body;
    walk(name, "", body);
  }

  /// Records a key that is not a setting, when help for it exists.
  void foreign(const std::string& path, const Node::Entry& entry) {
    if (std::string help = catalog_.advice(path); !help.empty())
      out_.foreign.push_back({path, std::move(help), entry.key_where});
  }

  Migration finish() {
    out_.text = apply_edits(source_->text(), std::move(edits_));
    return std::move(out_);
  }

 private:
  void learn(const Schema& schema) {
    for (const auto& spec : schema.fields) {
      present_.insert(spec.path);
      for (const auto& old : spec.renamed_from) {
        renamed_.emplace(old, spec.path);
        std::string parent = parent_of(spec.path);
        if (!parent.empty()) renamed_.emplace(parent + "." + old, spec.path);
      }
    }
  }

  /// True when there are settings below a path.
  bool is_prefix(const std::string& path) const {
    auto holds = [&](const auto& names) {
      auto next = names.lower_bound(path + ".");
      return next != names.end() && name_of(*next).starts_with(path + ".");
    };
    return holds(present_) || holds(renamed_);
  }
  static const std::string& name_of(const std::string& name) { return name; }
  static const std::string& name_of(const std::pair<const std::string, std::string>& renamed) {
    return renamed.first;
  }

  void walk(const std::string& section, const std::string& path, const Node& map) {
    for (const auto& entry : map.entries()) {
      std::string child = join_path(path, entry.key);
      auto old = renamed_.find(child);
      if (present_.contains(child)) continue;
      if (old == renamed_.end()) {
        if (!is_prefix(child))
          foreign(section + "." + child, entry);
        else if (entry.value.is_map())
          walk(section, child, entry.value);
        continue;
      }
      Renaming renaming{section + "." + child, section + "." + old->second, entry.key_where};
      bool done = !body_->find(old->second) && rewrite(entry, child, old->second);
      (done ? out_.done : out_.by_hand).push_back(std::move(renaming));
    }
  }

  /// Records the edits; false when the text does not have the form that they need.
  bool rewrite(const Node::Entry& entry, const std::string& before, const std::string& now) {
    std::string_view text = source_->text();
    size_t key = offset_of(text, entry.key_where);
    bool quoted = key < text.size() && (text[key] == '"' || text[key] == '\'');
    if (text.substr(key + (quoted ? 1 : 0), entry.key.size()) != entry.key) return false;
    size_t length = entry.key.size() + (quoted ? 2 : 0);
    std::string parent = parent_of(now),
                leaf = parent.empty() ? now : now.substr(parent.size() + 1);
    if (parent_of(before) == parent) {
      edits_.push_back({key, length, leaf});
      return true;
    }
    // The setting moves into its own section, written on the same line.
    if (parent_of(before) != parent_of(parent) || body_->find(parent) ||
        !moved_into_.insert(parent).second)
      return false;
    size_t value = offset_of(text, entry.value.loc());
    bool plain = entry.value.is_scalar() && !entry.value.quoted() &&
                 !entry.value.as_text().empty() &&
                 text.substr(value, entry.value.as_text().size()) == entry.value.as_text();
    if (!plain) return false;
    std::string section =
        parent_of(parent).empty() ? parent : parent.substr(parent_of(parent).size() + 1);
    edits_.push_back({key, length, cat(section, ": {", leaf)});
    edits_.push_back({value + entry.value.as_text().size(), 0, "}"});
    return true;
  }

  SourcePtr source_;
  const SchemaCatalog& catalog_;
  std::map<std::string, std::string> renamed_;
  std::set<std::string> present_, moved_into_;
  const Node* body_ = nullptr;
  std::vector<TextEdit> edits_;
  Migration out_;
};

}  // namespace

Migration migrate_recipe(const SourcePtr& source, const std::string& package,
                         const SchemaCatalog& catalog, Report& report) {
  Migrator migrator(source, catalog);
  auto root = load_yaml(source, report);
  if (root && !package.empty()) {
    migrator.section(package, *root);
  } else if (root) {
    for (const auto& entry : root->entries())
      catalog.section(entry.key) ? migrator.section(entry.key, entry.value)
                                 : migrator.foreign(entry.key, entry);
  }
  return migrator.finish();
}

}  // namespace mtrain
