// ProductLanes: chooses the side stream (lane) for a small product, so that independent products,
// such as those of a layer's experts, fill the device together. It compares the memory of products:
// one that reads or writes what a lane writes, or writes what a lane reads, runs after it on that
// lane, or everything is joined first. Pure logic, no device; for one thread.
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

  /// Chooses the lane of a product and records the product as in progress there. kMain (not
  /// recorded): join all lanes, then run the product on the main stream.
  int place(const Use& use);
  /// All lanes have been joined.
  void joined();
  bool used(int lane) const { return !lanes_[static_cast<size_t>(lane)].empty(); }
  bool busy() const;

 private:
  std::array<std::vector<Use>, kLanes> lanes_;
  int next_ = 0;
};

/// Whether a product is too small to fill a device with that many multiprocessors.
bool is_small_product(const GemmArgs& args, int processors);
/// The memory ranges that a product reads and writes.
ProductLanes::Use memory_of(const GemmArgs& args);

}  // namespace mtrain::cuda
