#include "mtrain/recipe/hf_write_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/recipe/hf_implied.h"
#include "mtrain/recipe/hf_json.h"

namespace mtrain {
namespace {

using namespace hf;

const char* torch_name(DType dtype) {
  return dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
}

std::string dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

bool is_built(const Schema& schema, const std::string& path) {
  const FieldSpec* field = field_of(path, {&schema});
  return field && field->needs.empty();
}

/// A setting's value by its type: 10000 of a number is 10000.0.
Json setting_json(const HfModel& model, const std::string& path) {
  const FieldSpec* field = field_of(path, {&model.plugin()});
  Node value = model.value(path);
  if (value.is_list() && value.size() == 1) value = Node(value.items()[0]);
  const bool number =
      field && (field->type == FieldType::number || field->type == FieldType::number_list);
  if (number && value.is_scalar() && !value.is_null()) return value.as_double();
  return to_json(value);
}

Json parse_source(const std::string& text) {
  return text.empty() ? Json::object() : parse(text, "config.json");
}

class Writer {
 public:
  Writer(const HfFamily& family, const HfModel& model, const HfConfigFacts& facts)
      : family_(family), model_(model), facts_(facts), source_(parse_source(facts.source)) {
    if (!source_.is_object() || source_.value("model_type", "") != family.model_type)
      source_ = Json::object();
  }

  std::string text(const std::vector<HfKey>& common) {
    for (const HfKey& key : common)
      if (!family_.key(key.name)) add_harmless(key, false);
    for (const HfKey& key : family_.keys) add(key);
    out_["model_type"] = family_.model_type;
    out_["architectures"] = source_.contains("architectures")
                                ? source_["architectures"]
                                : Json::array({family_.architectures.at(0)});
    out_["torch_dtype"] = torch_name(facts_.dtype);
    // Dynamic scaling compares a sequence with max_position_embeddings.
    if (brief(model_.value("rope.scaling")) == "dynamic")
      out_["max_position_embeddings"] = setting_json(model_, "rope.original_max_positions");
    for (const HfObject& object : family_.objects) {
      const bool left_out = object.unless && brief(model_.value(object.unless->first)) ==
                                                 brief(object.unless->second);
      if (left_out) out_.erase(object.write);
    }
    return dump(out_);
  }

 private:
  /// Puts a value at a key, which may be in an object.
  void put(const std::string& name, Json value) {
    for (const HfObject& object : family_.objects)
      if (name.starts_with(object.name + ".")) {
        out_[object.write][name.substr(object.name.size() + 1)] = std::move(value);
        return;
      }
    out_[name] = std::move(value);
  }

  void add(const HfKey& key) {
    if (key.write_nothing) return;
    if (key.required && !is_one_of(model_.value(key.required->first), key.required->second)) return;
    switch (key.rule) {
      case HfKeyRule::setting:
        if (auto value = value_of(key)) put(key.name, std::move(*value));
        break;
      case HfKeyRule::only:
        put(key.name, to_json(key.write ? *key.write : key.accepted[0]));
        break;
      case HfKeyRule::dropout:
        put(key.name, dropout(key));
        break;
      case HfKeyRule::window:
        add_window(key);
        break;
      case HfKeyRule::layer_types:
        add_layer_types(key);
        break;
      case HfKeyRule::harmless:
        add_harmless(key, true);
        break;
    }
  }

  void add_harmless(const HfKey& key, bool own) {
    if (key.keep && source_.contains(key.name))
      out_[key.name] = source_[key.name];
    else if (key.keep && key.name.ends_with("_token_id"))
      out_[key.name] = special_id(key.name);
    else if (key.write)
      put(key.name, to_json(*key.write));
    else if (own && !key.write_setting.empty())
      put(key.name, setting_json(model_, key.write_setting));
  }

  /// Null if there is none: the config class has ids of another vocabulary as defaults.
  Json special_id(const std::string& key) const {
    const std::optional<int32_t> id = key == "bos_token_id"   ? facts_.bos
                                      : key == "eos_token_id" ? facts_.eos
                                      : key == "pad_token_id" ? facts_.pad
                                                              : std::nullopt;
    return id && *id < facts_.vocab_size ? Json(*id) : Json(nullptr);
  }

  /// The value of a key; nothing: it is left out.
  std::optional<Json> value_of(const HfKey& key) const {
    std::optional<Json> json = without_plus(key);
    if (key.plus != 0 && json && json->is_number_integer()) *json = json->get<int64_t>() + key.plus;
    return json;
  }

  std::optional<Json> without_plus(const HfKey& key) const {
    if (key.setting == "vocab_size") return facts_.vocab_size;
    const Node value = model_.value(key.setting);
    for (const auto& [theirs, ours] : key.values)
      if (brief(ours) == brief(value)) return to_json(theirs);
    if (key.each_block) return each_block(value, *key.each_block);
    Json json = setting_json(model_, key.setting);
    if (key.training && json.is_array()) {  // a coefficient of each method; transformers has one
      double sum = 0;
      for (const Json& part : json) sum += part.get<double>();
      json = sum;
    }
    if (key.omit && json == to_json(*key.omit)) return std::nullopt;
    return json == 0 ? of_zero(key, std::move(json)) : json;
  }

  /// What is written for a setting that is 0, or 0.0.
  std::optional<Json> of_zero(const HfKey& key, Json zero) const {
    if (key.zero_omitted) return std::nullopt;
    if (key.zero_null) return Json(nullptr);
    if (!key.zero_setting.empty()) return setting_json(model_, key.zero_setting);
    if (!key.zero_key.empty())
      if (const HfKey* other = family_.key(key.zero_key); other && other != &key)
        return value_of(*other);
    const Node number = hf_meaning_of_zero(
        family_, key.setting, [&](const std::string& path) { return model_.value(path); });
    return number.is_null() ? zero : to_json(number);
  }

  /// A pattern of blocks as a list of all blocks.
  Json each_block(const Node& pattern, const Node& otherwise) const {
    Json out = Json::array();
    const bool list = pattern.is_list() && pattern.size() > 0;
    for (size_t i = 0; i < static_cast<size_t>(model_.number("layers")); ++i)
      out.push_back(to_json(list ? pattern.items()[i % pattern.size()] : otherwise));
    return out;
  }

  Json dropout(const HfKey& key) const {
    if (const HfKey* other = key.same_as.empty() ? nullptr : family_.key(key.same_as))
      if (auto value = value_of(*other)) return *value;
    if (is_built(model_.plugin(), key.setting)) return setting_json(model_, key.setting);
    return source_.contains(key.name) ? source_[key.name] : Json(0.0);
  }

  static bool is_one_of(const Node& value, const std::vector<Node>& values) {
    return std::any_of(values.begin(), values.end(),
                       [&](const Node& other) { return brief(other) == brief(value); });
  }

  /// A window that the model does not compute was accepted since no sequence is longer.
  void add_window(const HfKey& key) {
    const bool built = is_built(model_.plugin(), key.setting);
    Json value = built ? setting_json(model_, key.setting) : Json();
    const bool disabled = !key.enabled_by.empty() && value == 0;
    if (!key.enabled_by.empty()) put(key.enabled_by, !disabled);
    if ((!built || disabled) && source_.contains(key.name)) value = source_[key.name];
    if (value == 0) value = nullptr;
    if (!value.is_null() || !key.omit) out_[key.name] = std::move(value);
  }

  /// The list of the folder of origin, or, where a setting says which blocks have the window, what
  /// the settings are.
  void add_layer_types(const HfKey& key) {
    if (key.blocks.empty()) {
      if (source_.contains(key.name)) out_[key.name] = source_[key.name];
      return;
    }
    const bool window = model_.number(key.setting) > 0;
    const Json blocks = setting_json(model_, key.blocks);
    Json types = Json::array();
    for (int64_t i = 0; i < model_.number("layers"); ++i) {
      const bool own = blocks.is_array() && static_cast<size_t>(i) < blocks.size()
                           ? blocks[static_cast<size_t>(i)] != 0
                           : blocks != 0;
      types.push_back(window && own ? "sliding_attention" : "full_attention");
    }
    out_[key.name] = std::move(types);
  }

  const HfFamily& family_;
  const HfModel& model_;
  const HfConfigFacts& facts_;
  Json source_, out_ = Json::object();
};

/// Whether a key of the family writes the setting.
bool is_written(const HfFamily& family, const std::string& path) {
  return std::any_of(family.keys.begin(), family.keys.end(), [&](const HfKey& key) {
    // A list of the kinds of attention says which blocks have a window, not how wide it is.
    const bool value = key.setting == path && key.rule != HfKeyRule::layer_types;
    return !key.write_nothing && (value || key.blocks == path);
  });
}

/// In words, the values that a key of the family can have, if `value` is none of them; else empty.
std::string values_without(const HfFamily& family, const std::string& path,
                           const std::string& value) {
  for (const HfKey& key : family.keys) {
    if (key.setting != path || key.rule != HfKeyRule::setting || key.write_nothing) continue;
    if (value == "null" && key.omitted && !key.null && !key.omit && key.values.empty())
      return "a number";
    if (key.values.empty()) continue;
    std::vector<std::string> known;
    bool flags = true;
    for (const auto& [theirs, ours] : key.values) {
      flags = flags && theirs.is(NodeKind::boolean);
      known.push_back(brief(ours));
    }
    if ((flags || key.closed) && std::find(known.begin(), known.end(), value) == known.end())
      return join(known, " or ");
  }
  return "";
}

}  // namespace

std::vector<std::string> hf_unexpressed(const HfFamily& family, const HfModel& model) {
  std::vector<std::string> out;
  for (const FieldSpec& spec : model.plugin().fields) {
    const std::string value = brief(model.value(spec.path));
    if (const std::string known = values_without(family, spec.path, value); !known.empty())
      out.push_back(
          cat("model.", spec.path, "=", value, ": ", family.model_type, " has ", known, " only"));
    const auto fixed = std::find_if(family.settings.begin(), family.settings.end(),
                                    [&](const auto& s) { return s.first == spec.path; });
    if (fixed != family.settings.end()) {
      if (value != brief(fixed->second))
        out.push_back(cat("model.", spec.path, "=", value, ": ", family.model_type, " has ",
                          brief(fixed->second)));
      continue;
    }
    if (is_written(family, spec.path) || is_training_setting(family, spec)) continue;
    if (value != spec.default_value && value != brief(default_value(spec, "")))
      out.push_back(cat("model.", spec.path, "=", value, ": ", family.model_type,
                        " has no key for it, and its models compute with ", spec.default_value));
  }
  return out;
}

std::vector<std::string> hf_lost(const HfFamily& family, const HfModel& model) {
  std::vector<std::string> out;
  for (const auto& [path, reason] : family.lost_settings) {
    const FieldSpec* spec = field_of(path, {&model.plugin()});
    const std::string value = brief(model.value(path));
    if (spec && value != spec->default_value && value != brief(default_value(*spec, "")))
      out.push_back(cat("model.", path, "=", value, ": ", reason));
  }
  return out;
}

std::string hf_config_text(const HfFamilies& families, const HfFamily& family, const HfModel& model,
                           const HfConfigFacts& facts) {
  return Writer(family, model, facts).text(families.common());
}

std::string hf_generation_text(const std::string& config_json) {
  const Json config = parse_source(config_json);
  Json out = {{"_from_model_config", true}};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (config.is_object() && config.contains(key)) out[key] = config[key];
  return dump(out);
}

std::string hf_config_with_dtype(const std::string& config_json, const std::string& file_name,
                                 DType dtype) {
  Json config = parse(config_json, file_name);
  const bool newer = config.contains("dtype");
  config.erase("quantization_config");  // the tensors are written in this type
  config[newer ? "dtype" : "torch_dtype"] = torch_name(dtype);
  if (newer && config.contains("torch_dtype")) config["torch_dtype"] = torch_name(dtype);
  return dump(config);
}

const HfFamily& hf_family_for_export(const HfFamilies& families, const std::string& wanted,
                                     const std::string& source, const HfModel& model) {
  const std::string& plugin = model.plugin().name;
  std::string type = wanted;
  if (type.empty()) {
    const Json config = parse_source(source);
    if (config.is_object() && config.contains("model_type") && config["model_type"].is_string())
      type = config["model_type"].get<std::string>();
  }
  std::vector<const HfFamily*> candidates = families.of_plugin(plugin);
  std::vector<std::string> lacking;
  std::erase_if(candidates, [&](const HfFamily* family) {
    const std::string part = lacking_part(*family, &model.plugin());
    if (!part.empty()) lacking.push_back(cat(family->model_type, ": not built: ", part));
    return !part.empty();
  });
  std::vector<std::string> names;
  for (const HfFamily* family : candidates) names.push_back(family->model_type);
  const auto named = std::find(names.begin(), names.end(), type);
  MT_USER_CHECK(!candidates.empty(), ErrorClass::config,
                cat("the model plugin ", plugin, " has no family of Hugging Face models",
                    lacking.empty() ? "" : " that is built:\n  ", join(lacking, "\n  ")),
                cat("write model_", plugin, ".families/MODEL_TYPE.yaml next to the plugin"));
  MT_USER_CHECK(wanted.empty() || named != names.end(), ErrorClass::config,
                cat("the model plugin ", plugin, " has no family ", printable(wanted, 60)),
                cat("it has: ", join(names, ", "), "; `mtrain families` lists all"));
  if (named != names.end()) candidates = {candidates[static_cast<size_t>(named - names.begin())]};
  std::vector<std::string> reasons;
  const HfFamily* nearest_family = nullptr;
  for (const HfFamily* family : candidates) {
    std::vector<std::string> lines = hf_unexpressed(*family, model);
    if (lines.empty()) return *family;
    if (!nearest_family || lines.size() < reasons.size())
      nearest_family = family, reasons = std::move(lines);
  }
  throw Error(ErrorClass::config,
              cat("the family ", nearest_family->model_type, " cannot express this model:\n  ",
                  join(reasons, "\n  ")),
              cat("families of this plugin: ", join(names, ", "),
                  "; a setting that only training uses belongs to training_settings of the "
                  "family's file"));
}

}  // namespace mtrain
