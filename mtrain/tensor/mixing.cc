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
    {MixOp::linear, {kR, kR}, kR},
    {MixOp::linear, {kI, kI}, kI},
    {MixOp::linear, {kS0, kR}, kS0},  // other tokens on each rank
    {MixOp::linear, {kR, kS0}, kS1},  // column parallel
    {MixOp::linear, {kS1, kS1}, kP},  // row parallel
    {MixOp::linear, {kP, kR}, kP},
    {MixOp::linear, {kR, kP}, kP},
    {MixOp::add, {kR, kR}, kR},
    {MixOp::add, {kI, kI}, kI},
    {MixOp::add, {kS0, kS0}, kS0},
    {MixOp::add, {kP, kP}, kP},
    {MixOp::bias, {kR, kR}, kR},
    {MixOp::bias, {kI, kI}, kI},
    {MixOp::bias, {kS0, kR}, kS0},
    {MixOp::bias, {kS1, kS0}, kS1},
    {MixOp::bias, {kP, kP}, kP},
    {MixOp::multiply, {kR, kR}, kR},
    {MixOp::multiply, {kI, kI}, kI},
    {MixOp::multiply, {kS0, kS0}, kS0},
    {MixOp::multiply, {kP, kR}, kP},
    {MixOp::multiply, {kR, kP}, kP},
    {MixOp::pointwise, {kR, kR}, kR},
    {MixOp::pointwise, {kI, kI}, kI},
    {MixOp::pointwise, {kS0, kS0}, kS0},
    {MixOp::norm, {kR, kR}, kR},
    {MixOp::norm, {kI, kI}, kI},
    {MixOp::norm, {kS0, kR}, kS0},  // sequence parallel: the weight's gradient is a partial sum
    {MixOp::norm, {kR, kP}, kP},
};

bool any_dim(MixOp op) {
  return op == MixOp::add || op == MixOp::multiply || op == MixOp::pointwise;
}

std::optional<Placement> find(MixOp op, Placement a, Placement b) {
  if (any_dim(op) && a.letter() == Letter::S) {
    if (a != b) return std::nullopt;
    return a;  // the row S(0), S(0) of each of them
  }
  for (const MixRule& rule : kRules)
    if (rule.op == op && rule.inputs[0] == a && rule.inputs[1] == b) return rule.result;
  return std::nullopt;
}

std::string why_not(MixOp op, Placement a, Placement b) {
  auto either = [&](Letter letter) { return a.letter() == letter || b.letter() == letter; };
  bool both = a.letter() == b.letter();
  if (either(Letter::P) && (op == MixOp::add || op == MixOp::bias))
    return "what is not a summand would be added once per rank: redistribute P -> I or P -> S "
           "first";
  if (either(Letter::I) && !both)
    return "I wants the whole gradient from every rank, but beside the other input each rank makes "
           "a part of "
           "it, or the other input gets too much: redistribute I -> R";
  if (either(Letter::P) && both)
    return "a product of sums is not the sum of the products: redistribute P -> I or P -> S first";
  if (either(Letter::P) && (op == MixOp::pointwise || op == MixOp::norm))
    return "a function of a sum is not the sum of the function: redistribute P -> I or P -> S "
           "first";
  if (op == MixOp::norm && a.letter() == Letter::S)
    return "each rank would normalise rows by a part of them: redistribute to S(0), whole rows, "
           "with the "
           "weight R";
  if (both)
    return "the ranks' pieces do not fit each other: redistribute one of them, S(a) -> S(b)";
  return "a rank's piece meets the whole of the other: gather the piece (S -> R) or split the "
         "other";
}

std::string allowed(MixOp op) {
  std::vector<std::string> out;
  for (const MixRule& rule : kRules)
    if (rule.op == op)
      out.push_back(cat("(", rule.inputs[0], ", ", rule.inputs[1], ") -> ", rule.result));
  return join(out, "; ") + (any_dim(op) ? "; S of any one dim likewise" : "");
}

}  // namespace

const char* name(MixOp op) {
  switch (op) {
    case MixOp::linear:
      return "linear";
    case MixOp::add:
      return "add";
    case MixOp::bias:
      return "bias";
    case MixOp::multiply:
      return "multiply";
    case MixOp::pointwise:
      return "pointwise";
    case MixOp::norm:
      return "norm";
  }
  return "?";
}

std::span<const MixRule> mix_rules() { return kRules; }

Placement mix(MixOp op, std::span<const Placement> inputs) {
  MT_CHECK(op == MixOp::pointwise ? !inputs.empty() : inputs.size() == 2, name(op), " of ",
           inputs.size(), " inputs");
  // Pointwise rules pair equal placements only, so holding each input against the first is enough.
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
