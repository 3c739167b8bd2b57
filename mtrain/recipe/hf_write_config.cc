#include "mtrain/recipe/hf_write_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/nn/score_head.h"
#include "mtrain/recipe/hf_effect.h"
#include "mtrain/recipe/hf_implied.h"
#include "mtrain/recipe/hf_json.h"
#include "mtrain/recipe/hf_labels.h"
#include "mtrain/recipe/hf_length.h"
#include "mtrain/recipe/hf_windows.h"

namespace mtrain {
namespace {
using namespace hf;
constexpr const char* kPadding = "pad_token_id";
constexpr double kLargestWhole = 9007199254740992;  // of those that double has all of

const char* torch_name(DType dtype) {
  return dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
}

bool is_setting_built(const Schema& schema, const std::string& path) {
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

/// The number of config.json from which the setting follows.
double theirs_of(const HfKey& key, const HfModel& model, double setting) {
  const auto factor = hf_factor(key, [&](const std::string& path) { return model.value(path); });
  return hf_theirs(key, setting, factor.value_or(1));
}

/// Whether config.json does not have the setting's number itself.
bool is_derived(const HfKey& key) {
  return key.form != HfForm::same || key.whole || !key.times.empty();
}

/// Which blocks have a window.
std::vector<bool> blocks_with_window(const HfKey& layer_types, const HfModel& model) {
  const Json blocks = setting_json(model, layer_types.blocks);
  const std::string& interval =
      layer_types.interval.empty() ? layer_types.exported_interval : layer_types.interval;
  const int64_t n = interval.empty() ? 0 : model.number(interval);
  std::vector<bool> out;
  for (int64_t i = 0; i < model.number("layers"); ++i) {
    const auto at = static_cast<size_t>(i);
    const bool all = blocks.is_array() ? n == 0 || (i + 1) % n != 0 : blocks != 0;
    const bool own = blocks.is_array() && at < blocks.size() ? blocks[at] != 0 : all;
    out.push_back(own && model.number(layer_types.setting) > 0);
  }
  return out;
}

/// A pattern of blocks as a list of all blocks; `otherwise` for each if it is empty.
Json each_block(const HfModel& model, const Node& pattern, const Node& otherwise) {
  Json out = Json::array();
  const bool list = pattern.is_list() && pattern.size() > 0;
  for (size_t i = 0; i < static_cast<size_t>(model.number("layers")); ++i)
    out.push_back(to_json(list ? pattern.items()[i % pattern.size()] : otherwise));
  return out;
}

/// Which blocks have rotary positions: 1 and 0.
Json positions_of(const HfKey& layer_types, const HfModel& model) {
  return each_block(model, model.value(layer_types.positions), Node::integer(1));
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
    out_["architectures"] = model_.token_scores() ? Json::array({family_.token_classification})
                            : model_.scores()     ? Json::array({family_.classification})
                            : source_.contains("architectures")
                                ? source_["architectures"]
                                : Json::array({family_.architectures.at(0)});
    if (model_.scores())
      write_labels(out_, source_, static_cast<size_t>(model_.number(kLabelsSetting)),
                   facts_.labels);
    out_["torch_dtype"] = torch_name(facts_.dtype);
    // Dynamic scaling compares a sequence with max_position_embeddings.
    if (brief(model_.value("rope.scaling")) == "dynamic")
      out_["max_position_embeddings"] = setting_json(model_, "rope.original_max_positions");
    for (const HfObject& object : family_.objects) {
      const bool left_out = object.unless && brief(model_.value(object.unless->first)) ==
                                                 brief(object.unless->second);
      if (left_out) out_.erase(object.write);
    }
    return config_text(out_);
  }

 private:
  /// An object, which may be within another one.
  Json& place_of(const HfObject& object) {
    Json* place = &out_;
    for (const std::string& name : split(object.write, '.')) place = &(*place)[name];
    return *place;
  }

  /// Puts a value at a key, which may be in an object.
  void put(const std::string& name, Json value) {
    for (const HfObject& object : family_.objects)
      if (name.starts_with(object.name + ".")) {
        place_of(object)[name.substr(object.name.size() + 1)] = std::move(value);
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
    const bool id = key.name.ends_with("_token_id");
    if (key.keep && source_.contains(key.name) && !lacks_padding(key) &&
        !(id && is_beyond(source_[key.name], facts_.vocab_size)))
      out_[key.name] = hf_kept_value(key, source_[key.name], facts_.trained_length, model_);
    else if (key.keep && id)
      out_[key.name] = special_id(key.name);
    else if (key.write)
      put(key.name, to_json(*key.write));
    else if (own && !key.write_setting.empty())
      put(key.name, setting_json(model_, key.write_setting));
  }

  /// transformers finds the last token of a sequence, whose scores count, by the padding: null says
  /// as little as no key.
  bool lacks_padding(const HfKey& key) const {
    return key.name == kPadding && model_.scores() && source_[key.name].is_null();
  }

  /// Null if there is none: the config class has ids of another vocabulary as defaults.
  Json special_id(const std::string& key) const {
    const std::optional<int32_t> id = key == "bos_token_id"   ? facts_.bos
                                      : key == "eos_token_id" ? facts_.eos
                                      : key == kPadding       ? facts_.pad
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
    if (key.setting == "decoder_start_token" && facts_.decoder_start) return *facts_.decoder_start;
    const Node value = model_.value(key.setting);
    for (const Node& one : {hf_meaning(model_, key.setting), value})
      for (const auto& [theirs, ours] : key.values)
        if (!one.is_null() && brief(ours) == brief(one)) return to_json(theirs);
    if (key.each_block) return each_block(model_, blocks_of(key, value), *key.each_block);
    Json json = setting_json(model_, key.setting);
    if (!key.leading.empty()) return leading_list(key, json.get<int64_t>());
    if (is_derived(key) && json.is_number()) {
      const double theirs = theirs_of(key, model_, json.get<double>());
      return key.whole ? Json(static_cast<int64_t>(theirs)) : Json(theirs);
    }
    if (key.training && json.is_array()) {  // a coefficient of each method; transformers has one
      double sum = 0;
      for (const Json& part : json) sum += part.get<double>();
      json = sum;
    }
    if (key.omit && json == to_json(*key.omit)) return std::nullopt;
    const bool none = json.is_null() && !key.zero_key.empty();
    return none || json == 0 ? of_zero(key, std::move(json)) : json;
  }

  /// The first word for the first `count` blocks, then the second.
  Json leading_list(const HfKey& key, int64_t count) const {
    Json out = Json::array();
    for (int64_t i = 0; i < model_.number("layers"); ++i)
      out.push_back(key.leading[i < count ? 0 : 1]);
    return out;
  }

  /// A pattern of blocks, or that of the interval if it is empty.
  Node blocks_of(const HfKey& key, const Node& pattern) const {
    const bool given = pattern.is_list() && pattern.size() > 0;
    const int64_t n = key.exported_interval.empty() ? 0 : model_.number(key.exported_interval);
    if (given || n <= 0) return pattern;
    Node out = Node::list();
    for (int64_t i = 1; i <= n; ++i) out.push(Node::integer(i < n ? 1 : 0));
    return out;
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

  Json dropout(const HfKey& key) const {
    if (const HfKey* other = key.same_as.empty() ? nullptr : family_.key(key.same_as))
      if (auto value = value_of(*other)) return *value;
    if (is_setting_built(model_.plugin(), key.setting)) return setting_json(model_, key.setting);
    return source_.contains(key.name) ? source_[key.name] : Json(0.0);
  }

  static bool is_one_of(const Node& value, const std::vector<Node>& values) {
    return std::any_of(values.begin(), values.end(),
                       [&](const Node& other) { return brief(other) == brief(value); });
  }

  /// A window that the model does not compute was accepted since no sequence is longer.
  void add_window(const HfKey& key) {
    const bool built = is_setting_built(model_.plugin(), key.setting);
    Json value = built ? setting_json(model_, key.setting) : Json();
    const bool disabled = !key.enabled_by.empty() && value == 0;
    if (!key.enabled_by.empty()) put(key.enabled_by, !disabled);
    if ((!built || disabled) && source_.contains(key.name)) value = source_[key.name];
    if (value == 0) value = no_window(key);
    if (!value.is_null() || !key.omit) out_[key.name] = std::move(value);
  }

  /// What the width is where no block has a window: null, unless a null means rotary positions in
  /// all blocks and there are none.
  Json no_window(const HfKey& key) const {
    for (const HfKey& types : family_.keys)
      if (types.positions_without == key.name && key.omitted &&
          positions_of(types, model_).dump().find('1') == std::string::npos)
        return to_json(key.omitted->value);
    return nullptr;
  }

  /// The list of the folder of origin, or, where a setting says which blocks have the window, what
  /// the settings are.
  void add_layer_types(const HfKey& key) {
    if (key.blocks.empty()) {
      if (source_.contains(key.name)) out_[key.name] = source_[key.name];
      return;
    }
    Json types = Json::array();
    for (const bool window : blocks_with_window(key, model_))
      types.push_back(window ? "sliding_attention" : "full_attention");
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
    return !key.write_nothing && (value || key.blocks == path || key.interval == path ||
                                  key.positions == path || key.exported_interval == path);
  });
}

/// In words, the values that a key of the family can have, if `value` is none of them; else empty.
std::string values_without(const HfFamily& family, const std::string& path,
                           const std::string& value) {
  for (const HfKey& key : family.keys) {
    if (key.setting != path || key.rule != HfKeyRule::setting || key.write_nothing) continue;
    if (value == "null" && key.omitted && !key.null && !key.omit && key.values.empty() &&
        key.zero_key.empty())
      return "a number";
    if (key.values.empty()) continue;
    std::vector<std::string> known;
    bool flags = true;
    for (const auto& [theirs, ours] : key.values) {
      flags = flags && theirs.is(NodeKind::boolean);
      if (std::find(known.begin(), known.end(), brief(ours)) == known.end())
        known.push_back(brief(ours));
    }
    if ((flags || key.closed) && std::find(known.begin(), known.end(), value) == known.end())
      return join(known, " or ");
  }
  return "";
}

/// In words, what a number must be for the key of the family to express it; else empty.
std::string number_without(const HfFamily& family, const std::string& path, const HfModel& model) {
  for (const HfKey& key : family.keys) {
    if (key.setting != path || key.rule != HfKeyRule::setting || key.write_nothing) continue;
    const Json value = setting_json(model, path);
    if (key.zero_refused && value == 0) return "a number other than 0";
    if (!value.is_number() || !is_derived(key)) continue;
    const double theirs = theirs_of(key, model, value.get<double>());
    if (!std::isfinite(theirs)) return cat("numbers with an inverse as ", key.name);
    if (!key.whole) continue;
    if (theirs != std::floor(theirs)) return cat("whole numbers as ", key.name);
    if (std::fabs(theirs) > kLargestWhole) return cat("whole numbers up to 2^53 as ", key.name);
  }
  return "";
}

/// The fault if not the blocks with a window, and only these, have rotary positions, although the
/// family's models do; else empty.
std::string positions_without(const HfFamily& family, const std::string& path,
                              const HfModel& model) {
  for (const HfKey& key : family.keys) {
    if (key.positions.empty() || key.positions != path) continue;
    std::vector<bool> windows = blocks_with_window(key, model);
    const Json positions = positions_of(key, model);
    if (positions == ones_of(windows)) continue;
    windows.assign(windows.size(), true);
    if (!key.positions_without.empty() && model.number(key.setting) == 0 &&
        positions == ones_of(windows))
      continue;
    return "rotary positions in the blocks with a window";
  }
  return "";
}

}  // namespace

std::vector<std::string> hf_unexpressed(const HfFamily& family, const HfModel& model) {
  std::vector<std::string> out;
  if (std::string fault = unexpressed_scores(family, model); !fault.empty())
    out.push_back(std::move(fault));
  for (const FieldSpec& spec : model.plugin().fields) {
    if (spec.path == kLabelsSetting || spec.path == kLabelsOfSetting) continue;
    const std::string value = brief(model.value(spec.path));
    for (const std::string& known :
         {values_without(family, spec.path, value), number_without(family, spec.path, model),
          positions_without(family, spec.path, model)})
      if (!known.empty())
        out.push_back(
            cat("model.", spec.path, "=", value, ": ", family.model_type, " has ", known, " only"));
    // Of a key that is written, import must accept the value, whether it has an effect or not.
    if (!hf_has_effect(model, spec.path)) continue;
    const auto fixed = std::find_if(family.settings.begin(), family.settings.end(),
                                    [&](const auto& s) { return s.first == spec.path; });
    if (fixed != family.settings.end()) {
      if (!hf_means(model, spec.path, fixed->second))
        out.push_back(cat("model.", spec.path, "=", value, ": ", family.model_type, " has ",
                          brief(fixed->second)));
      continue;
    }
    if (is_written(family, spec.path) || is_training_setting(family, spec)) continue;
    if (!hf_means_default(model, spec))
      out.push_back(cat("model.", spec.path, "=", value, ": ", family.model_type,
                        " has no key for it, and its models compute with ", spec.default_value));
  }
  return out;
}

std::string hf_config_text(const HfFamilies& families, const HfFamily& family, const HfModel& model,
                           const HfConfigFacts& facts) {
  return Writer(family, model, facts).text(families.common());
}

std::string hf_config_with_dtype(const std::string& config_json, const std::string& file_name,
                                 DType dtype) {
  Json config = parse(config_json, file_name);
  const bool newer = config.contains("dtype");
  config.erase("quantization_config");  // the tensors are written in this type
  config[newer ? "dtype" : "torch_dtype"] = torch_name(dtype);
  if (newer && config.contains("torch_dtype")) config["torch_dtype"] = torch_name(dtype);
  return config_text(config);
}

std::string hf_config_with_padding(const std::string& config_json, const std::string& file_name,
                                   std::optional<int32_t> pad) {
  Json config = parse(config_json, file_name);
  if (!pad || !config.value(kPadding, Json()).is_null()) return config_json;
  config[kPadding] = *pad;
  return config_text(config);
}

std::string hf_config_with_labels(const std::string& config_json, const std::string& file_name,
                                  const std::vector<std::string>& names) {
  Json config = parse(config_json, file_name);
  const Json labels = config.value("id2label", Json());
  if (names.empty() || !labels.is_object() || labels.size() != names.size()) return config_json;
  config.erase("label2id"), config.erase("id2label");
  write_labels(config, Json::object(), names.size(), names);
  return config_text(config);
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
    if (!part.empty()) lacking.push_back(cat(family->model_type, ": not implemented: ", part));
    return !part.empty();
  });
  std::stable_partition(candidates.begin(), candidates.end(),
                        [](const HfFamily* family) { return !family->last_choice; });
  std::vector<std::string> names;
  for (const HfFamily* family : candidates) names.push_back(family->model_type);
  const auto named = std::find(names.begin(), names.end(), type);
  MT_USER_CHECK(!candidates.empty(), ErrorClass::config,
                cat("the model plugin ", plugin, " has no family of Hugging Face models",
                    lacking.empty() ? "" : " that is implemented:\n  ", join(lacking, "\n  ")),
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
  const std::string& nearest = nearest_family->model_type;
  const bool choice = candidates.size() == 1 && names.size() > 1;
  throw Error(ErrorClass::config,
              cat(candidates.size() > 1
                      ? cat("no family can express this model; the nearest is ", nearest, ":\n  ")
                      : cat("the family ", nearest, " cannot express this model:\n  "),
                  join(reasons, "\n  ")),
              cat("only settings that one family has can be exported; ",
                  choice ? "`mtrain export --family` takes another one of the model plugin "
                         : "families of the model plugin ",
                  plugin, ": ", join(names, ", ")));
}

}  // namespace mtrain
