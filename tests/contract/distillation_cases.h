// What the contract tests of distillation share, over all ids and over the most likely ones.
#pragma once
#include <tuple>

#include "contract/harness.h"

namespace mtrain::contract {

/// beta, temperature, alpha
inline constexpr std::tuple<double, double, double> kDistillations[] = {
    {0.0, 1.0, 0.0}, {0.0, 2.0, 0.3}, {1.0, 1.0, 0.0}, {1.0, 1.5, 0.5},
    {0.5, 1.0, 0.0}, {0.2, 2.0, 0.1}, {0.9, 1.0, 1.0}};

/// Defines a case by `define(logits, dy)`: the losses of mapped logits, or with dy their gradient.
template <class Define>
void define_of_mapped(Case& c, const LogitMap& map, const Define& define) {
  const auto scale = static_cast<double>(map.scale), cap = static_cast<double>(map.cap);
  c.forward = [=](const std::vector<Values>& v) {
    return define(reference::map_logits(v[0], scale, cap), nullptr);
  };
  c.backward = [=](const std::vector<Values>& v, const Values& dy) {
    const Values dz = define(reference::map_logits(v[0], scale, cap), &dy);
    return std::vector<Values>{reference::map_logits_backward(dz, v[0], scale, cap)};
  };
}

}  // namespace mtrain::contract
