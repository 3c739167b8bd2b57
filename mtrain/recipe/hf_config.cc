#include "mtrain/recipe/hf_config.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "mtrain/base/text.h"
#include "mtrain/checkpoint/hf_weights.h"
#include "mtrain/config/not_built.h"
#include "mtrain/config/value.h"
#include "mtrain/recipe/hf_flat_keys.h"
#include "mtrain/recipe/hf_folder_family.h"
#include "mtrain/recipe/hf_implied.h"
#include "mtrain/recipe/hf_json.h"
#include "mtrain/recipe/hf_labels.h"
#include "mtrain/recipe/hf_length.h"
#include "mtrain/recipe/hf_windows.h"

namespace mtrain {
namespace {

using namespace hf;

constexpr int64_t kMostBlocks = 65536;  // a list is made for no more

class Reader {
 public:
  Reader(const Json& config, const HfTarget& target) : config_(config), target_(target) {}

  HfFolderConfig read() {
    if (refuse_family()) return std::move(out_);
    flat_ = flatten(config_, family_, target_.ignored);
    effective_.insert(flat_.dropped.begin(), flat_.dropped.end());
    for (const auto& [one, other] : flat_.clashes) refuse_clash(one, other);
    for (const bool multiples : {false, true}) take_all(multiples);
    if (family_ && !foreign_) {
      take_labels(config_, *family_, out_);
      for (const auto& [path, value] : family_->settings)
        out_.settings.push_back({cat("model.", path), "", value});
      if (target_.schemas.size() > 1)
        out_.implied =
            hf_implied(*family_, *target_.schemas.back(), out_.settings, target_.ignored);
    }
    require_keys();  // which keys are needed depends on the values of others, defaults included
    check_ignored();
    return std::move(out_);
  }

 private:
  /// Takes the keys, and the defaults of those that are omitted. `multiples`: those that are a
  /// setting times other settings, which must be known by then.
  void take_all(bool multiples) {
    for (const auto& [name, key] : flat_.keys) {
      const HfKey* rule = rule_of(name);
      if ((rule && !rule->times.empty()) != multiples) continue;
      name == "quantization_config" ? take_quantization(key) : take(name, key);
    }
    // Of the folder of another family, which init_ignore=[architectures] admits, nothing is known
    // but its keys.
    if (!family_ || foreign_) return;
    for (const HfKey& key : family_->keys)
      if (key.times.empty() != multiples && key.omitted && !flat_.keys.contains(key.name) &&
          is_needed(key))
        take_default(key);
  }

  /// Whether to ignore a key that would otherwise be refused or have an effect.
  bool ignored(const std::string& key) {
    const bool listed =
        std::find(target_.ignored.begin(), target_.ignored.end(), key) != target_.ignored.end();
    if (listed) effective_.insert(key);
    return listed;
  }

  /// A value of config.json by its path; null: absent.
  const Json* in_config(const std::string& key) const {
    if (const auto here = config_.find(key); here != config_.end()) return &*here;
    const Json* object = &config_;
    for (const std::string& name : split(key, '.')) {
      const auto inner = object->is_object() ? object->find(name) : object->end();
      if (inner == object->end()) return nullptr;
      object = &*inner;
    }
    return object;
  }

  /// Refuses keys in `ignored` that are used all the same, and notes those that do not exist.
  void check_ignored() {
    for (const std::string& key : target_.ignored) {
      if (effective_.contains(key)) continue;
      const auto name = flat_.names.find(key);
      const HfKey* rule = name == flat_.names.end() ? nullptr : rule_of(name->second);
      const FieldSpec* field = rule && rule->rule == HfKeyRule::setting
                                   ? field_of(rule->setting, target_.schemas)
                                   : nullptr;
      if (field) {
        const bool training = rule->training;
        out_.refused.push_back({key,
                                cat("model.init_ignore lists ", key,
                                    ", which mtrain understands: it gives model.", field->path),
                                cat("remove it from model.init_ignore; for another value, ",
                                    training ? cat("set model.", field->path)
                                             : "change config.json in a copy of the folder")});
      } else if (!in_config(key)) {
        if (!family_ || foreign_ || !names_setting(key)) out_.absent.push_back(key);
      } else if (const Json& object = *in_config(key); object.is_object()) {
        out_.refused.push_back({key,
                                cat("model.init_ignore lists ", key,
                                    ", which has several keys that are read one by one"),
                                cat("list each key to ignore, such as ", key, ".",
                                    object.empty() ? "KEY" : object.begin().key())});
      }
    }
  }

  /// Whether model.init_ignore lists a setting of the plugin, for which the recipe's value counts.
  /// One that the folder gives is refused.
  bool names_setting(const std::string& path) {
    if (!field_of(path, {target_.schemas.back()})) return false;
    for (const HfSetting& given : out_.settings)
      if (given.path == cat("model.", path))
        out_.refused.push_back(
            {given.theirs,
             cat("model.init_ignore lists the setting ", path, ", which the folder gives",
                 given.theirs.empty() ? "" : cat(" by ", given.theirs)),
             "remove it from model.init_ignore; for another value, change config.json in a copy of "
             "the folder"});
    return true;
  }

  const HfKey* rule_of(const std::string& name) const {
    return target_.families.key(family_, name);
  }

  /// The weights are dequantized when they are read (checkpoint/hf_weights.h).
  void take_quantization(const Key& key) {
    const HfQuantization read = read_hf_quantization(config_.dump());
    if (!read.fault.empty() && !ignored(key.path))
      out_.refused.push_back({key.path, read.fault, read.fix});
  }

  void take(const std::string& name, const Key& key) {
    const HfKey* rule = rule_of(name);
    const FieldSpec* field =
        rule && !rule->setting.empty() ? field_of(rule->setting, target_.schemas) : nullptr;
    if (rule && rule->with && value_of(rule->with->first) != to_json(rule->with->second)) return;
    if (rule && rule->rule != HfKeyRule::setting)
      apply(*rule, field, key);
    else if (field && !rule->leading.empty() && key.value().is_array())
      take_leading(*field, *rule, key);
    else if (field && is_impossible(*rule, key.value()))
      refuse_unless_ignored(key, "it must be a positive number");
    else if (field && fits(*field, key.value()))
      set(*field, *rule, key, rule->training);
    else
      refuse_unless_ignored(key, "the model plugin has no equivalent setting");
  }

  /// A list for the blocks: how many at the start have the first word.
  void take_leading(const FieldSpec& field, const HfKey& rule, const Key& key) {
    const Json& list = key.value();
    const auto is = [&](size_t word) {
      return [&, word](const Json& item) { return item == rule.leading[word]; };
    };
    const auto first = std::find_if_not(list.begin(), list.end(), is(0));
    if (std::ssize(list) != layers() || !std::all_of(first, list.end(), is(1)))
      return refuse_unless_ignored(key, cat("wanted ", rule.leading[0], " for the first of the ",
                                            layers(), " blocks, then ", rule.leading[1]));
    set(field, rule, {key.path, std::distance(list.begin(), first), key.omitted}, rule.training);
  }

  /// A value that no model has: one without an inverse, or a 0 that the setting has for itself.
  static bool is_impossible(const HfKey& rule, const Json& value) {
    if (rule.form != HfForm::same || !rule.times.empty())
      return !value.is_number() || value <= 0 || !std::isfinite(1 / value.get<double>());
    return rule.zero_refused && value.is_number() && value == 0;
  }

  /// The path at which messages show a key that config.json omits.
  std::string path_of(const std::string& name) const {
    for (const HfObject& object : family_->objects)
      if (name.starts_with(object.name + "."))
        return cat(object.read[0], name.substr(object.name.size()));
    return name;
  }

  /// Takes the default of a key that config.json omits, unless another key has set the setting.
  void take_default(const HfKey& key) {
    if (key.rule == HfKeyRule::setting && set_.contains(key.setting)) return;
    const Json value = default_of(key);
    if (!value.is_null()) take(key.name, {path_of(key.name), value, true});
  }

  /// What an omitted key or a null stands for; null: nothing.
  Json default_of(const HfKey& key) const {
    const bool null = key.null && config_.contains(key.name) && config_.at(key.name).is_null();
    return null ? default_value(*key.null) : key.omitted ? default_value(*key.omitted) : Json();
  }

  Json default_value(const HfValue& value) const {
    if (value.key.empty()) return to_json(value.value);
    Json of = value_of(value.key);
    if (of.is_number_integer()) of = of.get<int64_t>() * value.factor + value.plus;
    if (value.over.empty() || !of.is_number()) return of;
    const Json over = value_of(value.over);
    if (!over.is_number() || over == 0) return nullptr;
    return of.get<double>() / over.get<double>();
  }

  /// The value of a key in config.json, or its default; null if there is neither.
  Json value_of(const std::string& name) const {
    if (auto entry = flat_.keys.find(name); entry != flat_.keys.end()) return entry->second.value();
    const HfKey* key = family_ && !foreign_ ? family_->key(name) : nullptr;
    return key ? default_of(*key) : Json();
  }

  /// Whether the setting on which a key depends has one of the values for which it counts.
  bool is_needed(const HfKey& key) const {
    if (!key.required) return true;
    const Node is = setting(key.required->first);
    const auto& values = key.required->second;
    return std::any_of(values.begin(), values.end(),
                       [&](const Node& value) { return is.same_value(value); });
  }

  /// A setting that config.json has given; null: none.
  Node setting(const std::string& path) const {
    for (const HfSetting& given : out_.settings)
      if (given.path == cat("model.", path)) return given.value;
    return {};
  }

  /// Keys without a default that config.json must have where another one has a certain value.
  void require_keys() {
    if (!family_) return;
    for (const HfKey& key : family_->keys) {
      if (!key.required || key.omitted || flat_.keys.contains(key.name)) continue;
      const auto given = set_.find(key.required->first);
      if (given == set_.end() || !is_needed(key)) continue;
      const std::string& decides = given->second.path;
      const size_t dot = decides.rfind('.'), own = key.name.find('.');
      const std::string missing = dot == std::string::npos || own == std::string::npos
                                      ? key.name
                                      : cat(decides.substr(0, dot), key.name.substr(own));
      if (ignored(missing)) continue;
      const Json is = given->second.value();
      out_.refused.push_back(
          {decides,
           cat(decides, " is ", is.is_string() ? printable(is.get<std::string>(), 80) : shown(is),
               ", which needs ", missing),
           cat("add it to config.json; or accept the default of model.", key.setting,
               " by model.init_ignore=[", missing, "]")});
    }
  }

  void refuse_clash(const Key& one, const Key& other) {
    out_.refused.push_back(
        {one.path,
         cat(one.path, " is ", shown(one.value()), ", but ", other.path, " is ",
             shown(other.value())),
         cat("remove the wrong one from config.json, or ignore it by model.init_ignore=[", one.path,
             "] or model.init_ignore=[", other.path, "]")});
  }

  /// Refuses the folder of another family, whose keys have other meanings.
  bool refuse_family() {
    const std::string architecture = architecture_of(config_),
                      type = text_of(config_, "model_type");
    const auto schema_of = [&](std::string_view plugin) {
      return plugin == target_.plugin ? target_.schemas.back() : target_.schema_of(plugin);
    };
    const auto families = target_.families.of_plugin(target_.plugin);
    if (families.empty()) {
      if (target_.schemas.size() > 1)  // otherwise there is no such plugin, which is reported
        out_.refused.push_back(
            {"architectures",
             cat("the model plugin ", target_.plugin,
                 " has no file that says what such a folder means"),
             cat("write model_", target_.plugin,
                 ".families/MODEL_TYPE.yaml next to the plugin (docs/adding-a-model.md)")});
      return true;
    }
    family_ = target_.families.find(type, architecture);
    const std::string lacks = family_ ? lacking_part(*family_, schema_of(family_->plugin)) : "";
    if (family_ && family_->plugin == target_.plugin && lacks.empty()) return false;
    if ((architecture.empty() && type.empty()) || ignored("architectures")) {
      family_ = families.front();
      foreign_ = true;
      return false;
    }
    refuse_other_family(lacks, schema_of);
    return true;
  }

  void refuse_other_family(const std::string& lacks, const PluginSchema& schema_of) {
    if (const std::string conflict = family_conflict(config_, target_.families);
        !conflict.empty()) {
      out_.refused.push_back({"architectures", conflict, kCorrectOne});
      return;
    }
    const std::vector<std::string> read = readable(target_.families, target_.plugin, schema_of);
    HfRefusal refusal{
        .key = "architectures",
        .what = cat("this folder is a ", kind_of(config_), "; the model plugin ", target_.plugin,
                    " reads ", read.empty() ? "none" : join(read, " and ")),
        .fix = ""};
    const std::string all = join(readable(target_.families, "", schema_of), ", ");
    if (family_ && lacks.empty())
      refusal.fix = cat("set model.type=", family_->plugin);
    else if (family_)
      refusal.fix = cat("no model plugin implements ", lacks, ": use a folder of ", all);
    else
      refusal.fix = cat("use a folder of ", all);
    out_.refused.push_back(std::move(refusal));
  }

  bool is_built(const FieldSpec* field, const Json& value) const {
    if (!field || !value.is_primitive()) return false;
    Report none;
    const auto read = read_value(to_node(value, field->type), *field, field->path, none);
    return read && !needs_part(*field, write_value(*read, *field));
  }

  /// Sets a setting. If two keys for it differ, the one in init_ignore is not used.
  void set(const FieldSpec& field, const HfKey& rule, const Key& key, bool training) {
    if (rule.closed && !hf_in_table(rule, key.value()))
      return refuse(key, "models of this family have no such value");
    Report none;
    const auto factor = hf_factor(rule, [&](const std::string& path) { return setting(path); });
    const Node ours = hf_ours(rule, key.value(), field.type, factor);
    const auto value = read_value(ours, field, key.path, none);
    if (!training && value && needs_part(field, write_value(*value, field))) {
      refuse_unless_ignored(key,
                            cat("it needs ", field.needs, ", which mtrain does not implement yet"));
      return;
    }
    auto [there, added] = set_.emplace(field.path, key);
    if (!added && (there->second.value() == key.value() || ignored(key.path))) return;
    if (!added && !ignored(there->second.path)) return refuse_clash(there->second, key);
    there->second = key;
    const std::string path = cat("model.", field.path);
    std::erase_if(out_.settings, [&](const HfSetting& other) { return other.path == path; });
    out_.settings.push_back({path, key.path, ours, training, key.omitted});
    out_.settings.back().repeats = rule.each_block.has_value() || rule.positions == field.path;
  }

  void refuse_unless_ignored(const Key& key, const std::string& why) {
    if (!ignored(key.path)) refuse(key, why);
  }

  void refuse(const Key& key, const std::string& why, const std::string& instead = "") {
    const char* is =
        key.omitted ? " is not in config.json, and its default in transformers is " : " is ";
    out_.refused.push_back(
        {key.path, cat(key.path, is, shown(key.value()), "; ", why),
         cat(instead, instead.empty() ? "" : ", or ", "ignore it by model.init_ignore=[", key.path,
             "]: the model then computes a different function than the original")});
  }

  void apply(const HfKey& rule, const FieldSpec* field, const Key& key) {
    if (ignored(key.path)) return;
    switch (rule.rule) {
      case HfKeyRule::only:
        if (std::none_of(rule.accepted.begin(), rule.accepted.end(),
                         [&](const Node& value) { return to_json(value) == key.value(); }) &&
            !(rule.accepted_too && default_value(*rule.accepted_too) == key.value()))
          refuse(key, cat("the model plugin ", target_.plugin, " computes ", rule.reason, " only"));
        break;
      case HfKeyRule::dropout:
        if (is_built(field, key.value()))
          set(*field, rule, key, true);
        else if (!(key.value() == 0) && value_of(rule.same_as) != key.value())
          out_.dropouts.push_back(cat(key.path, " ", shown(key.value())));
        break;
      case HfKeyRule::window:
        take_window(rule, field, key);
        break;
      case HfKeyRule::layer_types:
        take_layer_types(rule, field, key);
        break;
      case HfKeyRule::harmless:
        if (hf_gives_length(rule) && key.value().is_number_integer())
          out_.length = key.value().get<int64_t>(), out_.length_key = key.path;
        break;
      case HfKeyRule::setting:
        break;
    }
  }

  bool layer_types_are(const char* kind) const {
    auto types = config_.find("layer_types");
    return types != config_.end() && types->is_array() && !types->empty() &&
           std::all_of(types->begin(), types->end(),
                       [&](const Json& type) { return type == kind; });
  }

  /// How many blocks the model has; 0: config.json does not say it.
  int64_t layers() const {
    const auto key = std::find_if(family_->keys.begin(), family_->keys.end(),
                                  [](const HfKey& other) { return other.setting == "layers"; });
    const Json count = key == family_->keys.end() ? Json() : value_of(key->name);
    return count.is_number_integer() ? std::min(count.get<int64_t>(), kMostBlocks) : 0;
  }

  void take_layer_types(const HfKey& rule, const FieldSpec* field, const Key& key) {
    const auto windows = windows_of(key.value(), key.omitted ? layers() : 0);
    if (!windows) return refuse(key, "kinds of attention are full_attention and sliding_attention");
    const auto with = std::count(windows->begin(), windows->end(), true);
    if (!rule.interval.empty() || !rule.positions.empty()) {
      if (std::ssize(*windows) != layers())
        return refuse(key, cat("the model has ", layers(), " blocks"));
      if (with > 0 && !has_window(rule.setting))
        return refuse(key, "no key says how wide a window is");
      if (with == 0 && key.omitted && layers() > 0 && has_window(rule.setting))
        return refuse(key, "a window is set, but the other keys give it to no block",
                      "add layer_types to config.json, or remove the width of the window");
      take_positions(rule, key, *windows);
    }
    const bool mixed = with > 0 && with < std::ssize(*windows);
    if (!is_built(field, 1) || !(mixed || (with > 0 && !rule.interval.empty()))) return;
    const FieldSpec* every = field_of(rule.interval, target_.schemas);
    const Json usual = rule.omitted ? default_value(*rule.omitted) : Json();
    if (const auto n = every ? interval_of(*windows, usual) : std::nullopt)
      return set(*every, rule, {key.path, *n, key.omitted}, false);
    if (!set_blocks(rule, key, ones_of(*windows)))
      refuse(key, "the model plugin has one window for all blocks");
  }

  /// Whether the key for the width of windows has a value.
  bool has_window(const std::string& setting) const {
    return std::any_of(family_->keys.begin(), family_->keys.end(), [&](const HfKey& key) {
      return key.rule == HfKeyRule::window && key.setting == setting &&
             !value_of(key.name).is_null();
    });
  }

  /// Blocks with a window have rotary positions, and others have none.
  void take_positions(const HfKey& rule, const Key& key, std::vector<bool> windows) {
    const FieldSpec* field = field_of(rule.positions, target_.schemas);
    if (!field) return;
    if (!rule.positions_without.empty() && value_of(rule.positions_without).is_null())
      windows.assign(windows.size(), true);
    set(*field, rule, {key.path, ones_of(windows), key.omitted}, false);
  }

  /// Sets which blocks have the window, if there is a setting for it.
  bool set_blocks(const HfKey& rule, const Key& key, Json blocks) {
    const FieldSpec* field = rule.blocks.empty() ? nullptr : field_of(rule.blocks, target_.schemas);
    if (field) set(*field, rule, {key.path, std::move(blocks), key.omitted}, false);
    return field != nullptr;
  }

  /// Where layer_types does not say it, a key says how many blocks at the start have no window.
  void take_first_block(const HfKey& rule) {
    if (rule.from_block.empty() || config_.contains("layer_types")) return;
    const Json from = value_of(rule.from_block);
    if (!from.is_number_integer() || from == 0) return;
    Json blocks = Json::array();
    for (int64_t i = 0; i < layers(); ++i) blocks.push_back(i >= from.get<int64_t>() ? 1 : 0);
    if (!blocks.empty()) set_blocks(rule, {rule.from_block, from}, std::move(blocks));
  }

  /// The window becomes the setting. Where it is not implemented, no sequence may be longer.
  void take_window(const HfKey& rule, const FieldSpec* field, const Key& key) {
    if (layer_types_are("full_attention") || key.value() == false) return;
    if (!rule.enabled_by.empty() && value_of(rule.enabled_by) != true) return;
    const bool number = key.value().is_number_integer() && key.value().get<int64_t>() > 0;
    if (number && is_built(field, key.value())) {
      set(*field, rule, key, false);
      return take_first_block(rule);
    }
    if (number && key.value().get<int64_t>() >= target_.seq_length) return;
    refuse(key,
           cat("the model plugin ", target_.plugin,
               " attends to all earlier tokens, and model.seq_length is ", target_.seq_length),
           number ? cat("set model.seq_length=", key.value().get<int64_t>(), " or less") : "");
  }

  const Json& config_;
  const HfTarget& target_;
  FlatKeys flat_;
  const HfFamily* family_ = nullptr;
  std::set<std::string> effective_;  // keys of `ignored` that would otherwise have had an effect
  bool foreign_ = false;             // the folder belongs to another family than family_, or names
                                     // none
  std::map<std::string, Key> set_;   // by path of the setting
  HfFolderConfig out_;
};

}  // namespace

HfFolderConfig read_hf_config(const std::string& config_json, const std::string& file_name,
                              const HfTarget& target) {
  const Json config = parse(config_json, file_name);
  return Reader(config, target).read();
}

}  // namespace mtrain
