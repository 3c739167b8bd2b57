#include "mtrain/recipe/hf_config.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/not_built.h"
#include "mtrain/config/value.h"
#include "mtrain/recipe/hf_families.h"

namespace mtrain {
namespace {

using Json = nlohmann::json;

Json parse(const std::string& config_json, const std::string& file_name) {
  Json config;
  try {
    config = Json::parse(config_json);
  } catch (const Json::exception& e) {
    throw Error(ErrorClass::checkpoint, cat(file_name, ": ", e.what()),
                "the file is damaged: fetch it again");
  }
  MT_USER_CHECK(config.is_object(), ErrorClass::checkpoint, cat(file_name, " is not a JSON object"),
                "");
  return config;
}

Node to_node(const Json& value) {
  if (value.is_boolean()) return Node::boolean(value.get<bool>());
  if (value.is_number_integer()) return Node::integer(value.get<int64_t>());
  if (value.is_number()) return Node::number(value.get<double>());
  return Node::string(value.get<std::string>());
}

/// Converts a value; a single value for a list setting becomes a list of one item.
Node to_node(const Json& value, FieldType type) {
  if (type != FieldType::number_list && type != FieldType::integer_list &&
      type != FieldType::string_list)
    return to_node(value);
  Node out = Node::list();
  out.push(to_node(value));
  return out;
}

struct Key {
  std::string path;  // the path in config.json: "rope_scaling.factor"
  Json value;
  bool omitted = false;  // not in config.json: the value is the config class's default
};

/// The keys of config.json that are not null, by the names under which settings look them up.
struct FlatKeys {
  std::map<std::string, Key> keys;
  std::map<std::string, std::string> names;  // by path: also of keys that another one replaces
  std::set<std::string> dropped;  // paths of keys that are not used, since they are ignored
  std::vector<std::pair<Key, Key>> clashes;  // keys for the same setting with different values
};

/// config.json nests rotary settings as rope_scaling (version 4) or rope_parameters (version 5);
/// both become "rope.<key>". If the two differ, a key in `ignored` is not used.
FlatKeys flatten(const Json& config, const std::vector<std::string>& ignored) {
  FlatKeys flat;
  auto add = [&](const std::string& name, Key key) {
    flat.names.emplace(key.path, name);
    auto [there, added] = flat.keys.emplace(name, key);
    if (added || there->second.value == key.value) return;
    auto is_ignored = [&](const Key& k) {
      return std::find(ignored.begin(), ignored.end(), k.path) != ignored.end();
    };
    if (is_ignored(key)) {
      flat.dropped.insert(key.path);
    } else if (is_ignored(there->second)) {
      flat.dropped.insert(there->second.path);
      there->second = std::move(key);
    } else {
      flat.clashes.emplace_back(there->second, std::move(key));
    }
  };
  for (const auto& [key, value] : config.items()) {
    if (value.is_null()) continue;
    if ((key != "rope_scaling" && key != "rope_parameters") || !value.is_object()) {
      add(key, {key, value});
      continue;
    }
    for (const auto& [inner, nested] : value.items()) {
      if (nested.is_null()) continue;
      const std::string path = cat(key, ".", inner);
      if (inner == "rope_theta")
        add(inner, {path, nested});
      else if (inner == "rope_type" || inner == "type")
        add("rope.scaling", {path, nested});
      else
        add("rope." +
                (inner == "original_max_position_embeddings" ? "original_max_positions" : inner),
            {path, nested});
    }
  }
  return flat;
}

/// The setting that a key of config.json stands for; null: none.
const FieldSpec* field_of(const std::string& key, const std::vector<const Schema*>& schemas) {
  for (const auto* schema : schemas)
    for (const auto& field : schema->fields)
      if (field.path == key || std::find(field.renamed_from.begin(), field.renamed_from.end(),
                                         key) != field.renamed_from.end())
        return &field;
  return nullptr;
}

std::string shown(const Json& value) {
  return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace), 80);
}

std::string text_of(const Json& config, const char* key) {
  auto found = config.find(key);
  return found != config.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string architecture_of(const Json& config) {
  auto found = config.find("architectures");
  const bool named =
      found != config.end() && found->is_array() && !found->empty() && found->front().is_string();
  return named ? found->front().get<std::string>() : "";
}

/// The name of the folder's model, for messages.
std::string kind_of(const Json& config) {
  const std::string architecture = architecture_of(config);
  return printable(architecture.empty() ? text_of(config, "model_type") : architecture, 80);
}

/// The fault if model_type and architectures name different families; otherwise "".
std::string family_conflict(const Json& config) {
  const std::string type = text_of(config, "model_type"), architecture = architecture_of(config);
  const HfFamily* named =
      architecture.empty() || type.empty() ? nullptr : find_hf_family("", architecture);
  if (!named || named->model_type == type) return "";
  return cat("model_type ", printable(type, 80), " and architectures ", architecture,
             " disagree: ", architecture, " belongs to model_type ",
             std::string(named->model_type));
}

constexpr const char* kCorrectOne =
    "in config.json, correct the one that does not describe the weights";

std::string readable_architectures() {
  std::vector<std::string> all;
  for (const auto& family : hf_families())
    if (!family.plugin.empty())
      all.insert(all.end(), family.architectures.begin(), family.architectures.end());
  return join(all, ", ");
}

class Reader {
 public:
  Reader(const Json& config, const HfTarget& target)
      : config_(config),
        target_(target),
        flat_(flatten(config, target.ignored)),
        effective_(flat_.dropped) {}

  HfFolderConfig read() {
    if (refuse_family()) return std::move(out_);
    for (const auto& [one, other] : flat_.clashes) refuse_clash(one, other);
    for (const auto& [name, key] : flat_.keys) take(name, key);
    require_llama3_keys();
    // The defaults do not apply to the folder of another family, which init_ignore=[architectures]
    // admits.
    if (family_ && !foreign_)
      for (const auto& def : family_->defaults)
        if (!flat_.keys.contains(std::string(def.name))) take_default(def);
    check_ignored();
    return std::move(out_);
  }

 private:
  /// Whether to ignore a key that would otherwise be refused or have an effect.
  bool ignored(const std::string& key) {
    const bool listed =
        std::find(target_.ignored.begin(), target_.ignored.end(), key) != target_.ignored.end();
    if (listed) effective_.insert(key);
    return listed;
  }

  bool in_config(const std::string& key) const {
    const size_t dot = key.find('.');
    if (config_.contains(key) || dot == std::string::npos) return config_.contains(key);
    auto outer = config_.find(key.substr(0, dot));
    return outer != config_.end() && outer->is_object() && outer->contains(key.substr(dot + 1));
  }

  /// Refuses keys in `ignored` that are used all the same, and notes those that do not exist.
  void check_ignored() {
    for (const std::string& key : target_.ignored) {
      if (effective_.contains(key)) continue;
      const auto name = flat_.names.find(key);
      const FieldSpec* field =
          name == flat_.names.end() ? nullptr : field_of(name->second, target_.schemas);
      if (field) {
        const HfKey* rule = find_hf_key(family_, name->second);
        const bool training = rule && rule->rule == HfKeyRule::training;
        out_.refused.push_back({key,
                                cat("model.init_ignore lists ", key,
                                    ", which mtrain understands: it gives model.", field->path),
                                cat("remove it from model.init_ignore; for another value, ",
                                    training ? cat("set model.", field->path)
                                             : "change config.json in a copy of the folder")});
      } else if (!in_config(key)) {
        out_.absent.push_back(key);
      } else if (config_.contains(key) && config_.at(key).is_object()) {
        out_.refused.push_back(
            {key,
             cat("model.init_ignore lists ", key,
                 ", which has several keys that are read one by one"),
             cat("list each key to ignore, such as ", key, ".",
                 config_.at(key).empty() ? "KEY" : config_.at(key).begin().key())});
      }
    }
  }

  void take(const std::string& name, const Key& key) {
    const HfKey* rule = find_hf_key(family_, name);
    const FieldSpec* field = field_of(name, target_.schemas);
    if (rule && rule->rule != HfKeyRule::training)
      apply(*rule, key);
    else if (field && key.value.is_primitive())
      set(*field, key, rule != nullptr);
    else if (!ignored(key.path))
      refuse(key, "the model plugin has no equivalent setting");
  }

  /// Takes the default of a key that config.json omits, unless it has another name of the same
  /// setting.
  void take_default(const HfDefault& def) {
    const std::string name(def.name);
    const FieldSpec* field = field_of(name, target_.schemas);
    if (field ? set_.contains(field->path) : !find_hf_key(family_, name)) return;
    const bool null = config_.contains(name) && config_.at(name).is_null();
    const Json value = default_value(null && !def.null.empty() ? def.null : def.value);
    if (!value.is_null())
      take(name, {name == "rope.scaling" ? "rope_parameters.rope_type" : name, value, true});
  }

  /// "=key" is the value of that key.
  Json default_value(std::string_view text) const {
    return text.starts_with('=') ? value_of(text.substr(1)) : Json::parse(text);
  }

  /// The value of a key in config.json, or its default; null if there is neither.
  Json value_of(std::string_view key) const {
    if (auto entry = flat_.keys.find(std::string(key)); entry != flat_.keys.end())
      return entry->second.value;
    if (family_ && !foreign_)
      for (const auto& def : family_->defaults)
        if (def.name == key) return default_value(def.value);
    return nullptr;
  }

  /// transformers refuses llama3 scaling without one of these; defaults would be a guess.
  void require_llama3_keys() {
    auto scaling = flat_.keys.find("rope.scaling");
    if (scaling == flat_.keys.end() || scaling->second.value != "llama3") return;
    const std::string section = scaling->second.path.substr(0, scaling->second.path.find('.'));
    for (const auto& [name, theirs] :
         {std::pair{"factor", "factor"},
          {"low_freq_factor", "low_freq_factor"},
          {"high_freq_factor", "high_freq_factor"},
          {"original_max_positions", "original_max_position_embeddings"}}) {
      const std::string path = cat(section, ".", theirs);
      if (flat_.keys.contains(cat("rope.", name)) || ignored(path)) continue;
      out_.refused.push_back({scaling->second.path,
                              cat(scaling->second.path, " is llama3, which needs ", path),
                              cat("add it to config.json; or accept the default of model.rope.",
                                  name, " by model.init_ignore=[", path, "]")});
    }
  }

  void refuse_clash(const Key& one, const Key& other) {
    out_.refused.push_back(
        {one.path,
         cat(one.path, " is ", shown(one.value), ", but ", other.path, " is ", shown(other.value)),
         cat("remove the wrong one from config.json, or ignore it by model.init_ignore=[", one.path,
             "] or model.init_ignore=[", other.path, "]")});
  }

  /// Refuses the folder of another family, whose keys have other meanings. Plugins that are not in
  /// the table accept any folder.
  bool refuse_family() {
    const std::string architecture = architecture_of(config_),
                      type = text_of(config_, "model_type");
    const std::vector<std::string> read =
        target_.plugin.empty() ? std::vector<std::string>() : hf_architectures(target_.plugin);
    family_ = find_hf_family(type, architecture);
    if (read.empty() || (architecture.empty() && type.empty()) ||
        (family_ && family_->plugin == target_.plugin))
      return false;
    if (ignored("architectures")) {
      family_ = find_hf_family("", read.front());
      foreign_ = true;
      return false;
    }
    if (const std::string conflict = family_conflict(config_); !conflict.empty()) {
      out_.refused.push_back({"architectures", conflict, kCorrectOne});
      return true;
    }
    HfRefusal refusal{.key = "architectures",
                      .what = cat("this folder is a ", kind_of(config_), "; the model plugin ",
                                  target_.plugin, " reads ", join(read, " and ")),
                      .fix = ""};
    if (family_ && !family_->plugin.empty())
      refusal.fix = cat("set model.type=", family_->plugin);
    else if (family_)
      refusal.fix = cat("no model plugin implements ", std::string(family_->lacks),
                        ": use a folder of ", readable_architectures());
    else
      refusal.fix = cat("use a folder of ", readable_architectures());
    out_.refused.push_back(std::move(refusal));
    return true;
  }

  /// Sets a setting. If two keys for it differ, the one in init_ignore is not used.
  void set(const FieldSpec& field, const Key& key, bool training) {
    Report none;
    const auto value = read_value(to_node(key.value, field.type), field, key.path, none);
    if (!training && value && needs_part(field, write_value(*value, field))) {
      if (!ignored(key.path))
        refuse(key, cat("it needs ", field.needs, ", which this build does not support"));
      return;
    }
    auto [there, added] = set_.emplace(field.path, key);
    if (!added && (there->second.value == key.value || ignored(key.path))) return;
    if (!added && !ignored(there->second.path)) return refuse_clash(there->second, key);
    there->second = key;
    const std::string path = cat("model.", field.path);
    std::erase_if(out_.settings, [&](const HfSetting& other) { return other.path == path; });
    const bool plain_rope = field.path == "rope.scaling" && key.value == "default";
    out_.settings.push_back({path, key.path,
                             plain_rope ? Node::string("none") : to_node(key.value, field.type),
                             training, key.omitted});
  }

  void refuse(const Key& key, const std::string& why, const std::string& instead = "") {
    const char* is =
        key.omitted ? " is not in config.json, and its default in transformers is " : " is ";
    out_.refused.push_back(
        {key.path, cat(key.path, is, shown(key.value), "; ", why),
         cat(instead, instead.empty() ? "" : ", or ", "ignore it by model.init_ignore=[", key.path,
             "]: the model then computes a different function than the original")});
  }

  void apply(const HfKey& rule, const Key& key) {
    if (ignored(key.path)) return;
    switch (rule.rule) {
      case HfKeyRule::only:
        if (!accepts(rule.accepted, key.value))
          refuse(key, cat("the model plugin ", target_.plugin, " computes ",
                          std::string(rule.reason), " only"));
        break;
      case HfKeyRule::dropout:
        note_dropout(rule, key);
        break;
      case HfKeyRule::window:
        check_window(key);
        break;
      case HfKeyRule::harmless:
      case HfKeyRule::training:
        break;
    }
  }

  static bool accepts(std::string_view accepted, const Json& value) {
    const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    while (true) {
      const size_t bar = accepted.find('|');
      if (accepted.substr(0, bar) == text) return true;
      if (bar == std::string_view::npos) return false;
      accepted.remove_prefix(bar + 1);
    }
  }

  void note_dropout(const HfKey& rule, const Key& key) {
    if (key.value == 0 || value_of(rule.accepted) == key.value) return;
    out_.dropouts.push_back(cat(key.path, " ", shown(key.value)));
  }

  /// The plugin computes full attention. A window in layer_types is accepted if no sequence is
  /// longer than it.
  void check_window(const Key& key) {
    if (key.path == "layer_types") {
      const bool known = key.value.is_array() &&
                         std::all_of(key.value.begin(), key.value.end(), [](const Json& type) {
                           return type == "full_attention" || type == "sliding_attention";
                         });
      if (!known) refuse(key, "the model plugin supports only attention to all earlier tokens");
      return;
    }
    auto types = config_.find("layer_types");
    const bool all_full = types != config_.end() && types->is_array() && !types->empty() &&
                          std::all_of(types->begin(), types->end(),
                                      [](const Json& type) { return type == "full_attention"; });
    if (all_full || key.value == false) return;
    if (key.value.is_number_integer() && key.value.get<int64_t>() >= target_.seq_length) return;
    const bool number = key.value.is_number_integer() && key.value.get<int64_t>() > 0;
    refuse(key,
           cat("the model plugin ", target_.plugin,
               " attends to all earlier tokens, and model.seq_length is ", target_.seq_length),
           number ? cat("set model.seq_length=", key.value.get<int64_t>(), " or less") : "");
  }

  const Json& config_;
  const HfTarget& target_;
  const FlatKeys flat_;
  const HfFamily* family_ = nullptr;
  std::set<std::string> effective_;  // keys of `ignored` that would otherwise have had an effect
  bool foreign_ = false;             // the folder belongs to another family than family_
  std::map<std::string, Key> set_;   // by path of the setting
  HfFolderConfig out_;
};

}  // namespace

HfFolderConfig read_hf_config(const std::string& config_json, const std::string& file_name,
                              const HfTarget& target) {
  const Json config = parse(config_json, file_name);
  return Reader(config, target).read();
}

std::string hf_model_plugin(const std::string& config_json, const std::string& file_name) {
  const Json config = parse(config_json, file_name);
  const HfFamily* family = find_hf_family(text_of(config, "model_type"), architecture_of(config));
  if (family && !family->plugin.empty()) return std::string(family->plugin);
  if (const std::string conflict = family_conflict(config); !conflict.empty())
    throw Error(ErrorClass::config, cat(file_name, ": ", conflict), kCorrectOne);
  const std::string kind = kind_of(config);
  throw Error(ErrorClass::config,
              kind.empty() ? cat(file_name, " has neither architectures nor model_type")
                           : cat(file_name, ": no model plugin reads a ", kind,
                                 family ? cat(": none computes ", std::string(family->lacks)) : ""),
              cat("use a folder of ", readable_architectures()));
}

std::vector<HfSetting> hf_settings(const std::string& config_json, const std::string& file_name,
                                   const std::vector<const Schema*>& schemas) {
  HfTarget any{.plugin = "", .schemas = schemas};
  return read_hf_config(config_json, file_name, any).settings;
}

}  // namespace mtrain
