// Matrix products through cuBLASLt, with a cached plan per shape, since the library's choice of an
// algorithm takes longer than a small product. Sums are in float; results are deterministic. For
// one thread at a time.
#pragma once
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "mtrain/tensor/kernel_table.h"

namespace mtrain::cuda {

class CudaStream;

/// KernelTable::gemm; shapes: GemmArgs.
void gemm(CudaStream& stream, const GemmArgs& args);
/// KernelTable::quantized_gemm; shapes: QuantizedGemmArgs. Shapes that the library does not support
/// are computed as bf16 products.
void quantized_gemm(CudaStream& stream, const QuantizedGemmArgs& args);

struct GemmPlan;

/// The cuBLASLt handle and plans of one stream; the least recently used plan is dropped when there
/// are too many.
class GemmPlans {
 public:
  static constexpr size_t kMaxPlans = 1024;
  static constexpr size_t kWorkspace = size_t{32} << 20;
  /// For operands that are codes of a low-precision type.
  struct Quantized {
    bool on = false, square_a = false, square_b = false;
    QuantFormat a = QuantFormat::e4m3, b = QuantFormat::e4m3;
    QuantScale scale = QuantScale::tensor;
    auto operator<=>(const Quantized&) const = default;
  };
  struct Key {
    int64_t m, n, k, lda, ldb, ldc, batch, stride_a, stride_b, stride_c;
    bool transpose_a, transpose_b, bias, reads_c;
    int align_a, align_b, align_c, align_d;  // bytes, at most 256
    DType dtype, c_dtype;
    bool device_scalars = false;  // alpha and beta are in device memory
    bool tf32 = false;            // fp32 operands may be rounded to 10 bits
    Quantized quantized = {};
    auto operator<=>(const Key&) const = default;
  };

  /// `before_making` is called before the library creates anything.
  explicit GemmPlans(std::function<void()> before_making = [] {});
  ~GemmPlans();
  /// Opens the library at the first call. Returns a plan without an algorithm if the library has
  /// none for this shape.
  GemmPlan& find(const Key& key);
  void* handle() const { return handle_; }
  size_t size() const { return plans_.size(); }

 private:
  std::function<void()> before_making_;
  void* handle_ = nullptr;  // cublasLtHandle_t
  std::map<Key, std::unique_ptr<GemmPlan>> plans_;
  uint64_t clock_ = 0;
};

/// How a product is mapped to the library: which steps the call takes, and whether bias and addend
/// are fused. A pure function.
struct GemmSteps {
  bool library = true;        // false: plain_gemm, which supports everything
  bool widened = false;       // computed into float scratch memory; bias and addend follow there
  bool fused_bias = false;    // in the library's epilogue
  bool fused_addend = false;  // as the library's C
};
GemmSteps plan_steps(const GemmArgs& args);

}  // namespace mtrain::cuda
