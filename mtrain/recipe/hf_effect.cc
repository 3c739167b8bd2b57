#include "mtrain/recipe/hf_effect.h"

#include "mtrain/base/text.h"
#include "mtrain/config/expression.h"
#include "mtrain/config/expression_node.h"
#include "mtrain/recipe/hf_json.h"
#include "mtrain/recipe/hf_write_config.h"
#include "mtrain/recipe/rules/rules.h"

namespace mtrain {

bool hf_has_effect(const HfModel& model, const std::string& path) {
  ExpressionScope scope;
  scope.name = [&](std::string_view name, size_t at) -> ExpressionValue {
    constexpr std::string_view kSection = "model.";
    if (!name.starts_with(kSection)) throw ExpressionError(cat("not of the model: ", name), at);
    const Node value = model.value(std::string(name.substr(kSection.size())));
    if (value.is_null()) throw AbsentName{};
    return expression_value(value, at);
  };
  for (const Rule& rule : unused_setting_rules()) {
    if (!rule.unused || cat("model.", path) != rule.path) continue;
    try {
      const ExpressionValue acts = evaluate_expression(rule.must, scope);
      if (const auto* flag = std::get_if<bool>(&acts); flag && !*flag) return false;
    } catch (const ExpressionError&) {  // it depends on settings outside of the model
    } catch (const AbsentName&) {
    }
  }
  return true;
}

namespace {

/// What a value of a setting resolves to with the model's other settings; null: to itself.
Node meaning_of(const HfModel& model, const std::string& path, const Node& value) {
  if (path != "moe.router.normalize" || value.as_text() != "auto") return {};
  const bool softmax = model.value("moe.router.score").as_text() == "softmax";
  const bool divided = softmax ? model.value("moe.router.pre_softmax").as_text() != "true"
                               : model.number("moe.top_k") > 1;  // RouterRule::normalizes
  return Node::string(divided ? "always" : "never");
}

}  // namespace

Node hf_meaning(const HfModel& model, const std::string& path) {
  return meaning_of(model, path, model.value(path));
}

bool hf_means_default(const HfModel& model, const FieldSpec& spec) {
  const Node value = model.value(spec.path), usual = default_value(spec, "");
  if (brief(value) == spec.default_value || brief(value) == brief(usual)) return true;
  const Node meaning = meaning_of(model, spec.path, usual);
  return !meaning.is_null() && brief(meaning) == brief(value);
}

std::vector<std::string> hf_lost(const HfFamily& family, const HfModel& model) {
  using namespace hf;
  std::vector<std::string> out;
  for (const auto& [path, reason] : family.lost_settings) {
    const FieldSpec* spec = field_of(path, {&model.plugin()});
    const std::string value = brief(model.value(path));
    if (spec && value != spec->default_value && value != brief(default_value(*spec, "")))
      out.push_back(cat("model.", path, "=", value, ": ", reason));
  }
  return out;
}

}  // namespace mtrain
