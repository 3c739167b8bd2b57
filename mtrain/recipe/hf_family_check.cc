#include "mtrain/recipe/hf_family_check.h"

#include <algorithm>

#include "mtrain/base/text.h"
#include "mtrain/config/expression.h"
#include "mtrain/nn/score_head.h"
#include "mtrain/recipe/hf_json.h"

namespace mtrain {
namespace {

using namespace hf;

/// What a value must be; empty if it fits.
std::string wanted(const FieldSpec& spec, const Node& value) {
  if (value.is_list()) {
    for (const Node& item : value.items())
      if (std::string text = wanted(spec, item); !text.empty()) return text;
    return "";
  }
  if (value.is_null()) return spec.nullable ? "" : "a value, not null";
  if (!spec.choices.empty() &&
      std::find(spec.choices.begin(), spec.choices.end(), brief(value)) == spec.choices.end())
    return cat("one of ", join(spec.choices, ", "));
  switch (spec.type) {
    case FieldType::boolean:
      return value.is(NodeKind::boolean) ? "" : "true or false";
    case FieldType::integer:
      return value.is(NodeKind::integer) ? "" : "a whole number";
    case FieldType::number:
      return value.is(NodeKind::integer) || value.is(NodeKind::number) ? "" : "a number";
    default:
      return "";  // a list may be written as its only element
  }
}

/// The value in a condition: 0 of "not 0".
Node named_in(const Node& condition) {
  const bool negated = condition.is(NodeKind::string) && condition.as_text().starts_with("not ");
  return negated ? Node::plain(condition.as_text().substr(4)) : condition;
}

class Check {
 public:
  Check(const HfFamily& family, const Schema& plugin, const Schema* core)
      : family_(family), schemas_{&plugin} {
    if (core) schemas_.push_back(core);
  }

  Report run() {
    const Location file{std::make_shared<Source>(SourceKind::file, family_.file.string(), "")};
    for (const auto& [path, value] : family_.settings) setting(path, &value, file, "settings");
    if (!family_.classification.empty()) setting(kLabelsSetting, nullptr, file, "classification");
    if (!family_.token_classification.empty())
      setting(kLabelsOfSetting, nullptr, file, "token_classification");
    for (const auto& [path, expression] : family_.zeros) setting(path, nullptr, file, "zeros");
    for (const HfObject& object : family_.objects)
      if (object.unless)
        setting(object.unless->first, &object.unless->second, file, cat("objects.", object.name));
    for (const auto& [letter, path] : family_.indices) setting(path, nullptr, file, "indices");
    for (const HfBlocks& set : family_.blocks)
      for (const std::string& path : {set.from, set.every})
        setting(path, nullptr, file, cat("blocks.", set.name));
    for (const std::string& path : family_.training_settings)
      setting(path, nullptr, file, "training_settings");
    for (const auto& [path, reason] : family_.lost_settings)
      setting(path, nullptr, file, "lost_settings");
    for (const HfKey& key : family_.keys) check(key);
    for (const HfTensorRule& rule : family_.tensors)
      for (const auto& [path, value] : rule.when)
        condition(path, value, rule.where, cat("tensors.", rule.tensor));
    for (const HfCopy& copy : family_.copies)
      for (const auto& [path, value] : copy.when)
        condition(path, value, file, cat("copies.", copy.tensor));
    return std::move(report_);
  }

 private:
  /// `value`: null if any value is meant.
  void setting(const std::string& path, const Node* value, const Location& where,
               const std::string& use) {
    if (path.empty()) return;
    const FieldSpec* spec = field_of(path, schemas_);
    if (!spec) {
      report_.error("family-setting", use, where,
                    cat("the model plugin ", family_.plugin, " has no setting ", path));
      return;
    }
    if (!value) return;
    if (const std::string text = wanted(*spec, *value); !text.empty())
      report_.error("family-value", use, where,
                    cat("model.", path, " cannot be ", brief(*value), ": it is ", text));
  }

  void condition(const std::string& path, const Node& value, const Location& where,
                 const std::string& use) {
    const Node named = named_in(value);
    setting(path, &named, where, use);
  }

  void check(const HfKey& key) {
    const std::string use = cat("keys.", key.name);
    // A dropout or a window that the plugin lacks is accepted where it has no effect.
    if (key.rule == HfKeyRule::setting) setting(key.setting, nullptr, key.where, use);
    for (const std::string& path : {key.blocks, key.write_setting, key.zero_setting, key.interval,
                                    key.positions, key.exported_interval})
      setting(path, nullptr, key.where, use);
    for (const auto& [theirs, ours] : key.values) setting(key.setting, &ours, key.where, use);
    if (!key.times.empty()) {
      ExpressionScope scope;
      scope.name = [&](std::string_view name, size_t) {
        setting(std::string(name), nullptr, key.where, use);
        return ExpressionValue(int64_t{1});
      };
      evaluate_expression(key.times, scope);
    }
    if (key.required)
      for (const Node& value : key.required->second)
        setting(key.required->first, &value, key.where, use);
  }

  const HfFamily& family_;
  std::vector<const Schema*> schemas_;
  Report report_;
};

}  // namespace

Report hf_family_faults(const HfFamily& family, const Schema& plugin, const Schema* core) {
  return Check(family, plugin, core).run();
}

}  // namespace mtrain
