#include "mtrain/train/hf_config.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/train/hf_families.h"

namespace mtrain {
namespace {

using Json = nlohmann::json;

Json parse(const std::string& config_json, const std::string& file_name) {
  Json config;
  try {
    config = Json::parse(config_json);
  } catch (const Json::exception& e) {
    throw Error(ErrorClass::checkpoint, cat(file_name, ": ", e.what()), "the file is damaged: fetch it again");
  }
  MT_USER_CHECK(config.is_object(), ErrorClass::checkpoint, cat(file_name, " holds no JSON object"), "");
  return config;
}

Node to_node(const Json& value) {
  if (value.is_boolean()) return Node::boolean(value.get<bool>());
  if (value.is_number_integer()) return Node::integer(value.get<int64_t>());
  if (value.is_number()) return Node::number(value.get<double>());
  return Node::string(value.get<std::string>());
}

/// One value where the setting is a list: a list of one.
Node to_node(const Json& value, FieldType type) {
  if (type != FieldType::number_list && type != FieldType::integer_list && type != FieldType::string_list) return to_node(value);
  Node out = Node::list();
  out.push(to_node(value));
  return out;
}

struct Key {
  std::string path;  // as config.json has it: "rope_scaling.factor"
  Json value;
};

/// All keys that are not null by the names that settings know them by. config.json nests rotary settings as rope_scaling
/// (version 4) or rope_parameters (version 5); both become "rope.<key>".
std::map<std::string, Key> flatten(const Json& config) {
  std::map<std::string, Key> flat;
  for (const auto& [key, value] : config.items()) {
    if (value.is_null()) continue;
    if ((key != "rope_scaling" && key != "rope_parameters") || !value.is_object()) {
      flat[key] = {key, value};
      continue;
    }
    for (const auto& [inner, nested] : value.items()) {
      if (nested.is_null()) continue;
      const Key entry{cat(key, ".", inner), nested};
      if (inner == "rope_theta")
        flat[inner] = entry;
      else if (inner == "rope_type" || inner == "type")
        flat["rope.scaling"] = {entry.path, nested == "default" ? Json("none") : nested};
      else
        flat["rope." + (inner == "original_max_position_embeddings" ? "original_max_positions" : inner)] = entry;
    }
  }
  return flat;
}

/// The setting that a key of config.json stands for; null: none.
const FieldSpec* field_of(const std::string& key, const std::vector<const Schema*>& schemas) {
  for (const auto* schema : schemas)
    for (const auto& field : schema->fields)
      if (field.path == key ||
          std::find(field.renamed_from.begin(), field.renamed_from.end(), key) != field.renamed_from.end())
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
  const bool named = found != config.end() && found->is_array() && !found->empty() && found->front().is_string();
  return named ? found->front().get<std::string>() : "";
}

/// What a person calls the model of the folder.
std::string kind_of(const Json& config) {
  const std::string architecture = architecture_of(config);
  return printable(architecture.empty() ? text_of(config, "model_type") : architecture, 80);
}

std::string readable_architectures() {
  std::vector<std::string> all;
  for (const auto& family : hf_families())
    if (!family.plugin.empty()) all.insert(all.end(), family.architectures.begin(), family.architectures.end());
  return join(all, ", ");
}

class Reader {
 public:
  Reader(const Json& config, const HfTarget& target) : config_(config), target_(target), flat_(flatten(config)) {}

  HfFolderConfig read() {
    if (refuse_family()) return std::move(out_);
    for (const auto& [name, key] : flat_) {
      const HfKey* rule = find_hf_key(family_, name);
      const FieldSpec* field = field_of(name, target_.schemas);
      if (rule && rule->rule != HfKeyRule::training)
        apply(*rule, key);
      else if (field && key.value.is_primitive())
        set(*field, name, key.value, rule != nullptr);
      else if (!ignored(key.path))
        refuse(key, "no setting of the model plugin stands for it");
    }
    return std::move(out_);
  }

 private:
  bool ignored(const std::string& key) const {
    return std::find(target_.ignored.begin(), target_.ignored.end(), key) != target_.ignored.end();
  }

  /// Another family's folder: its keys mean nothing here. Plugins of nobody's table take any.
  bool refuse_family() {
    const std::string architecture = architecture_of(config_), type = text_of(config_, "model_type");
    const std::vector<std::string> read = target_.plugin.empty() ? std::vector<std::string>() : hf_architectures(target_.plugin);
    family_ = find_hf_family(type, architecture);
    if (read.empty() || (architecture.empty() && type.empty()) || (family_ && family_->plugin == target_.plugin)) return false;
    if (ignored("architectures")) {
      family_ = find_hf_family("", read.front());
      return false;
    }
    HfRefusal refusal{.key = "architectures",
                      .what = cat("this folder is a ", kind_of(config_), "; the model plugin ", target_.plugin, " reads ",
                                  join(read, " and ")),
                      .fix = ""};
    if (family_ && !family_->plugin.empty())
      refusal.fix = cat("set model.type=", family_->plugin);
    else if (family_)
      refusal.fix = cat("no model plugin computes ", std::string(family_->lacks), ": take a folder of ", readable_architectures());
    else
      refusal.fix = cat("take a folder of ", readable_architectures());
    out_.refused.push_back(std::move(refusal));
    return true;
  }

  void set(const FieldSpec& field, const std::string& name, const Json& value, bool training) {
    if (!set_.insert(field.path).second) return;
    out_.settings.push_back({cat("model.", field.path), name, to_node(value, field.type), training});
  }

  void refuse(const Key& key, const std::string& why, const std::string& instead = "") {
    out_.refused.push_back({key.path, cat(key.path, " is ", shown(key.value), "; ", why),
                            cat(instead, instead.empty() ? "" : ", or ", "go on without it by model.init_ignore=[", key.path,
                                "]: the model then computes something else than where the folder comes from")});
  }

  void apply(const HfKey& rule, const Key& key) {
    if (ignored(key.path)) return;
    switch (rule.rule) {
      case HfKeyRule::only:
        if (!accepts(rule.accepted, key.value))
          refuse(key, cat("the model plugin ", target_.plugin, " computes ", std::string(rule.reason), " only"));
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
    auto covering = config_.find(std::string(rule.accepted));
    if (key.value == 0 || (covering != config_.end() && *covering == key.value)) return;
    out_.dropouts.push_back(cat(key.path, " ", shown(key.value)));
  }

  /// Of layer_types a full attention is what the plugin computes; a window is, too, where no sequence is longer.
  void check_window(const Key& key) {
    if (key.path == "layer_types") {
      const bool known = key.value.is_array() && std::all_of(key.value.begin(), key.value.end(), [](const Json& type) {
                           return type == "full_attention" || type == "sliding_attention";
                         });
      if (!known) refuse(key, "the model plugin's blocks are all of attention to all earlier tokens");
      return;
    }
    auto types = config_.find("layer_types");
    const bool all_full = types != config_.end() && types->is_array() && !types->empty() &&
                          std::all_of(types->begin(), types->end(), [](const Json& type) { return type == "full_attention"; });
    if (all_full || key.value == false) return;
    if (key.value.is_number_integer() && key.value.get<int64_t>() >= target_.seq_length) return;
    const bool number = key.value.is_number_integer() && key.value.get<int64_t>() > 0;
    refuse(key, cat("the model plugin ", target_.plugin, " lets a token see all before it, and model.seq_length is ",
                    target_.seq_length),
           number ? cat("set model.seq_length=", key.value.get<int64_t>(), " or less") : "");
  }

  const Json& config_;
  const HfTarget& target_;
  const std::map<std::string, Key> flat_;
  const HfFamily* family_ = nullptr;
  std::set<std::string> set_;
  HfFolderConfig out_;
};

}  // namespace

HfFolderConfig read_hf_config(const std::string& config_json, const std::string& file_name, const HfTarget& target) {
  const Json config = parse(config_json, file_name);
  return Reader(config, target).read();
}

std::string hf_model_plugin(const std::string& config_json, const std::string& file_name) {
  const Json config = parse(config_json, file_name);
  const HfFamily* family = find_hf_family(text_of(config, "model_type"), architecture_of(config));
  if (family && !family->plugin.empty()) return std::string(family->plugin);
  const std::string kind = kind_of(config);
  throw Error(ErrorClass::config,
              kind.empty() ? cat(file_name, " names neither architectures nor model_type")
                           : cat(file_name, ": no model plugin reads a ", kind,
                                 family ? cat(": none computes ", std::string(family->lacks)) : ""),
              cat("take a folder of ", readable_architectures()));
}

std::vector<HfSetting> hf_settings(const std::string& config_json, const std::string& file_name,
                                   const std::vector<const Schema*>& schemas) {
  HfTarget any{.plugin = "", .schemas = schemas};
  return read_hf_config(config_json, file_name, any).settings;
}

}  // namespace mtrain
