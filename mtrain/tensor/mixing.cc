#include "mtrain/tensor/mixing.h"

#include <algorithm>
#include <optional>

#include "mtrain/base/error.h"

namespace mtrain {
namespace {

using Letter = Placement::Letter;
const Placement kR = Placement::R(), kI = Placement::I(), kP = Placement::P();
const Placement kS0 = Placement::S(0), kS1 = Placement::S(1);

const MixRule kRules[] = {
    {PlacementRule::linear, {kR, kR}, kR},
    {PlacementRule::linear, {kI, kI}, kI},
    {PlacementRule::linear, {kS0, kR}, kS0},  // different tokens on each rank
    {PlacementRule::linear, {kR, kS0}, kS1},  // column parallel
    {PlacementRule::linear, {kS1, kS1}, kP},  // row parallel
    {PlacementRule::linear, {kP, kR}, kP},
    {PlacementRule::linear, {kR, kP}, kP},
    {PlacementRule::add, {kR, kR}, kR},
    {PlacementRule::add, {kI, kI}, kI},
    {PlacementRule::add, {kS0, kS0}, kS0},
    {PlacementRule::add, {kP, kP}, kP},
    {PlacementRule::bias, {kR, kR}, kR},
    {PlacementRule::bias, {kI, kI}, kI},
    {PlacementRule::bias, {kS0, kR}, kS0},
    {PlacementRule::bias, {kS1, kS0}, kS1},
    {PlacementRule::bias, {kP, kP}, kP},
    {PlacementRule::multiply, {kR, kR}, kR},
    {PlacementRule::multiply, {kI, kI}, kI},
    {PlacementRule::multiply, {kS0, kS0}, kS0},
    {PlacementRule::multiply, {kP, kR}, kP},
    {PlacementRule::multiply, {kR, kP}, kP},
    {PlacementRule::pointwise, {kR, kR}, kR},
    {PlacementRule::pointwise, {kI, kI}, kI},
    {PlacementRule::pointwise, {kS0, kS0}, kS0},
    {PlacementRule::norm, {kR, kR}, kR},
    {PlacementRule::norm, {kI, kI}, kI},
    {PlacementRule::norm,
     {kS0, kR},
     kS0},  // sequence parallel: the gradient of the weight is a partial sum
    {PlacementRule::norm, {kR, kP}, kP},
};

bool any_dim(PlacementRule op) {
  return op == PlacementRule::add || op == PlacementRule::multiply ||
         op == PlacementRule::pointwise;
}

std::optional<Placement> find(PlacementRule op, Placement a, Placement b) {
  if (any_dim(op) && a.letter() == Letter::S) {
    if (a != b) return std::nullopt;
    return a;  // the row S(0), S(0) also applies to every other dim
  }
  for (const MixRule& rule : kRules)
    if (rule.op == op && rule.inputs[0] == a && rule.inputs[1] == b) return rule.result;
  return std::nullopt;
}

std::string why_not(PlacementRule op, Placement a, Placement b) {
  auto either = [&](Letter letter) { return a.letter() == letter || b.letter() == letter; };
  bool both = a.letter() == b.letter();
  if (either(Letter::P) && (op == PlacementRule::add || op == PlacementRule::bias))
    return "the input that is not a partial sum would be added once per rank: redistribute P -> I "
           "or P -> S first";
  if (either(Letter::I) && !both)
    return "I needs the whole gradient on every rank, but with the other input each rank computes "
           "only a part of it, or the other input gets too much: redistribute I -> R";
  if (either(Letter::P) && both)
    return "a product of sums is not the sum of the products: redistribute P -> I or P -> S first";
  if (either(Letter::P) && (op == PlacementRule::pointwise || op == PlacementRule::norm))
    return "a function of a sum is not the sum of the function: redistribute P -> I or P -> S "
           "first";
  if (op == PlacementRule::norm && a.letter() == Letter::S)
    return "each rank would normalize rows by a part of them: redistribute to S(0), whole rows, "
           "with the weight R";
  if (both)
    return "the ranks' pieces do not fit each other: redistribute one of them, S(a) -> S(b)";
  return "one input is sharded and the other is whole: gather the shard (S -> R) or split the "
         "other";
}

std::string allowed(PlacementRule op) {
  std::vector<std::string> out;
  for (const MixRule& rule : kRules)
    if (rule.op == op)
      out.push_back(cat("(", rule.inputs[0], ", ", rule.inputs[1], ") -> ", rule.result));
  return join(out, "; ") + (any_dim(op) ? "; the same for S of any one dim" : "");
}

}  // namespace

const char* name(PlacementRule op) {
  switch (op) {
    case PlacementRule::linear:
      return "linear";
    case PlacementRule::add:
      return "add";
    case PlacementRule::bias:
      return "bias";
    case PlacementRule::multiply:
      return "multiply";
    case PlacementRule::pointwise:
      return "pointwise";
    case PlacementRule::norm:
      return "norm";
  }
  return "?";
}

std::span<const MixRule> mix_rules() { return kRules; }

Placement mix(PlacementRule op, std::span<const Placement> inputs) {
  MT_CHECK(op == PlacementRule::pointwise ? !inputs.empty() : inputs.size() == 2, name(op), " of ",
           inputs.size(), " inputs");
  // Pointwise rules only pair equal placements, so comparing each input with the first one
  // suffices.
  std::optional<Placement> result = find(op, inputs.front(), inputs.back());
  Placement other = inputs.back();
  for (size_t i = 1; result && i < inputs.size(); ++i)
    result = find(op, inputs[0], other = inputs[i]);
  if (result) return *result;
  std::vector<std::string> letters;
  for (Placement p : inputs) letters.push_back(to_text(p));
  throw Error(
      ErrorClass::bug,
      cat(name(op), " cannot mix (", join(letters, ", "), "): ", why_not(op, inputs[0], other)),
      cat("allowed: ", allowed(op)));
}

}  // namespace mtrain
