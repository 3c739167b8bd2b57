#include "mtrain/recipe/setting_effect.h"

#include <algorithm>

#include "mtrain/config/expression.h"
#include "mtrain/config/expression_node.h"
#include "mtrain/recipe/derived_zero.h"
#include "mtrain/recipe/rules/rules.h"

namespace mtrain {

bool has_effect(const ConfigContainer& config, const std::string& path) {
  const ValueOfPath settings = values_of(config);
  const std::vector<Definition>& definitions = recipe_rules().definitions();
  ExpressionScope scope;
  scope.name = [&](std::string_view name, size_t at) -> ExpressionValue {
    const auto defined = std::ranges::find(definitions, name, &Definition::name);
    if (defined != definitions.end()) return evaluate_expression(defined->expression, scope);
    const Node value = settings(std::string(name));
    if (value.is_null()) throw AbsentName{};
    return expression_value(value, at);
  };
  const auto acts = [&](const Rule& rule) {
    try {
      const ExpressionValue value = evaluate_expression(rule.must, scope);
      const auto* flag = std::get_if<bool>(&value);
      return !flag || *flag;
    } catch (const ExpressionError&) {
    } catch (const AbsentName&) {
    }
    return true;
  };
  return std::ranges::all_of(unused_setting_rules(), [&](const Rule& rule) {
    return !rule.unused || path != rule.path || acts(rule);
  });
}

}  // namespace mtrain
