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

/// The same for a choice of the command line that could be added: +key=option.
DefaultsTree::Replaced DefaultsTree::replaced_by_adding(const GroupChoice& choice,
                                                        const std::string& key) {
  const std::string option = choice.option.name.value_or("");
  const bool addable = choice.external && !choice.removes && !option.empty() &&
                       key.find_first_of("@/") == std::string::npos;
  const std::string path = cat(key, "/", option);
  Report unread;
  const ConfigFile* file =
      addable && repository_.find(path) ? repository_.load(path, unread) : nullptr;
  return file && !file->has_package ? replaced_by(*file, key, key, option) : Replaced{};
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
    else if (const Replaced replaced = replaced_by_adding(choice, key); !replaced.settings.empty())
      fault
          .note(cat("+", key, "=", option,
                    " would replace settings of earlier files: ", join(replaced.settings, ", ")))
          .fix(replaced.instead);
    else if (choice.external && !choice.removes)
      fault.fix(cat("write +", key, "=", choice.option.name.value_or("null"), " to add it",
                    root_->file->body.find(group)
                        ? cat(" after the recipe: what it sets replaces the recipe's own ", group)
                        : ""));
    else if (auto near = nearest(key, group_keys_, 1); !near.empty())
      fault.fix("did you mean " + near[0] + "?");
  }
}

/// The settings of a section in the files before an option, merged.
Node DefaultsTree::section_before(const ConfigFile& option, const std::string& package) const {
  Node out = Node::map();
  for (const auto& [config, at] : files()) {
    if (config == &option) break;
    const Node* section = at == package ? &config->body
                          : at.empty()  ? config->body.find(package)
                                        : nullptr;
    if (section && section->is_map()) out.merge(*section);
  }
  return out;
}

/// What an option would replace in earlier files although the choice is not about it. An option
/// with the name of a component (+optimizer=adamw) is about the component only. Any other option
/// (+model=llama3_8b, +peft=qlora), and that of another component (+peft=dora), is about the values
/// in which it differs from the option of the component that the files have (peft/lora); it has the
/// rest only to be complete. Settings that another component does not have are no loss.
DefaultsTree::Replaced DefaultsTree::replaced_by(const ConfigFile& option, const std::string& group,
                                                 const std::string& package,
                                                 const std::string& name) {
  const Node* type = option.body.get("type");
  if (!type || !type->is_scalar()) return {};
  Node tree = Node::map();
  const Node& earlier = tree.append(package, {}, section_before(option, package));
  const Node* present = earlier.get("type");
  const bool other = present && !present->same_value(*type);
  const std::string component = other ? present->as_text() : type->as_text();
  if (other && request_.replace_component)
    request_.replace_component(tree, package, type->as_text());
  Report unread;
  const std::string plain_path = cat(group, "/", component);
  const ConfigFile* plain =
      repository_.find(plain_path) ? repository_.load(plain_path, unread) : nullptr;
  Replaced out;
  std::vector<std::string> chosen;  // what the option is about
  for (const auto& entry : option.body.entries()) {
    const Node* usual = plain ? plain->body.get(entry.key) : nullptr;
    if (usual ? !usual->same_value(entry.value) : name != component) {
      chosen.push_back(cat(package, ".", entry.key, "=", brief(entry.value, 40)));
      continue;
    }
    const Node* own = earlier.get(entry.key);
    if (own && entry.key != "type" && !own->same_value(entry.value))
      out.settings.push_back(cat(package, ".", entry.key, "=", brief(*own, 40)));
  }
  const bool kept = request_.names_component && request_.names_component(group, Node::string(name));
  const std::string listed = cat("; or write '- ", group, ": ", name,
                                 "' to the recipe's defaults list: then the recipe's own values "
                                 "are kept"),
                    differs = cat("write ", join(chosen, " "), ", in which ", name,
                                  " differs from ", component);
  out.instead = other && kept
                    ? cat("write ", group, "=", name, ": it chooses ", package, ".type=", name,
                          " and keeps the values that the recipe itself sets")
                : other          ? differs
                : chosen.empty() ? cat("change single settings, ", package, ".KEY=VALUE", listed)
                                 : cat(differs, listed);
  return out;
}

void DefaultsTree::report_replaced() {
  for (size_t i = root_->children.size() - std::min(appended_.size(), root_->children.size());
       i < root_->children.size(); ++i) {
    const DefaultsNode& added = *root_->children[i];
    if (!added.file || added.dropped || !added.entry.name) continue;
    const Replaced replaced =
        replaced_by(*added.file, added.group_path(), added.package(), *added.entry.name);
    if (replaced.settings.empty()) continue;
    report_
        .error("override", added.key(), added.entry.where,
               cat("would replace settings of earlier files: ", join(replaced.settings, ", ")))
        .fix(replaced.instead);
  }
}

}  // namespace mtrain
