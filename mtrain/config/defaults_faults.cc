// The reports of DefaultsTree: an option that does not exist; a choice that is missing, is unused
// or replaces settings.

#include <algorithm>

#include "mtrain/base/text.h"
#include "mtrain/config/defaults_tree.h"
#include "mtrain/config/meant_values.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {

void DefaultsTree::not_found(const DefaultsNode& node) {
  std::string path = node.config_path(), group = node.group_path();
  auto& fault =
      report_.error("defaults", node.entry.kind == DefaultsEntry::Kind::group ? node.key() : path,
                    node.entry.where, cat("there is no config ", visible(path, 100)));
  std::vector<std::string> folders;
  for (const auto& folder : repository_.folders()) folders.push_back(folder.string());
  no_option(fault, group, *node.entry.name, "");
  fault.note("searched: " + (folders.empty() ? "nothing" : join(folders, ", ")));
}

/// Adds the options that exist to the report of one that does not. `sign`: the sign of an override
/// that would choose an option.
void DefaultsTree::no_option(Diagnostic& fault, const std::string& group, const std::string& wanted,
                             const std::string& sign) {
  const auto options = repository_.options(group);
  if (!options.empty()) fault.note(cat("options of ", group, ": ", join(options, ", ")));
  const std::string chooses = sign.empty() ? "" : cat(sign, group, "=");
  const bool is_value =
      !sign.empty() && root_->file->body.find(group);  // the recipe has the section itself
  const auto near = nearest(wanted, options, 1);
  const std::string meant = meant_help(wanted, [&](const std::string& name) {
    return std::find(options.begin(), options.end(), name) != options.end();
  });
  std::string advice = near.empty() && advice_ ? advice_(group) : "";
  if (!meant.empty())
    fault.fix(cat("write ", is_value ? chooses.substr(sign.size()) : chooses,
                  meant.substr(std::string_view("write ").size())));
  else if (!near.empty()) {
    // group=option chooses the component of that name and keeps the section's values; +group=option
    // would replace them, and is refused.
    const bool keeps = is_value && is_component_ && is_component_(group, Node::string(near[0]));
    fault.fix(cat("did you mean ", keeps ? cat(group, "=") : chooses, near[0], "?"));
  } else if (!advice.empty())
    fault.fix(std::move(advice));
  else if (!options.empty() && !group.empty())
    fault.fix(cat("choose one of them, e.g. ", chooses, options.front()));
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
      no_option(fault, group, option, "+");
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
