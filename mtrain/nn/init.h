// Initial values of parameters: pure functions of (seed, parameter name, element index), so they do
// not depend on the parallel layout, the thread count or the order in which modules are built.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain {

struct Init {
  enum class Kind : uint8_t { constant, normal, uniform } kind = Kind::constant;
  float value = 0;  // the constant, the standard deviation, or the bound
  /// Multiplies the value of an element, by its index in the whole parameter. Empty: 1.
  std::function<float(int64_t)> factor = {};

  static Init zeros() { return {Kind::constant, 0}; }
  static Init ones() { return {Kind::constant, 1}; }
  static Init normal(float stddev) { return {Kind::normal, stddev}; }
  /// Between -bound and bound.
  static Init uniform(float bound) { return {Kind::uniform, bound}; }
};

/// Fills `values` with elements first_index, first_index + 1, … of the parameter `name`.
MT_API void fill(const Init& init, uint64_t seed, std::string_view name, std::span<float> values,
                 uint64_t first_index = 0);

}  // namespace mtrain
