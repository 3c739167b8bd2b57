#include <algorithm>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/override.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

/// Why an override cannot be applied.
struct ApplyFault {
  std::string message, help;
};

/// Help for a missing key: the most similar keys of the same map.
std::string near_key(const Node& root, const std::string& path) {
  auto parts = parse_path(path);
  if (!parts || parts->empty()) return {};
  const Node* at = &root;
  std::string parent;
  for (const auto& part : *parts) {
    const Node* next = at->get(part);
    if (!next) {
      std::vector<std::string> keys;
      for (const auto& entry : at->entries()) keys.push_back(entry.key);
      auto near = nearest(part, keys, 1);
      return near.empty() ? "" : join_path(parent, near[0]);
    }
    parent = join_path(parent, part);
    at = next;
  }
  return {};
}

/// The index of the one item of a list whose `key` is `value`.
size_t item_with(const Node& list, std::string_view key, std::string_view value,
                 const std::string& path) {
  std::vector<std::string> there;
  std::optional<size_t> found;
  for (size_t i = 0; i < list.size(); ++i) {
    const Node* name = list.items()[i].get(key);
    if (!name || !name->is_scalar()) continue;
    there.push_back(name->as_text());
    if (name->as_text() != value) continue;
    if (found)
      throw ApplyFault{
          cat("two items of ", path, " have ", key, " = ", visible(value, 60)),
          cat("name one by its index: ", path, "[", *found, "] or ", path, "[", i, "]")};
    found = i;
  }
  if (found) return *found;
  std::string help = there.empty() ? cat(path, " has ", counted(list.size(), "item"),
                                         ", but none of them has a ", visible(key, 60))
                                   : cat(key, " is one of: ", join(there, ", "));
  throw ApplyFault{cat("no item of ", path, " has ", visible(key, 60), " = ", visible(value, 60)),
                   help};
}

/// The path with each [key=value] replaced by the index of the matching item.
std::string with_indices(const Node& root, const std::string& path) {
  if (path.find('=') == std::string::npos) return path;
  auto parts = parse_path(path);
  if (!parts) return path;
  std::string out;
  const Node* at = &root;
  for (auto& part : *parts) {
    size_t equals = part.find('=');
    if (equals != std::string::npos && at && at->is_list())
      part = std::to_string(item_with(*at, part.substr(0, equals), part.substr(equals + 1), out));
    else if (equals != std::string::npos && !(at && at->get(part)))
      throw ApplyFault{cat(out.empty() ? "the recipe" : out,
                           " is not a list of maps, so its items cannot be searched"),
                       ""};
    out = join_path(out, part);
    at = at ? root.find(out) : nullptr;
  }
  return out;
}

/// Adds the default of a list to the tree when an override changes a part of the list, at `key`,
/// and the tree lacks it.
void bring_defaults(Node& root, const Override& override, const std::string& key,
                    const DefaultOf& default_of) {
  auto parts = parse_path(key);
  if (!default_of || !parts) return;
  if (!override.edit && !parts->empty()) parts->pop_back();
  std::string at;
  for (const auto& part : *parts) {
    at = join_path(at, part);
    const Node* there = root.find(at);
    if (there && !there->is_null()) continue;
    auto value = default_of(at);
    if (value && value->is_list()) root.set(at, std::move(*value));
  }
}

/// The names under which the tree has the setting of a key: the name whose value counts first.
std::vector<std::string> names_present(const Node& root, const std::string& key,
                                       const NamesOf& names_of) {
  std::vector<std::string> out;
  if (names_of) out = names_of(key);
  if (out.empty()) out.push_back(key);
  std::erase_if(out, [&](const std::string& name) { return !root.find(name); });
  return out;
}

bool is_item_part(const std::string& part) {
  return part.find('=') != std::string::npos || part.find_first_not_of("0123456789") == part.npos;
}

/// The key of an override that edits a list or names an item of one, with the name of the list
/// whose value counts: such an override changes the value that the setting has, whatever name
/// either of them uses. The key itself for any other override.
std::string key_of_list(const Override& override, const NamesOf& names_of) {
  const auto parts = parse_path(override.key);
  if (!parts || !names_of) return override.key;
  std::string name;
  for (size_t used = 0; used < parts->size(); ++used) {
    name = join_path(name, (*parts)[used]);
    const bool whole = used + 1 == parts->size();
    if (whole ? !override.edit : !is_item_part((*parts)[used + 1])) continue;
    const auto names = names_of(name);
    if (names.empty() || names.front() == name) continue;
    std::string out = names.front();
    for (size_t i = used + 1; i < parts->size(); ++i) out = join_path(out, (*parts)[i]);
    return out;
  }
  return override.key;
}

void remove(Node& root, const std::string& key, const Override& override, Report& report,
            const NamesOf& names_of) {
  const auto names = names_present(root, key, names_of);
  const Node* there = names.empty() ? nullptr : root.find(names.front());
  if (!there) {
    auto& fault = report.error("override", override.key, override.where,
                               "cannot remove it: it is not in the recipe");
    std::string near = near_key(root, key);
    if (!near.empty()) fault.fix("did you mean ~" + near + "?");
  } else if (override.value && !override.value->same_value(*there)) {
    report
        .error(
            "override", override.key, override.where,
            cat("is not removed: its value is ", brief(*there), ", not ", brief(*override.value)))
        .fix("~" + override.key + " removes it regardless of its value");
  } else {
    for (const auto& name : names) root.erase(name);
  }
}

/// True when an item equals `meant`; numbers are compared by value, not by notation.
bool is_item(const Node& item, const Node& meant) {
  auto number = [](const Node& node) {
    bool numeric = node.is(NodeKind::integer) || node.is(NodeKind::number);
    return numeric ? parse_number(node.as_text()) : std::nullopt;
  };
  auto a = number(item), b = number(meant);
  return a && b ? *a == *b : item.same_value(meant);
}

void edit_items(std::vector<Node>& items, const ListEdit& edit) {
  using Kind = ListEdit::Kind;
  auto count = static_cast<int64_t>(items.size());
  auto missing = [&](const Node& value) {
    return ApplyFault{
        cat(brief(value), " is not in the list"),
        items.empty() ? "the list is empty"
                      : cat("it has ", counted(count, "item"), ", the first is ", brief(items[0]))};
  };
  switch (edit.kind) {
    case Kind::append:
    case Kind::prepend:
    case Kind::insert: {
      int64_t at = edit.kind == Kind::append ? count : edit.kind == Kind::insert ? edit.index : 0;
      if (at > count)
        throw ApplyFault{cat("the list has ", counted(count, "item")),
                         cat("insert at 0 to ", count)};
      items.insert(items.begin() + at, edit.values.begin(), edit.values.end());
      return;
    }
    case Kind::remove:
      for (const auto& value : edit.values)
        if (std::erase_if(items, [&](const Node& item) { return is_item(item, value); }) == 0)
          throw missing(value);
      return;
    case Kind::replace: {
      bool found = false;
      for (auto& item : items) {
        if (!is_item(item, edit.values[0])) continue;
        Node value = edit.values[1];
        value.shadow(item);
        item = std::move(value);
        found = true;
      }
      if (!found) throw missing(edit.values[0]);
      return;
    }
  }
}

void apply_edit(Node& root, const std::string& key, const Override& override) {
  Node* there = root.find(key);
  if (there && there->is_list()) {
    there->shadow(*there);
    edit_items(there->items(), *override.edit);
    there->set_location(override.where);
    return;
  }
  if (there && there->is(NodeKind::string) && there->as_text().find("${") != std::string::npos)
    throw ApplyFault{cat("is computed from ", brief(*there), ", so its items are not known yet"),
                     cat("write ", key, "=[…]")};
  else if (there && !there->is_null() && !there->is_missing())
    throw ApplyFault{cat("is not a list: ", brief(*there)), ""};
  Node list = Node::list();
  edit_items(list.items(), *override.edit);
  list.set_location(override.where);
  root.set(key, std::move(list));
}

void set_value(Node& root, const std::string& key, const Override& override,
               const NamesOf& names_of) {
  const Node& value = *override.value;
  if (override.kind == Override::Kind::add)
    for (const auto& name : names_present(root, key, names_of)) {
      const Node& now = *root.find(name);
      if (now.is_null() || now.is_missing() || !(value.is_scalar() || name != key)) continue;
      throw ApplyFault{
          cat("cannot be added: it is ", brief(now), " already",
              name == key ? "" : cat(", as ", name)),
          cat(override.key, "=… changes it; ++", override.key, "=… changes or adds it")};
    }
  Node* there = root.find(key);
  if (there && there->is_map() && value.is_map())
    there->merge(value);
  else
    root.set(key, value);
}

}  // namespace

void apply_override(Node& root, const Override& override, Report& report,
                    const DefaultOf& default_of, const NamesOf& names_of) {
  try {
    const std::string meant = key_of_list(override, names_of);
    bring_defaults(root, override, meant, default_of);
    std::string key = with_indices(root, meant);
    if (override.kind == Override::Kind::remove)
      return remove(root, key, override, report, names_of);
    if (override.edit) return apply_edit(root, key, override);
    if (override.value) set_value(root, key, override, names_of);
  } catch (const ApplyFault& fault) {
    report.error("override", override.key, override.where, fault.message).fix(fault.help);
  } catch (const Error& fault) {
    report.error("override", override.key, override.where, fault.message()).fix(fault.hint());
  }
}

}  // namespace mtrain
