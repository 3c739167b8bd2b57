#include "mtrain/config/defaults_tree.h"

#include <algorithm>
#include <functional>

#include "mtrain/base/text.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

constexpr int kMaxIncludes = 32;  // the longest chain of files that include each other

std::string with_dots(std::string path) {
  std::replace(path.begin(), path.end(), '/', '.');
  return path;
}

std::string join_with(const std::string& a, char separator, const std::string& b) {
  return a.empty() ? b : b.empty() ? a : a + separator + b;
}

/// A package restarts at its last _global_: "a._global_.b" is "b".
std::string from_last_global(const std::string& package) {
  constexpr std::string_view kGlobal = "_global_";
  size_t at = package.rfind(kGlobal);
  if (at == std::string::npos) return package;
  std::string out = package.substr(at + kGlobal.size());
  if (out.starts_with('.')) out.erase(0, 1);
  return out;
}

std::string without_here(std::string package) {
  if (package == "_here_") return "";
  constexpr std::string_view kHere = "_here_.";
  if (package.starts_with(kHere)) package.erase(0, kHere.size());
  return package;
}

}  // namespace

std::string DefaultsNode::group_path() const {
  if (entry.kind == DefaultsEntry::Kind::include) return base;
  return entry.absolute ? entry.group : join_with(base, '/', entry.group);
}

std::string DefaultsNode::config_path() const {
  return join_with(group_path(), '/', entry.name.value_or(""));
}

std::string DefaultsNode::package(bool with_header) const {
  std::string relative;
  if (entry.package) {
    relative = without_here(*entry.package);
  } else if (with_header && file && file->has_package) {
    const std::string& header = file->package;
    bool special = header.starts_with("_global_") || header.starts_with("_here_");
    relative = special ? without_here(header) : join_with("_global_", '.', header);
  } else {
    relative = entry.kind == DefaultsEntry::Kind::include ? "" : with_dots(entry.group);
  }
  return from_last_global(join_with(parent_package, '.', relative));
}

std::string DefaultsNode::key() const {
  std::string group = group_path(), final_package = package(false);
  if (final_package == with_dots(group)) return group;
  return cat(group, "@", final_package.empty() ? "_global_" : final_package);
}

void DefaultsTree::choose(const Override& override, bool may_be_value) {
  DefaultsEntry entry;
  entry.kind = DefaultsEntry::Kind::group;
  entry.where = override.where;
  std::string key = override.key;
  bool removes = override.kind == Override::Kind::remove;
  auto fail = [&](const std::string& message, const std::string& help) {
    report_.error("override", override.key, override.where, message).fix(help);
  };
  if (override.kind == Override::Kind::set_or_add)
    return fail("++ is for values, but this is a config group",
                cat("write ", key, "=… or +", key, "=…"));
  if (!set_group(entry, key))
    return fail("is not a config group", "write group=option or group@package=option");
  if (override.value && !set_option(entry, *override.value))
    return fail(cat("wanted an option, null or [a, b], got ", brief(*override.value)), "");
  if (size_t at = key.find('@'); at != std::string::npos)
    key = entry.group + key.substr(at);
  else
    key = entry.group;
  if (override.kind == Override::Kind::add) {
    entry.absolute = entry.added = true;
    appended_.push_back(std::move(entry));
    return;
  }
  GroupChoice choice{std::move(entry), override.where.text(), override.where, true, removes, false,
                     may_be_value};
  if (removes && !override.value) choice.option.name = "";
  chosen_.insert_or_assign(key,
                           std::move(choice));  // the last one on the command line takes precedence
}

bool DefaultsTree::is_value(const std::string& key) const {
  auto chosen = chosen_.find(key);
  return chosen != chosen_.end() && chosen->second.may_be_value && !chosen->second.used;
}

void DefaultsTree::build(const ConfigFile* recipe) {
  root_ = std::make_unique<DefaultsNode>();
  root_->file = recipe;
  root_->entry.name = recipe->path;
  root_->entry.where = recipe->body.loc();
  read_list(*root_);
  expand_pending();
  report_unused();
  report_replaced();
}

DefaultsNode& DefaultsTree::add_child(DefaultsNode& node, const DefaultsEntry& entry) {
  auto child = std::make_unique<DefaultsNode>();
  child->entry = entry;
  child->base = node.parent == nullptr ? "" : node.group_path();
  child->parent_package = node.package();
  child->parent = &node;
  child->in_interpolated = node.in_interpolated;
  node.children.push_back(std::move(child));
  return *node.children.back();
}

/// Makes the children of a node whose file is known. They are expanded from the last to the first,
/// so an override applies to entries before it; the overrides of an outer file take precedence over
/// those of the files inside it.
void DefaultsTree::read_list(DefaultsNode& node) {
  bool is_recipe = node.parent == nullptr;
  if (!node.file->defaults && !(is_recipe && !appended_.empty())) return;
  Node none = Node::list();
  none.set_location(node.file->body.loc());
  auto entries = parse_defaults(node.file->defaults ? *node.file->defaults : none, report_);
  if (is_recipe) entries.insert(entries.end(), appended_.begin(), appended_.end());
  take_overrides(node, entries);
  for (const auto& entry : entries)
    if (!entry.overrides) add_child(node, entry);
  expand_children(node);
}

void DefaultsTree::take_overrides(DefaultsNode& node, const std::vector<DefaultsEntry>& entries) {
  for (const auto& entry : entries) {
    if (!entry.overrides) continue;
    if (node.in_interpolated) {
      report_.error("defaults", entry.group, entry.where,
                    "a file that is chosen by interpolation cannot contain an override");
      continue;
    }
    DefaultsNode as_node;
    as_node.entry = entry;
    as_node.base = node.parent == nullptr ? "" : node.group_path();
    as_node.parent_package = node.package();
    GroupChoice choice{entry, entry.where.text(), entry.where, false, false, false, false};
    chosen_.emplace(
        as_node.key(),
        std::move(choice));  // choices of an outer file and of the command line take precedence
  }
}

void DefaultsTree::expand_children(DefaultsNode& node) {
  for (size_t i = node.children.size(); i-- > 0;) expand(*node.children[i]);
}

void DefaultsTree::expand(DefaultsNode& node) {
  using Kind = DefaultsEntry::Kind;
  if (node.entry.kind == Kind::self) return;
  if (node.entry.kind == Kind::group && !choose_option(node)) return;
  if (node.entry.kind == Kind::config) {
    auto removed = chosen_.find(node.config_path());
    if (removed != chosen_.end() && removed->second.removes) {
      removed->second.used = true;
      node.dropped = true;
      return;
    }
  }
  if (node.entry.is_interpolated()) {
    pending_.push_back(&node);
    return;
  }
  if (!load(node)) return;
  remember(node);
  read_list(node);
}

/// Applies the choice for a group; false when the node needs no further expansion.
bool DefaultsTree::choose_option(DefaultsNode& node) {
  std::string key = node.key();
  if (!node.entry.added) group_keys_.push_back(key);
  auto chosen = chosen_.find(key);
  if (chosen != chosen_.end() &&
      !(node.entry.added &&
        chosen->second.removes)) {  // ~group removes only entries of a defaults list
    GroupChoice& choice = chosen->second;
    if (choice.removes) {
      bool any = choice.option.name == "";
      if (any || choice.option.name == node.entry.name) {
        choice.used = true;
        node.dropped = true;
        return false;
      }
    } else {
      choice.used = true;
      node.entry.name = choice.option.name;
      node.entry.options = choice.option.options;
      node.entry.is_list = choice.option.is_list;
      node.entry.where = choice.where;
    }
  }
  if (node.entry.is_list) {
    // Each option of a list becomes a config entry, which no override can change.
    for (const auto& option : node.entry.options) {
      auto child = std::make_unique<DefaultsNode>();
      child->entry = node.entry;
      child->entry.kind = DefaultsEntry::Kind::config;
      child->entry.is_list = false;
      child->entry.name = option;
      child->base = node.base;
      child->parent_package = node.parent_package;
      child->parent = node.parent;
      child->in_interpolated = node.in_interpolated;
      node.children.push_back(std::move(child));
    }
    choices_[key] = join(node.entry.options, ",");
    expand_children(node);
    return false;
  }
  if (!node.entry.name) {
    node.dropped = true;
    choices_[key] = "null";
    return false;
  }
  if (node.entry.is_missing()) {
    must_choose(node);
    node.dropped = true;
    return false;
  }
  return true;
}

bool DefaultsTree::load(DefaultsNode& node) {
  if (node.entry.kind == DefaultsEntry::Kind::include) {
    std::filesystem::path included =
        std::filesystem::path(node.parent->file->file).parent_path() / *node.entry.name;
    size_t errors = report_.errors();
    std::error_code ignored;
    if (std::filesystem::is_regular_file(included, ignored))
      node.file = repository_.load_file(included.string(), std::nullopt, report_);
    else
      report_.error("defaults", "defaults", node.entry.where,
                    cat("there is no file ", visible(included.string())));
    node.dropped = node.file == nullptr || is_cycle(node);
    return !node.dropped && report_.errors() == errors;
  }
  bool exists = repository_.find(node.config_path()).has_value();
  if (exists) node.file = repository_.load(node.config_path(), report_);
  if (!exists && !node.entry.optional) not_found(node);
  node.dropped = node.file == nullptr || is_cycle(node);
  return !node.dropped;
}

bool DefaultsTree::is_cycle(const DefaultsNode& node) {
  std::vector<std::string> chain = {node.file->file};
  for (const DefaultsNode* at = node.parent; at; at = at->parent) {
    if (!at->file) continue;
    chain.push_back(at->file->file);
    bool again = at->file == node.file;
    if (!again && static_cast<int>(chain.size()) <= kMaxIncludes) continue;
    std::reverse(chain.begin(), chain.end());
    if (chain.size() > 8) chain.erase(chain.begin() + 4, chain.end() - 4);
    report_
        .error("defaults-cycle", "defaults", node.entry.where,
               again ? "files include each other"
                     : cat("more than ", kMaxIncludes, " levels of included files"))
        .note(join(chain, " → "));
    return true;
  }
  return false;
}

namespace {

int depth_of(const DefaultsNode& node) { return node.parent ? 1 + depth_of(*node.parent) : 0; }

}  // namespace

void DefaultsTree::remember(DefaultsNode& node) {
  if (node.entry.kind != DefaultsEntry::Kind::group) return;
  std::string key = node.key();
  auto [known, fresh] = choices_.emplace(key, *node.entry.name);
  if (!fresh) report_chosen_twice(key, *choosing_.at(key), node);
  choosing_[key] = &node;
}

/// Reports two entries of a group. The one in the outer file, or the later one of the same file,
/// may become an override of the other. `later`: the one that is merged later.
void DefaultsTree::report_chosen_twice(const std::string& key, const DefaultsNode& later,
                                       const DefaultsNode& earlier) {
  const bool outer = depth_of(earlier) < depth_of(later);
  const DefaultsNode &changes = outer ? earlier : later, &other = outer ? later : earlier;
  const std::string &option = *changes.entry.name, &replaced = *other.entry.name;
  report_
      .error("defaults", key, changes.entry.where,
             option != replaced ? cat("is chosen twice: ", replaced, " and ", option)
                                : "is in the defaults lists twice")
      .note("also at " + other.entry.where.text())
      .fix(changes.entry.added
               ? cat("to change the choice, write ", key, "=", option, " without '+'")
               : cat("to change the choice, write 'override ", key, ": ", option,
                     "' here; to use a group twice, give it a package, ", key, "@NAME"));
}

/// Expands the entries whose option refers to other choices, repeatedly, until no further entry can
/// be expanded.
void DefaultsTree::expand_pending() {
  bool progress = true;
  while (progress && !pending_.empty()) {
    progress = false;
    std::vector<DefaultsNode*> now;
    now.swap(pending_);
    for (DefaultsNode* node : now) {
      if (!resolve_name(*node)) {
        pending_.push_back(node);
        continue;
      }
      progress = true;
      node->in_interpolated = true;
      if (node->entry.is_missing())
        must_choose(*node);
      else if (load(*node)) {
        remember(*node);
        read_list(*node);
      }
    }
  }
  for (const DefaultsNode* node : pending_) {
    auto& fault = report_.error("defaults", node->key(), node->entry.where,
                                cat("cannot be chosen by '", visible(*node->entry.name, 60),
                                    "': a group in it has no choice"));
    std::vector<std::string> known;
    for (const auto& [key, choice] : choices_) known.push_back(key);
    fault.note(known.empty() ? "no group has a choice" : "chosen groups: " + join(known, ", "));
  }
  for (DefaultsNode* node : pending_) node->dropped = true;
}

/// Substitutes choices in an interpolated option; false when one of them is not known yet.
bool DefaultsTree::resolve_name(DefaultsNode& node) {
  std::string out = *node.entry.name;
  for (size_t begin; (begin = out.find("${")) != std::string::npos;) {
    size_t end = out.find('}', begin);
    if (end == std::string::npos) return false;
    auto choice = choices_.find(out.substr(begin + 2, end - begin - 2));
    if (choice == choices_.end()) return false;
    out.replace(begin, end + 1 - begin, choice->second);
  }
  node.entry.name = out;
  return true;
}

void DefaultsTree::collect(const DefaultsNode& node,
                           std::vector<std::pair<const ConfigFile*, std::string>>& out) const {
  if (node.dropped) return;
  if (node.children.empty()) {
    if (node.file) out.emplace_back(node.file, node.package());
    return;
  }
  for (const auto& child : node.children) {
    if (child->entry.kind == DefaultsEntry::Kind::self)
      out.emplace_back(node.file, node.package());
    else
      collect(*child, out);
  }
}

std::vector<std::pair<const ConfigFile*, std::string>> DefaultsTree::files() const {
  std::vector<std::pair<const ConfigFile*, std::string>> out;
  collect(*root_, out);
  return out;
}

std::vector<DefaultsLine> DefaultsTree::lines() const {
  std::vector<DefaultsLine> out;
  std::function<void(const DefaultsNode&, int)> walk = [&](const DefaultsNode& node, int depth) {
    using Kind = DefaultsEntry::Kind;
    Kind kind = node.parent == nullptr ? Kind::config : node.entry.kind;
    DefaultsLine line{depth,       node.entry.name.value_or("null"), "", "", node.entry.where,
                      node.dropped};
    if (kind == Kind::self) line.entry = "_self_";
    if (kind == Kind::group)
      line.entry =
          cat(node.key(), ": ",
              node.entry.is_list ? cat("[", join(node.entry.options, ", "), "]") : line.entry);
    if (kind == Kind::config && node.parent) line.entry = node.config_path();
    if (node.file && kind != Kind::self) {
      line.file = node.file->file;
      line.package = node.package();
      if (!node.parent) line.entry = node.file->file;
    }
    out.push_back(std::move(line));
    for (const auto& child : node.children) walk(*child, depth + 1);
  };
  if (root_) walk(*root_, 0);
  return out;
}

}  // namespace mtrain
