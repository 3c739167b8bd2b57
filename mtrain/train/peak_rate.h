// The matrix products per second that a device reaches at most: what MFU is a share of.
#pragma once
#include <string>

#include "mtrain/recipe/settings.h"
#include "mtrain/tensor/backend.h"

namespace mtrain {

/// Operations per second of a large square product in this dtype: the roof that MFU is a share of.
/// Takes some milliseconds.
MT_API double measured_peak_flops(Backend& backend, Device device, DType dtype);

/// What a rank's device can do at most in the recipe's number types, and who says so.
struct PeakRate {
  double flops = 0;    // per second
  std::string source;  // "989 TFLOP/s, as a h200 is sold (bf16)"
  bool measured = false;

  /// The share that a rate is. What is measured is a moment of a machine that others may use: a
  /// rate above it is the roof from then on.
  MT_API double share(double rate);
};
MT_API PeakRate peak_rate(const Settings& settings, const std::string& device, Backend& backend,
                          Device where = {});

}  // namespace mtrain
