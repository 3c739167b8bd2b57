// The reports of DefaultsTree: an option that does not exist; a choice that is missing, is unused
// or replaces settings.

#include <algorithm>

#include "mtrain/base/text.h"
#include "mtrain/config/defaults_tree.h"
#include "mtrain/config/meant_values.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {

namespace {

/// The folders as texts, each once.
std::vector<std::string> named(const std::vector<std::filesystem::path>& folders) {
  std::vector<std::filesystem::path> seen;
  std::vector<std::string> out;
  for (const auto& folder : folders) {
    std::error_code ignored;
    std::filesystem::path whole = std::filesystem::weakly_canonical(folder, ignored);
    if (whole.empty()) whole = folder;
    if (std::find(seen.begin(), seen.end(), whole) != seen.end()) continue;
    seen.push_back(std::move(whole));
    out.push_back(folder.string());
  }
  return out;
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// The names that resemble one, nearest first, also where it has capitals and '-': Llama-3-8B.
std::vector<std::string> near_names(const std::string& wanted,
                                    const std::vector<std::string>& names) {
  constexpr size_t kOffered = 3;
  auto near = nearest(wanted, names, kOffered);
  if (!near.empty()) return near;
  std::string plain = wanted;
  for (char& c : plain)
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return nearest(plain, names, kOffered);
}

/// "a, b or c".
std::string alternatives(std::vector<std::string> words) {
  const std::string last = std::move(words.back());
  words.pop_back();
  return words.empty() ? last : cat(join(words, ", "), " or ", last);
}

}  // namespace

void DefaultsTree::not_found(const DefaultsNode& node) {
  std::string path = node.config_path(), group = node.group_path();
  const std::string& name = *node.entry.name;
  auto& fault =
      report_.error("defaults", node.entry.kind == DefaultsEntry::Kind::group ? node.key() : path,
                    node.entry.where, cat("there is no config ", visible(path, 100)));
  const bool typed =
      node.entry.where && node.entry.where.source->kind() == SourceKind::command_line;
  no_option(fault, group, name, "", typed);
  const auto folders = named(repository_.folders());
  fault.note("searched: " + (folders.empty() ? "nothing" : join(folders, ", ")));
  if (!typed && request_.names_component && request_.names_component(group, Node::string(name)))
    fault.fix(cat(visible(name, 60), " is a component and not an option: write `", group, ": ",
                  visible(name, 60), "` outside of the defaults list"));
}

/// The words that choose an option or a component of a group. `sign`: that of an override that adds
/// an option; empty: the name alone.
std::string DefaultsTree::choice_of(const std::string& group, const std::string& name,
                                    const std::string& sign) const {
  if (sign.empty()) return name;
  // group=option chooses the component of that name and keeps the section's values; +group=option
  // would replace them, and is refused.
  const bool component =
      request_.names_component && request_.names_component(group, Node::string(name));
  const bool keeps = component && (root_->file->body.find(group) ||
                                   !repository_.find(cat(group, "/", name)).has_value());
  return cat(keeps ? "" : sign, group, "=", name);
}

/// Adds the options that exist to the report of one that does not. `sign`: see choice_of. `typed`:
/// the command line chooses it, where a component may be named, too.
void DefaultsTree::no_option(Diagnostic& fault, const std::string& group, const std::string& wanted,
                             const std::string& sign, bool typed) {
  std::vector<std::string> names = repository_.options(group);
  if (!names.empty() && !group.empty())
    fault.note(cat("options of ", group, ": ", join(names, ", ")));
  if (typed && request_.components) {
    const std::vector<std::string> components = request_.components(group);
    if (!components.empty()) fault.note(cat("components: ", join(components, ", ")));
    for (const auto& name : components)
      if (!has(names, name)) names.push_back(name);
  }
  const std::string meant =
      meant_help(wanted, [&](const std::string& name) { return has(names, name); });
  std::vector<std::string> near = near_names(wanted, names);
  for (std::string& name : near) name = choice_of(group, name, sign);
  std::string known = typed && request_.name_advice ? request_.name_advice(group, wanted) : "",
              advice = near.empty() && request_.advice ? request_.advice(group) : "";
  if (!meant.empty()) {
    const std::string_view value =
        std::string_view(meant).substr(std::string_view("write ").size());
    const std::string name(value.substr(0, value.find(' ')));
    const bool own = !sign.empty() && root_->file->body.find(group);  // a section of the recipe
    fault.fix(cat("write ", own ? cat(group, "=", name) : choice_of(group, name, sign),
                  value.substr(name.size())));
  } else if (!near.empty()) {
    fault.fix(cat("did you mean ", alternatives(near), "?"));
    if (!known.empty()) fault.note(std::move(known));
  } else if (!known.empty()) {
    fault.fix(std::move(known));
  } else if (!advice.empty()) {
    fault.fix(std::move(advice));
  } else if (!names.empty() && !group.empty()) {
    fault.fix(sign.empty() ? "choose one of them"
                           : cat("choose one of them, e.g. ", choice_of(group, names[0], sign)));
  }
}

void DefaultsTree::must_choose(const DefaultsNode& node) {
  auto options = repository_.options(node.group_path());
  auto& fault = report_.error("missing", node.key(), node.entry.where, "must be chosen");
  if (!options.empty()) fault.note("options: " + join(options, ", "));
  fault.fix(cat("e.g. ", node.key(), "=", options.empty() ? "OPTION" : options[0]));
}

void DefaultsTree::report_unused() {
  for (const auto& [key, choice] : chosen_) {
    if (choice.used || choice.may_be_value) continue;
    bool exists = std::find(group_keys_.begin(), group_keys_.end(), key) != group_keys_.end();
    std::string verb = choice.removes ? "cannot be removed: " : "cannot be overridden: ";
    auto known = choices_.find(key);
    std::string why = "it is not in the defaults list";
    if (exists && choice.removes)
      why = cat("its option is ", known == choices_.end() ? "another" : known->second);
    else if (exists)
      why = "no earlier entry chooses it";
    std::string group = key.substr(0, key.find('@'));
    const std::string option = choice.option.name.value_or("");
    if (choice.external && !choice.removes && !exists && !option.empty() &&
        !repository_.find(group + "/" + option)) {
      const bool is_group = repository_.is_group(group);
      auto& fault = report_.error("override", key, choice.where,
                                  is_group ? cat("has no option '", visible(option, 60), "'")
                                           : cat("there is no config group ", visible(group, 60)));
      no_option(fault, group, option, "+", true);
      continue;
    }
    auto& fault = report_.error("override", key, choice.where, verb + why);
    std::vector<std::string> same;
    for (const auto& other : group_keys_)
      if (other != key && other.substr(0, other.find('@')) == group) same.push_back(other);
    if (!same.empty())
      fault.fix("did you mean " + join(same, " or ") + "?");
    else if (choice.removes && root_->file->body.find(group))
      fault.fix(
          cat("the recipe has the section itself: choose another component, ", group, "=NAME"));
    else if (choice.external && !choice.removes)
      fault.fix(cat("write +", key, "=", choice.option.name.value_or("null"), " to add it",
                    root_->file->body.find(group)
                        ? cat(" after the recipe: what it sets replaces the recipe's own ", group)
                        : ""));
    else if (auto near = nearest(key, group_keys_, 1); !near.empty())
      fault.fix("did you mean " + near[0] + "?");
  }
}

/// An added option with the name of a component (+optimizer=adamw) would silently replace settings
/// of that component in earlier files. An option with a name of its own (+model=llama3_8b) replaces
/// them intentionally.
void DefaultsTree::report_replaced() {
  const auto merged = files();
  for (size_t i = root_->children.size() - std::min(appended_.size(), root_->children.size());
       i < root_->children.size(); ++i) {
    const DefaultsNode& added = *root_->children[i];
    const Node* type = added.file && !added.dropped ? added.file->body.get("type") : nullptr;
    if (!type || !type->is_scalar() || type->as_text() != added.entry.name) continue;
    const std::string package = added.package();
    std::vector<std::string> replaced;
    bool other = false;  // true when the files name another component
    for (const auto& [config, at] : merged) {
      if (config == added.file) break;
      const Node* section = at == package ? &config->body
                            : at.empty()  ? config->body.find(package)
                                          : nullptr;
      for (const auto& entry :
           section && section->is_map() ? added.file->body.entries() : std::vector<Node::Entry>{}) {
        const Node* own_value = section->get(entry.key);
        if (own_value && entry.key == "type")
          other = !own_value->same_value(*type);
        else if (own_value && !own_value->same_value(entry.value))
          replaced.push_back(cat(package, ".", entry.key, "=", brief(*own_value, 40)));
      }
    }
    if (other || replaced.empty()) continue;
    report_
        .error("override", added.key(), added.entry.where,
               cat("would replace settings of earlier files: ", join(replaced, ", ")))
        .fix(cat("change single settings, ", package, ".KEY=VALUE; or write '- ", added.key(), ": ",
                 *added.entry.name,
                 "' to the recipe's defaults list: then the recipe's own values are kept"));
  }
}

}  // namespace mtrain
