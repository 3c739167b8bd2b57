// SampleDraws: the sequence of random numbers of one sample. They depend only on (seed, stream,
// sample), so a sample is always the same, on any rank.
#pragma once
#include <cstddef>
#include <cstdint>

#include "mtrain/base/rng.h"

namespace mtrain {

/// A value. Not synchronised: each use of a sample has its own object.
class SampleDraws {
 public:
  /// `stream`: name_key of the purpose of the draws, so that two uses of one seed are independent.
  SampleDraws(uint64_t seed, uint64_t stream, uint64_t sample) : random_(seed, stream, sample) {}
  /// Uniform in [0, 1).
  double share() { return static_cast<double>(next()) * 0x1p-32; }
  bool chance(double rate) { return share() < rate; }
  /// Uniform in [0, count), up to a bias of 2^-32. REQUIRES: count > 0.
  size_t below(size_t count) { return static_cast<size_t>((uint64_t{next()} * count) >> 32); }

 private:
  uint32_t next() { return random_.words(next_++)[0]; }
  RngStream random_;
  uint64_t next_ = 0;
};

}  // namespace mtrain
