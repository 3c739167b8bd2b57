// Reads a family's file. Every fault has its line; the messages name the word that is wrong and
// what is allowed.
#include <algorithm>
#include <set>

#include "mtrain/base/text.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/recipe/hf_families.h"
#include "mtrain/recipe/hf_family_words.h"

namespace mtrain {
namespace {

const std::vector<std::string> kWords = {"model_type",     "architectures",
                                         "like",           "needs",
                                         "settings",       "zeros",
                                         "objects",        "keys",
                                         "indices",        "blocks",
                                         "tensors",        "copies",
                                         "unused",         "training_settings",
                                         "former_endings", "compared",
                                         "lost_settings",  "last_choice",
                                         "classification", "token_classification",
                                         "token_head"};
const std::vector<std::string> kKeyRules = {"setting", "harmless", "only",
                                            "dropout", "window",   "layer_types"};

class FamilyReader : FamilyWords {
 public:
  FamilyReader(HfFamily& family, Report& report) : FamilyWords(report), family_(family) {}

  void read(const Node& root, const std::function<const HfFamily*(const std::string&)>& base) {
    if (!root.is_map()) return fault(root.loc(), "the file is not a map");
    const bool common = family_.plugin.empty();  // keys of all families
    allow(root, common ? std::vector<std::string>{"keys"} : kWords);
    if (!inherit(root, base)) return;  // every reference to an entry of the other would fail
    if (!common) read_head(root);
    each(root, "settings", [&](const auto& e) {
      if (e.value.is_null())
        std::erase_if(family_.settings,
                      [&](const auto& setting) { return setting.first == e.key; });
      else
        put(family_.settings, e.key, scalar(e.value));
    });
    each(root, "zeros", [&](const auto& e) { put(family_.zeros, e.key, expression(e.value)); });
    each(root, "objects", [&](const auto& e) { read_object(e); });
    each(root, "keys", [&](const auto& e) { read_key(e); });
    each(root, "indices", [&](const auto& e) { family_.indices[e.key] = text(e.value); });
    each(root, "blocks", [&](const auto& e) { read_blocks(e); });
    if (const Node* list = root.get("training_settings"))
      for (std::string& path : texts(*list)) family_.training_settings.push_back(std::move(path));
    each(root, "lost_settings",
         [&](const auto& e) { put(family_.lost_settings, e.key, text(e.value)); });
    each(root, "tensors", [&](const auto& e) { read_tensor(e); });
    each(root, "copies", [&](const auto& e) { read_copy(e); });
    each(root, "unused", [&](const auto& e) { put(family_.unused, e.key, text(e.value)); });
    each(root, "former_endings",
         [&](const auto& e) { put(family_.former_endings, e.key, text(e.value)); });
    check_references();
  }

 private:
  bool inherit(const Node& root, const std::function<const HfFamily*(const std::string&)>& base) {
    const Node* like = root.get("like");
    if (!like) return true;
    const std::string name = text(*like), plugin = family_.plugin;
    const HfFamily* other = base && !name.empty() ? base(name) : nullptr;
    if (!other) {
      fault(like->loc(),
            cat("there is no usable family ", printable(name, 60), " of the model plugin ", plugin),
            "`like` names another file of this folder, without .yaml; files may not name "
            "each other in a circle");
      return false;
    }
    const fs::path file = family_.file;
    family_ = *other;
    family_.file = file;
    family_.architectures.clear();
    family_.classification.clear();
    family_.token_classification.clear(), family_.token_head.clear();
    family_.needs.clear();
    family_.compared.clear();
    family_.last_choice = false;
    return true;
  }

  void read_head(const Node& root) {
    const std::string stem = family_.file.stem().string();
    family_.model_type = stem;
    const Node* type = root.get("model_type");
    if (!type)
      fault(root.loc(), "model_type is missing", cat("model_type: ", stem));
    else if (text(*type) != stem)
      fault(type->loc(),
            cat("model_type is ", printable(type->as_text(), 60), ", but the file is called ",
                family_.file.filename().string()),
            "a file has the name of its model_type");
    if (const Node* names = root.get("architectures"))
      family_.architectures = texts(*names);
    else
      fault(root.loc(), "architectures is missing", "architectures: [NameForCausalLM]");
    if (const Node* scores = root.get("classification")) family_.classification = text(*scores);
    if (const Node* tokens = root.get("token_classification"))
      family_.token_classification = text(*tokens);
    family_.token_head = "score";
    if (const Node* head = root.get("token_head")) {
      family_.token_head = text(*head);
      if (family_.token_head != "score" && family_.token_head != "classifier")
        fault(head->loc(), cat("token_head is ", printable(family_.token_head, 60)),
              "heads of transformers are score and classifier");
    }
    if (const Node* needs = root.get("needs")) family_.needs = text(*needs);
    if (const Node* compared = root.get("compared")) family_.compared = text(*compared);
    if (const Node* last = root.get("last_choice")) family_.last_choice = flag(*last);
    if (family_.needs.empty() && !root.get("keys") && !root.get("like"))
      fault(root.loc(), "needs one of `keys`, `like` or `needs`",
            "a family has keys and tensors, or "
            "says in `needs` which part is not implemented");
  }

  std::optional<std::pair<std::string, Node>> condition(const Node& node) {
    if (node.is_map() && node.size() == 1)
      return std::pair{node.entries()[0].key, scalar(node.entries()[0].value)};
    fault(node.loc(), "wanted one setting and its value, {rope.scaling: llama3}");
    return std::nullopt;
  }
  /// A setting, and a value or a list of values.
  std::optional<std::pair<std::string, std::vector<Node>>> alternatives(const Node& node) {
    if (!node.is_map() || node.size() != 1 || !node.entries()[0].value.is_list()) {
      auto one = condition(node);
      return one ? std::optional(std::pair{one->first, std::vector{one->second}}) : std::nullopt;
    }
    return std::pair{node.entries()[0].key, node.entries()[0].value.items()};
  }
  HfConditions conditions(const Node& node) {
    HfConditions out;
    if (!node.is_map())
      fault(node.loc(), "wanted settings and their values, {tie_embeddings: true}");
    for (const auto& entry : node.entries()) out.emplace_back(entry.key, scalar(entry.value));
    return out;
  }

  void read_object(const Node::Entry& entry) {
    HfObject object{.name = entry.key, .read = {}, .write = {}, .unless = {}};
    allow(entry.value, {"read", "write", "unless"});
    if (const Node* read = entry.value.get("read")) object.read = texts(*read);
    if (object.read.empty())
      return fault(entry.key_where, cat(entry.key, " has no names to read"),
                   "read: [rope_scaling]");
    object.write = object.read[0];
    if (const Node* write = entry.value.get("write")) object.write = text(*write);
    if (const Node* unless = entry.value.get("unless")) object.unless = condition(*unless);
    if (object.unless && object.write.find('.') != std::string::npos)
      fault(entry.key_where, cat(entry.key, ": `unless` is for objects at the top"));
    std::erase_if(family_.objects, [&](const HfObject& o) { return o.name == object.name; });
    family_.objects.push_back(std::move(object));
  }

  void read_key(const Node::Entry& entry) {
    std::erase_if(family_.keys, [&](const HfKey& key) { return key.name == entry.key; });
    if (entry.value.is_null())
      return;  // not a key of this family, other than of the one it is like
    if (!entry.value.is_map())
      return fault(entry.value.loc(), cat(entry.key, " is not a map"),
                   cat(entry.key, ": {setting: PATH}, {harmless: REASON}, or another of: ",
                       join(kKeyRules, ", ")));
    HfKey key{.name = entry.key, .where = entry.key_where};
    std::string rule;
    for (const auto& part : entry.value.entries())
      if (std::find(kKeyRules.begin(), kKeyRules.end(), part.key) != kKeyRules.end()) {
        if (!rule.empty())
          fault(part.key_where, cat(entry.key, " has two rules, ", rule, " and ", part.key));
        rule = part.key;
      }
    if (rule.empty())
      fault(entry.key_where, cat(entry.key, " has no rule"),
            cat("one of: ", join(kKeyRules, ", ")));
    read_rule(key, rule, entry.value);
    for (const auto& part : entry.value.entries())
      if (part.key != rule) read_option(key, rule, part);
    if (key.zero_omitted && key.omitted)
      fault(entry.key_where,
            cat(entry.key,
                ": `zero: omitted` contradicts the default, which readers "
                "take if the key is left out"),
            "remove `zero`: the number that `zeros` gives is written");
    if (key.rule == HfKeyRule::only && key.reason.empty())
      fault(entry.key_where, cat(entry.key, ": the rule `only` needs a reason"),
            "because: what the plugin computes");
    family_.keys.push_back(std::move(key));
  }

  void read_rule(HfKey& key, const std::string& rule, const Node& options) {
    const Node* given = options.get(rule);
    if (!given) return;
    key.rule = rule == "setting"       ? HfKeyRule::setting
               : rule == "only"        ? HfKeyRule::only
               : rule == "dropout"     ? HfKeyRule::dropout
               : rule == "window"      ? HfKeyRule::window
               : rule == "layer_types" ? HfKeyRule::layer_types
                                       : HfKeyRule::harmless;
    if (rule == "harmless") {
      key.reason = text(*given);
    } else if (rule == "only") {
      if (!given->is_list() || given->size() == 0)
        return fault(given->loc(), "wanted a list of the accepted values, as in `only: [false]`");
      key.accepted = given->items();
    } else {
      const std::string name = text(*given);
      if (rule == "dropout" && name.starts_with('='))
        key.same_as = name.substr(1);
      else
        key.setting = name;
    }
  }

  void read_option(HfKey& key, const std::string& rule, const Node::Entry& option) {
    const std::string& word = option.key;
    const Node& value = option.value;
    const bool setting = rule != "harmless" && rule != "only";
    if (rule == "setting" && read_form_option(key, word, value)) return;
    if (word == "also")
      key.also = texts(value);
    else if (word == "default")
      key.omitted = value_of(value);
    else if (word == "if_null")
      key.null = value_of(value);
    else if (word == "or" && rule == "only")
      key.accepted_too = value_of(value);
    else if (word == "because" && rule == "only")
      key.reason = text(value);
    else if (word == "training" && rule == "setting")
      key.training = flag(value);
    else if (word == "required" && rule == "setting")
      key.required = alternatives(value);
    else if (word == "blocks" && (rule == "window" || rule == "layer_types"))
      key.blocks = text(value);
    else if (rule == "layer_types" && word == "interval")
      key.interval = text(value);
    else if ((rule == "layer_types" || rule == "setting") && word == "exported_interval")
      key.exported_interval = text(value);
    else if (rule == "layer_types" && word == "positions")
      key.positions = text(value);
    else if (rule == "layer_types" && word == "positions_without")
      key.positions_without = text(value);
    else if (word == "if" && rule == "window")
      key.enabled_by = text(value);
    else if (word == "from" && rule == "window")
      key.from_block = text(value);
    else if (word == "with")
      key.with = condition(value);
    else if (word == "omit" && setting)
      key.omit = scalar(value);
    else if (word == "zero" && setting)
      read_zero(key, value);
    else if (word == "zero_setting" && setting)
      key.zero_setting = text(value);
    else if (word == "write" && (!setting || value.as_text() == "omitted"))
      read_write(key, value);
    else if (word == "keep" && rule == "harmless")
      key.keep = flag(value);
    else if (word == "write_setting" && rule == "harmless")
      key.write_setting = text(value);
    else
      fault(option.key_where,
            cat("there is no '", printable(word, 60), "' for a key with the rule ",
                rule.empty() ? "of none" : rule),
            "docs/hugging-face.md lists the words of each rule");
  }

  /// How the setting's value is written in config.json. False: the word is another option.
  bool read_form_option(HfKey& key, const std::string& word, const Node& value) {
    if (word == "values")
      read_values(key, value);
    else if (word == "plus" && value.is(NodeKind::integer))
      key.plus = value.as_int();
    else if (word == "as")
      read_form(key, value);
    else if (word == "times")
      key.times = expression(value);
    else if (word == "whole")
      key.whole = flag(value);
    else if (word == "leading" && value.size() == 2)
      key.leading = texts(value);
    else if (word == "closed")
      key.closed = flag(value);
    else if (word == "each_block")
      key.each_block = scalar(value);
    else
      return false;
    return true;
  }

  void read_values(HfKey& key, const Node& map) {
    if (!map.is_map())
      return fault(map.loc(),
                   "wanted a map from values of config.json to values of the setting, as in "
                   "{default: none}");
    for (const auto& entry : map.entries()) {
      const Node theirs = Node::plain(entry.key);
      const bool several = entry.value.is_list() && entry.value.size() > 0;
      for (const Node& ours : several ? entry.value.items() : std::vector{entry.value})
        key.values.emplace_back(theirs, scalar(ours));
    }
  }
  void read_form(HfKey& key, const Node& value) {
    const std::string word = text(value);
    key.form = word == "inverse"        ? HfForm::inverse
               : word == "inverse_root" ? HfForm::inverse_root
                                        : HfForm::same;
    if (key.form == HfForm::same) fault(value.loc(), "wanted inverse or inverse_root");
  }
  void read_zero(HfKey& key, const Node& value) {
    key.zero_null = value.is_null();
    if (key.zero_null) return;
    const std::string word = text(value);
    key.zero_omitted = word == "omitted";
    key.zero_refused = word == "refused";
    if (word.starts_with('=')) key.zero_key = word.substr(1);
    if (!key.zero_omitted && !key.zero_refused && key.zero_key.empty())
      fault(value.loc(), "wanted omitted, null, refused or =KEY", "zero: =num_attention_heads");
  }
  void read_write(HfKey& key, const Node& value) {
    if (value.is(NodeKind::string) && value.as_text() == "omitted")
      key.write_nothing = true;
    else
      key.write = scalar(value);
  }

  void read_blocks(const Node::Entry& entry) {
    HfBlocks blocks{.name = entry.key, .from = {}, .every = {}};
    allow(entry.value, {"from", "every"});
    if (const Node* from = entry.value.get("from")) blocks.from = text(*from);
    if (const Node* every = entry.value.get("every")) blocks.every = text(*every);
    if (blocks.every.empty())
      return fault(entry.key_where, cat("blocks ", entry.key, " lacks `every`"),
                   "every: the setting that says which blocks");
    std::erase_if(family_.blocks, [&](const HfBlocks& b) { return b.name == blocks.name; });
    family_.blocks.push_back(std::move(blocks));
  }

  void read_tensor(const Node::Entry& entry) {
    std::erase_if(family_.tensors, [&](const auto& rule) { return rule.tensor == entry.key; });
    if (entry.value.is_null()) return;
    HfTensorRule rule{
        .tensor = entry.key, .parameters = {}, .when = {}, .blocks = {}, .where = entry.key_where};
    if (entry.value.is_scalar()) {
      rule.parameters = {text(entry.value)};
    } else {
      allow(entry.value,
            {"parameter", "parameters", "part", "transpose", "interleave", "stacked", "rows",
             "when", "blocks", "buffer", "vector", "matrix", "groups", "flat"});
      for (const auto& option : entry.value.entries()) read_tensor_option(rule, option);
    }
    check_tensor(rule);
    family_.tensors.push_back(std::move(rule));
  }

  void read_tensor_option(HfTensorRule& rule, const Node::Entry& option) {
    using Part = HfTensorRule::Part;
    const std::string& word = option.key;
    const Node& value = option.value;
    if (word == "parameter") rule.parameters = {text(value)};
    if (word == "parameters") rule.parameters = texts(value);
    if (word == "transpose") rule.transpose = flag(value);
    if (word == "interleave") rule.interleave = flag(value);
    if (word == "stacked") rule.stacked = flag(value);
    if (word == "flat") rule.flat = flag(value);
    if (word == "vector") rule.vector = flag(value);
    if (word == "matrix") rule.matrix = flag(value);
    if (word == "buffer") rule.buffer = flag(value);
    if (word == "when") rule.when = conditions(value);
    if (word == "rows") {
      rule.vocabulary = text(value) == "vocabulary";
      if (!rule.vocabulary) fault(value.loc(), "the only value of `rows` is vocabulary");
    }
    if (word == "blocks") {
      std::string name = text(value);
      rule.not_in_blocks = name.starts_with("not ");
      rule.blocks = rule.not_in_blocks ? name.substr(4) : name;
    }
    if (word == "groups") {
      if (value.is(NodeKind::integer) && value.as_int() > 0)
        rule.groups = value.as_int();
      else
        fault(value.loc(), "wanted the number of groups of heads, groups: 4");
    }
    if (word != "part") return;
    const std::string part = text(value);
    rule.keys_last = part == "queries, values, keys";
    rule.part = part == "queries"                                   ? Part::queries
                : part == "keys"                                    ? Part::keys
                : part == "values"                                  ? Part::values
                : part == "queries, keys, values" || rule.keys_last ? Part::all
                                                                    : Part::whole;
    if (rule.part == Part::whole)
      fault(value.loc(), cat("there is no part '", printable(part, 60), "'"),
            "queries, keys, values, or \"queries, keys, values\" or \"queries, values, keys\" for "
            "all of them in one tensor");
  }

  static std::set<std::string> letters(const std::string& pattern) {
    std::set<std::string> out;
    for (size_t at = pattern.find('{'); at != std::string::npos; at = pattern.find('{', at + 1)) {
      const size_t end = pattern.find('}', at);
      if (end != std::string::npos) out.insert(pattern.substr(at + 1, end - at - 1));
    }
    return out;
  }

  void check_tensor(const HfTensorRule& rule) {
    if (rule.parameters.empty() || rule.parameters[0].empty())
      return fault(rule.where, cat(rule.tensor, " names no parameter"), "TENSOR: PARAMETER");
    const auto theirs = letters(rule.tensor);
    for (const std::string& parameter : rule.parameters) {
      for (const std::string& letter : letters(parameter))
        if (!theirs.contains(letter))
          fault(rule.where, cat(parameter, " has {", letter, "}, and ", rule.tensor, " does not"));
    }
    size_t own = 0;  // letters that split the rows of a parameter
    for (const std::string& letter : theirs) own += !letters(rule.parameters[0]).contains(letter);
    if (own > 1)
      fault(rule.where, cat(rule.tensor, " has two letters in braces that ", rule.parameters[0],
                            " lacks; only one may split a parameter's rows"));
    if (rule.interleave && rule.parameters.size() < 2)
      fault(rule.where, cat(rule.tensor, ": interleave needs several parameters"));
    if (rule.groups > 1 && rule.part != HfTensorRule::Part::all)
      fault(rule.where, cat(rule.tensor, ": groups are of a tensor with all parts"));
    if (rule.part != HfTensorRule::Part::whole &&
        (rule.parameters.size() != 1 || own > 0 || rule.stacked))
      fault(rule.where, cat(rule.tensor, ": a part is of one parameter"));
  }

  void read_copy(const Node::Entry& entry) {
    std::erase_if(family_.copies, [&](const HfCopy& copy) { return copy.tensor == entry.key; });
    if (entry.value.is_null()) return;
    HfCopy copy{.tensor = entry.key, .of = {}, .when = {}};
    allow(entry.value, {"of", "when"});
    if (const Node* of = entry.value.get("of")) copy.of = text(*of);
    if (const Node* when = entry.value.get("when")) copy.when = conditions(*when);
    if (std::none_of(family_.tensors.begin(), family_.tensors.end(),
                     [&](const HfTensorRule& rule) { return rule.tensor == copy.of; }))
      return fault(entry.key_where, cat(entry.key, " is a copy of ", printable(copy.of, 80),
                                        ", which is not among the tensors"));
    family_.copies.push_back(std::move(copy));
  }

  /// Names that refer to other entries of the file.
  void check_references() {
    auto is_key = [&](const std::string& name) { return name.empty() || family_.key(name); };
    for (const HfKey& key : family_.keys) {
      for (const auto* value : {&key.omitted, &key.null, &key.accepted_too})
        for (const std::string& name : {*value ? (*value)->key : "", *value ? (*value)->over : ""})
          if (!is_key(name))
            fault(key.where, cat(key.name, " has the value of ", name, ", which is no key"));
      for (const std::string& name : {key.zero_key, key.same_as, key.enabled_by, key.from_block,
                                      key.positions_without, key.with ? key.with->first : ""})
        if (!is_key(name))
          fault(key.where, cat(key.name, " refers to ", name, ", which is no key"));
      for (const std::string& other : key.also)
        if (const HfKey* owner = family_.key(other); owner != &key)
          fault(key.where, cat(other, " is another name of both ", key.name, " and ", owner->name));
      if (const HfKey* owner = family_.key(key.name); owner != &key)
        fault(key.where, cat(key.name, " is another name of both ", owner->name, " and itself"));
    }
    for (const HfTensorRule& rule : family_.tensors) {
      for (const std::string& letter : letters(rule.tensor))
        if (letter != "i" && !family_.indices.contains(letter))
          fault(rule.where,
                cat(rule.tensor, ": `indices` does not give the number of {", letter, "}"),
                cat("indices: {", letter, ": SETTING}"));
      const bool known = rule.blocks.empty() ||
                         std::any_of(family_.blocks.begin(), family_.blocks.end(),
                                     [&](const HfBlocks& b) { return b.name == rule.blocks; });
      if (!known) fault(rule.where, cat(rule.tensor, ": there are no blocks ", rule.blocks));
    }
  }

  HfFamily& family_;
};

}  // namespace

std::optional<HfFamily> read_hf_family(
    const fs::path& file, const std::string& plugin, Report& report,
    const std::function<const HfFamily*(const std::string&)>& base) {
  HfFamily family;
  family.plugin = plugin;
  family.file = file;
  Report own;
  if (const auto root = load_yaml_file(file, own)) FamilyReader(family, own).read(*root, base);
  const bool good = own.ok();
  report.add(std::move(own));
  return good ? std::optional(std::move(family)) : std::nullopt;
}

}  // namespace mtrain
