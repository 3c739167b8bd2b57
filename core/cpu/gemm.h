// Matrix multiplication: by the own kernel of the CPU's level where that is the faster one, otherwise through oneDNN,
// with primitives kept per stream and shape. For one thread at a time.
#pragma once
#include <compare>
#include <cstdint>
#include <map>
#include <memory>

#include "mtrain/tensor/kernel_table.h"

namespace mtrain::cpu {

/// KernelTable::gemm of the CPU backend.
void gemm(Stream& stream, const GemmArgs& args);

struct GemmPrimitive;

/// The compiled primitives of one stream, least recently used ones dropped.
class GemmCache {
 public:
  static constexpr size_t kMaxEntries = 512;
  /// Everything of GemmArgs but the pointers; dimensions and strides of batches as oneDNN gets them.
  struct Key {
    int64_t m, n, k, lda, ldb, ldc, batch, stride_a, stride_b, stride_c;
    float beta;
    bool scaled;  // alpha is not 1: given with each call, since scales differ from call to call
    bool transpose_a, transpose_b;
    DType dtype, c_dtype, bias_dtype;
    bool bias;
    auto operator<=>(const Key&) const = default;
  };

  GemmCache();
  ~GemmCache();
  /// The primitive for a key, or one that is not `usable()` when oneDNN has no implementation on this CPU.
  GemmPrimitive& find(const Key& key);
  size_t size() const { return entries_.size(); }

 private:
  std::map<Key, std::unique_ptr<GemmPrimitive>> entries_;
  uint64_t clock_ = 0;
};

}  // namespace mtrain::cpu
