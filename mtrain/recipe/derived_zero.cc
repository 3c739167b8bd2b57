#include "mtrain/recipe/derived_zero.h"

#include <algorithm>

#include "mtrain/base/text.h"
#include "mtrain/config/expression.h"
#include "mtrain/config/expression_node.h"
#include "mtrain/config/rules.h"
#include "mtrain/recipe/rules/rules.h"

namespace mtrain {
namespace {

struct DerivedZero {
  const char* path;
  const char* component;  // nullptr: whatever the section's type is
  const char* expression;
};

constexpr const char* kBatch =
    "train.global_batch_size if train.global_batch_size > 0 else train.micro_batch_size";

constexpr DerivedZero kDerived[] = {
    {"model.kv_heads", nullptr, "model.heads"},
    {"model.head_dim", nullptr, "model.hidden_size // model.heads"},
    {"model.ffn_hidden_size", "gpt2", "4 * model.hidden_size"},
    {"model.max_positions", "gpt2", "model.seq_length"},
    {"model.max_positions", "bert", "model.seq_length"},
    {"model.vocab_size", nullptr,
     "model.vocab_multiple * ((tokenizer.ids - 1) // model.vocab_multiple + 1)"},
    {"model.moe.ffn_hidden_size", nullptr, "model.ffn_hidden_size"},
    {"model.moe.router.group_best", nullptr,
     "max(1, model.moe.top_k // model.moe.router.group_top_k)"},
    {"train.global_batch_size", nullptr,
     "train.micro_batch_size if len(train.batch_schedule) == 0 else null"},
    {"validation.micro_batch_size", nullptr, "train.micro_batch_size"},
    {"validation.global_batch_size", nullptr, kBatch},
    {"scheduler.decay_steps", nullptr, "train.steps"},
    {"dist.microbatch_group_size", nullptr, "dist.pp"},
};

}  // namespace

Node derived_of_zero(const std::string& path, const std::string& component,
                     const ValueOfPath& value_of) {
  const auto* found = std::ranges::find_if(kDerived, [&](const DerivedZero& one) {
    return path == one.path && (!one.component || component == one.component);
  });
  if (found == std::end(kDerived)) return {};
  ExpressionScope scope;
  scope.name = [&](std::string_view name, size_t at) -> ExpressionValue {
    const Node value = value_of(std::string(name));
    if (value.is_null()) throw AbsentName{};
    return expression_value(value, at);
  };
  try {
    const ExpressionValue value = evaluate_expression(found->expression, scope);
    if (const auto* number = std::get_if<int64_t>(&value)) return Node::integer(*number);
  } catch (const ExpressionError&) {  // a setting is no number, which its own check reports
  } catch (const AbsentName&) {
  }
  return {};
}

Node resolved_value(const std::string& path, const std::string& component, const Node& value,
                    const ValueOfPath& value_of) {
  if (!value.is(NodeKind::integer) || value.as_int() != 0) return value;
  const Node derived = derived_of_zero(path, component, value_of);
  return derived.is_null() ? value : derived;
}

std::vector<ImpliedChange> implied_changes(const ConfigContainer& before,
                                           const ConfigContainer& now) {
  std::vector<ImpliedChange> out;
  for (const DerivedZero& one : kDerived) {
    const std::string path = one.path, section = path.substr(0, path.find('.'));
    const auto number = [&](const ConfigContainer& config) -> Node {
      const Node* own = config.root().find(path);
      const bool zero = own && own->is(NodeKind::integer) && own->as_int() == 0;
      if (!zero || (one.component && config.type_of(section) != one.component)) return {};
      return derived_of_zero(path, config.type_of(section), values_of(config));
    };
    Node was = number(before), is = number(now);
    if (!was.is_null() && !is.is_null() && !was.same_value(is))
      out.push_back({path, std::move(was), std::move(is), names_in(one.expression)});
  }
  return out;
}

ValueOfPath values_of(const ConfigContainer& config, int64_t tokenizer_ids) {
  return [&config, tokenizer_ids](const std::string& path) -> Node {
    if (path == "tokenizer.ids" && tokenizer_ids > 0) return Node::integer(tokenizer_ids);
    if (const Node* own = config.root().find(path)) return *own;
    for (int i = 1; i <= static_cast<int>(Fact::mtp_layers); ++i)
      if (const auto fact = static_cast<Fact>(i); usual_path(fact) == path)
        if (const Node* own = config.root().find(config.setting_of(fact))) return *own;
    return {};
  };
}

}  // namespace mtrain
