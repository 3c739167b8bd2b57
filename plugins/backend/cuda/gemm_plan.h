// GemmPlan: a product as cuBLASLt is asked for it, with the algorithm that it chose. Owned by
// GemmPlans; for its thread.
#pragma once
#include <cublasLt.h>

#include "gemm.h"

namespace mtrain::cuda {

void check_blas(cublasStatus_t status, const char* what);
#define MT_BLAS(call) ::mtrain::cuda::check_blas((call), #call)

// A row-major matrix is its transpose to the library, which counts columns first: C[M,N] = op(A)
// op(B) is asked for as Cᵀ = op(B)ᵀ op(A)ᵀ, so that its first operand is our B, and a bias over our
// columns is one over its rows.
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

/// A product by a plan: args, but for what they say of C.
struct GemmCall {
  const GemmArgs& args;
  float beta = 0;
  bool device_scalars = false;  // the plan takes alpha and beta from the device
  bool whole = false;           // nothing after it touches the result: any lane may do it
  const void* read = nullptr;   // what beta scales
  void* c = nullptr;
};
void multiply(CudaStream& stream, GemmPlan& plan, const GemmCall& call);

/// The largest power of two, at most 256, that an address is a multiple of.
int alignment(const void* data);

}  // namespace mtrain::cuda
