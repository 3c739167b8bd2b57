#include "mtrain/cpu/cpu_stream.h"

#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/cpu/memory.h"

namespace mtrain::cpu {

CpuStream::CpuStream(int threads, const KernelTable& kernels, const Isa& isa)
    : pool_(threads), kernels_(kernels), isa_(isa) {}

CpuStream::~CpuStream() { deallocate_host(scratch_); }

std::byte* CpuStream::scratch(size_t bytes) {
  if (bytes > scratch_bytes_) {
    size_t grown = std::max({bytes, scratch_bytes_ + scratch_bytes_ / 2, size_t{1} << 16});
    deallocate_host(scratch_);
    scratch_ = nullptr;
    scratch_bytes_ = 0;
    scratch_ = static_cast<std::byte*>(allocate_host(grown));
    scratch_bytes_ = grown;
  }
  return scratch_;
}

void throw_no_kernel(DType dtype) {
  throw Error(ErrorClass::bug, cat("no CPU kernel for ", name(dtype)));
}

void throw_no_patch(int64_t tile_rows, int64_t tile_cols) {
  MT_CHECK(false, "tiles of ", tile_rows, "x", tile_cols, " do not fit a patch");
}

}  // namespace mtrain::cpu
