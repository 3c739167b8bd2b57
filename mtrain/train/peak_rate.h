// The peak rate of matrix products of a device, the denominator of MFU.
#pragma once
#include <string>

#include "mtrain/recipe/settings.h"
#include "mtrain/tensor/backend.h"

namespace mtrain {

/// Operations per second of a square product in this dtype: the denominator of MFU. The product is
/// large on devices; on the CPU it is the smallest that takes some milliseconds.
MT_API double measured_peak_flops(Backend& backend, Device device, DType dtype);

/// The peak rate of a rank's device in the recipe's dtype, and the source of the number. A value;
/// not synchronised.
struct PeakRate {
  double flops = 0;    // per second
  std::string source;  // "989 TFLOP/s, data sheet of the h200 (bf16)"

  /// The fraction of the peak for a rate. Above 1 where a measured peak is too low, as on a machine
  /// that was busy during the measurement. The peak does not change, so that the shares of the
  /// steps after one measurement are comparable.
  MT_API double share(double rate) const;
};
MT_API PeakRate peak_rate(const Settings& settings, const std::string& device, Backend& backend,
                          Device where = {});

}  // namespace mtrain
