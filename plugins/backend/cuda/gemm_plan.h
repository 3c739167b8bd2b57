// GemmPlan: the description of a product for cuBLASLt, with the chosen algorithm. Owned by
// GemmPlans; for its thread.
#pragma once
#include <cublasLt.h>

#include "gemm.h"

namespace mtrain::cuda {

void check_blas(cublasStatus_t status, const char* what);
#define MT_BLAS(call) ::mtrain::cuda::check_blas((call), #call)

// cuBLASLt is column-major, so our row-major matrix is its transpose there: C[M,N] = op(A) op(B) is
// computed as Cᵀ = op(B)ᵀ op(A)ᵀ. Its first operand is our B, and its bias over rows is our bias
// over columns.
struct GemmPlan {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t b = nullptr, a = nullptr, c = nullptr;
  cublasLtMatmulHeuristicResult_t choice{};
  bool usable = false;
  uint64_t used = 0;

  GemmPlan(cublasLtHandle_t handle, const GemmPlans::Key& key);
  GemmPlan(const GemmPlan&) = delete;
  GemmPlan& operator=(const GemmPlan&) = delete;
  ~GemmPlan();

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    MT_BLAS(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value));
  }

 private:
  void set_scales(const GemmPlans::Key& key);
  void choose(cublasLtHandle_t handle, const GemmPlans::Key& key);
};

/// A call of a plan: args, with C replaced by the fields below.
struct GemmCall {
  const GemmArgs& args;
  float beta = 0;
  bool device_scalars = false;  // the plan takes alpha and beta from the device
  bool whole = false;           // no later pass touches the result, so it may run on any lane
  const void* read = nullptr;   // the matrix that beta scales
  void* c = nullptr;
};
/// Returns false, with a warning, and marks the plan as unusable if the library refuses to run the
/// algorithm that it proposed.
[[nodiscard]] bool multiply(CudaStream& stream, GemmPlan& plan, const GemmCall& call);

/// The largest power of two, at most 256, that divides an address.
int alignment(const void* data);

}  // namespace mtrain::cuda
