// ProductLanes: which of a few side streams a small product may run on, so that products that have
// nothing to do with each other — the experts of a layer — fill the device together. Looks at the
// memory that each touches: one that touches what a lane writes, or writes what a lane reads,
// follows it on that lane, or everything is joined first. Pure; for one thread.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "mtrain/tensor/kernel_table.h"

namespace mtrain::cuda {

class ProductLanes {
 public:
  static constexpr int kLanes = 4, kMain = -1;
  struct Range {
    uintptr_t begin = 0, end = 0;  // bytes
    bool touches(const Range& other) const { return begin < other.end && other.begin < end; }
  };
  struct Use {
    std::vector<Range> reads;
    Range write;
  };

  /// The lane for a product, which from now on is under way there; kMain: join all, then run it on
  /// the main stream.
  int place(const Use& use);
  /// All lanes have been joined.
  void joined();
  bool used(int lane) const { return !lanes_[static_cast<size_t>(lane)].empty(); }
  bool busy() const;

 private:
  std::array<std::vector<Use>, kLanes> lanes_;
  int next_ = 0;
};

/// Whether a product leaves much of a device with so many multiprocessors idle.
bool is_small_product(const GemmArgs& args, int processors);
/// The memory that a product touches.
ProductLanes::Use memory_of(const GemmArgs& args);

}  // namespace mtrain::cuda
