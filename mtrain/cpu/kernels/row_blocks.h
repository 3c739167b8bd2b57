// Sums over rows in a fixed order: each block of rows adds into its own partial sums in the
// stream's scratch memory, and combine() adds the partial sums from the first block to the last.
// Valid for one kernel call. Does not own the stream.
#pragma once
#include <algorithm>
#include <cstring>

#include "mtrain/cpu/kernels/launch.h"

namespace mtrain::cpu::MT_ISA {

class RowBlocks {
 public:
  /// Each block has `sums` vectors of `cols` floats; 0 if only the loop over rows is needed.
  RowBlocks(CpuStream& stream, int64_t rows, int64_t cols, int sums)
      : stream_(stream), rows_(rows), cols_(cols), sums_(sums) {
    // At most 256 blocks, so that the partial sums are small compared with the rows.
    block_ = std::max({int64_t{64}, rows_per_task(cols), (rows + 255) / 256});
    blocks_ = (rows + block_ - 1) / block_;
    stride_ = (cols * sums + 15) / 16 * 16;  // blocks do not share cache lines
    if (sums > 0)
      partial_ = reinterpret_cast<float*>(
          stream.scratch(sizeof(float) * static_cast<size_t>(blocks_ * stride_)));
  }

  /// Calls f(row, sums of the row's block or null) for all rows, in ascending order within a block.
  template <class F>
  void run(F&& f) const {
    for_tasks(stream_, blocks_, [&](int64_t b) {
      float* sums = partial_ ? partial_ + b * stride_ : nullptr;
      if (sums) std::memset(sums, 0, sizeof(float) * static_cast<size_t>(cols_ * sums_));
      for (int64_t r = b * block_, end = std::min(rows_, r + block_); r < end; ++r) f(r, sums);
    });
  }

  /// out[c] (+)= Σ over blocks of partial sum number `which`.
  void combine(int which, float* out, bool accumulate) const {
    for_blocks(stream_, cols_, 256, [&](int64_t begin, int64_t end) {
      SerialTeam team;
      if (!accumulate) team.each(end - begin, [&](int64_t c) { out[begin + c] = 0; });
      for (int64_t b = 0; b < blocks_; ++b) {
        const float* sums = partial_ + b * stride_ + which * cols_ + begin;
        team.each(end - begin, [&](int64_t c) { out[begin + c] += sums[c]; });
      }
    });
  }

 private:
  CpuStream& stream_;
  int64_t rows_, cols_;
  int sums_;
  int64_t block_ = 0, blocks_ = 0, stride_ = 0;
  float* partial_ = nullptr;
};

}  // namespace mtrain::cpu::MT_ISA
