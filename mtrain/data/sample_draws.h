// The random numbers of one sample, one after the other: functions of (seed, stream, sample) alone,
// so that a sample is the same whenever, and by whichever rank, it is asked for.
#pragma once
#include <cstddef>
#include <cstdint>

#include "mtrain/base/rng.h"

namespace mtrain {

/// Not safe from several threads: each sample's work has one of its own.
class SampleDraws {
 public:
  /// `stream`: name_key of what the draws are for, so that two uses of a seed draw apart.
  SampleDraws(uint64_t seed, uint64_t stream, uint64_t sample) : random_(seed, stream, sample) {}
  /// Uniform in [0, 1).
  double share() { return static_cast<double>(next()) * 0x1p-32; }
  bool chance(double rate) { return share() < rate; }
  /// Uniform in [0, count), as near as 2^-32 gets. REQUIRES: count > 0.
  size_t below(size_t count) { return static_cast<size_t>((uint64_t{next()} * count) >> 32); }

 private:
  uint32_t next() { return random_.words(next_++)[0]; }
  RngStream random_;
  uint64_t next_ = 0;
};

}  // namespace mtrain
