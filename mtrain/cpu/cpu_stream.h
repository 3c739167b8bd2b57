// The CPU's stream: executes work immediately, on a fixed number of threads. Owns the scratch
// memory of its kernels, so that steps in the steady state allocate nothing. For one thread at a
// time.
#pragma once
#include <cstddef>
#include <memory>

#include "mtrain/cpu/isa.h"
#include "mtrain/cpu/thread_pool.h"
#include "mtrain/tensor/backend.h"

namespace mtrain::cpu {

class CpuStream final : public Stream {
 public:
  CpuStream(int threads, const KernelTable& kernels, const Isa& isa);
  ~CpuStream() override;

  int threads() const { return pool_.threads(); }
  /// The threads on which kernels run their loops.
  ThreadPool& pool() const { return pool_; }
  const KernelTable& kernels() const { return kernels_; }
  /// The instruction-set level of the kernels.
  const Isa& isa() const { return isa_; }
  /// At least `bytes`, aligned to 64, uninitialised. Valid until the next call of scratch(), which
  /// may return the same memory or free it to allocate more. Never shrinks.
  std::byte* scratch(size_t bytes);

 private:
  mutable ThreadPool pool_;
  const KernelTable& kernels_;
  Isa isa_;
  std::byte* scratch_ = nullptr;
  size_t scratch_bytes_ = 0;
};

/// REQUIRES: the CPU backend created the stream, which holds for every stream that reaches a CPU
/// kernel.
inline CpuStream& cpu_stream(Stream& stream) { return static_cast<CpuStream&>(stream); }

/// Throw Error(bug): no kernel supports this dtype; quantization does not support this tile size.
/// Not inline: the per-level object files share no text-building code.
[[noreturn]] void throw_no_kernel(DType dtype);
[[noreturn]] void throw_no_patch(int64_t tile_rows, int64_t tile_cols);

}  // namespace mtrain::cpu
