// The scratch memory of one kernel call, divided into typed pieces. For one kernel call, on the
// thread of its stream.
#pragma once
#include <cstddef>

#include "mtrain/cpu/cpu_stream.h"
#include "mtrain/cpu/kernels/isa_kernels.h"

namespace mtrain::cpu::MT_ISA {

inline int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }
inline int64_t round_up(int64_t n, int64_t step) { return divide_up(n, step) * step; }

/// Divides memory into typed pieces that start on cache-line boundaries. Does not own the memory.
class Pieces {
 public:
  explicit Pieces(std::byte* memory) : memory_(memory) {}
  template <class Word>
  Word* take(int64_t count) {
    auto* piece = memory_ ? reinterpret_cast<Word*>(memory_ + used_) : nullptr;
    used_ += round_up(count * static_cast<int64_t>(sizeof(Word)), 64);
    return piece;
  }
  int64_t used() const { return used_; }

 private:
  std::byte* memory_;
  int64_t used_ = 0;
};

/// Makes an object whose pieces are in the stream's scratch memory: calls `make` once without
/// memory to measure the size, then with memory.
template <class Make>
inline auto allocate_scratch(CpuStream& stream, Make&& make) {
  Pieces measure(nullptr);
  make(measure);
  Pieces pieces(stream.scratch(static_cast<size_t>(measure.used())));
  return make(pieces);
}

}  // namespace mtrain::cpu::MT_ISA
