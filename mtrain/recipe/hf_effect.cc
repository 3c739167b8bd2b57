#include "mtrain/recipe/hf_effect.h"

#include <algorithm>

#include "mtrain/base/text.h"
#include "mtrain/config/expression.h"
#include "mtrain/config/expression_node.h"
#include "mtrain/recipe/derived_zero.h"
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

/// The model's settings, by the usual paths of sizes.
Node value_at(const HfModel& model, const std::string& path) {
  constexpr std::string_view kSection = "model.";
  if (!path.starts_with(kSection)) return {};
  const Node own = model.value(path.substr(kSection.size()));
  if (!own.is_null()) return own;
  for (const FieldSpec& spec : model.plugin().fields)
    if (spec.fact != Fact::none && usual_path(spec.fact) == path) return model.value(spec.path);
  return {};
}

/// What the value 0 of a setting stands for with the model's other settings; null: for itself.
Node meaning_of_zero(const HfModel& model, const std::string& path) {
  const auto spec = std::ranges::find(model.plugin().fields, path, &FieldSpec::path);
  const bool size = spec != model.plugin().fields.end() && spec->fact != Fact::none;
  return derived_of_zero(size ? usual_path(spec->fact) : cat("model.", path), model.plugin().name,
                         [&](const std::string& other) { return value_at(model, other); });
}

/// What a value of a setting resolves to with the model's other settings; null: to itself.
Node meaning_of(const HfModel& model, const std::string& path, const Node& value) {
  if (value.is(NodeKind::integer) && value.as_int() == 0) return meaning_of_zero(model, path);
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

bool hf_means(const HfModel& model, const std::string& path, const Node& other) {
  const auto resolved = [&](const Node& value) {
    const Node meaning = meaning_of(model, path, value);
    return brief(meaning.is_null() ? value : meaning);
  };
  return resolved(model.value(path)) == resolved(other);
}

bool hf_means_default(const HfModel& model, const FieldSpec& spec) {
  const Node value = model.value(spec.path);
  return brief(value) == spec.default_value || hf_means(model, spec.path, default_value(spec, ""));
}

std::vector<std::string> hf_lost(const HfFamily& family, const HfModel& model) {
  using namespace hf;
  std::vector<std::string> out;
  for (const auto& [path, reason] : family.lost_settings) {
    const FieldSpec* spec = field_of(path, {&model.plugin()});
    if (spec && !hf_means_default(model, *spec))
      out.push_back(cat("model.", path, "=", brief(model.value(path)), ": ", reason));
  }
  return out;
}

}  // namespace mtrain
