#include "gemm_plan.h"

#include <algorithm>
#include <utility>

#include "mtrain/base/error.h"

namespace mtrain::cuda {

void check_blas(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorClass::peer,
              cat("cuBLASLt failed in ", what, ": ", cublasLtGetStatusString(status)),
              "see `nvidia-smi` for the GPU's state, then resume from the last checkpoint");
}

int alignment(const void* data) {
  auto bits = reinterpret_cast<uintptr_t>(data) | 256;
  return static_cast<int>(bits & -bits);
}

namespace {

cudaDataType_t type_of(DType dtype) {
  return dtype == DType::bf16 ? CUDA_R_16BF : dtype == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}
cudaDataType_t type_of(QuantFormat format) {
  return format == QuantFormat::e4m3   ? CUDA_R_8F_E4M3
         : format == QuantFormat::e5m2 ? CUDA_R_8F_E5M2
                                       : CUDA_R_4F_E2M1;
}
cublasLtMatmulMatrixScale_t mode_of(QuantScale scale, bool square) {
  switch (scale) {
    case QuantScale::power_of_two:
      return square ? CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F
                    : CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case QuantScale::e8m0:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
    case QuantScale::nvfp4:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3;
    default:
      return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  }
}

cublasLtMatrixLayout_t layout(cudaDataType_t type, int64_t rows, int64_t cols, int64_t ld,
                              int64_t batch, int64_t stride) {
  cublasLtMatrixLayout_t out = nullptr;
  MT_BLAS(cublasLtMatrixLayoutCreate(&out, type, static_cast<uint64_t>(rows),
                                     static_cast<uint64_t>(cols), ld));
  if (batch > 1) {
    auto count = static_cast<int32_t>(batch);
    MT_BLAS(cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                             sizeof count));
    MT_BLAS(cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                             &stride, sizeof stride));
  }
  return out;
}

}  // namespace

GemmPlan::GemmPlan(cublasLtHandle_t handle, const GemmPlans::Key& k) {
  cudaDataType_t in_a = k.quantized.on ? type_of(k.quantized.a) : type_of(k.dtype),
                 in_b = k.quantized.on ? type_of(k.quantized.b) : type_of(k.dtype),
                 out = type_of(k.c_dtype);
  bool tf32 = k.tf32 && k.dtype == DType::f32 && !k.quantized.on;
  MT_BLAS(cublasLtMatmulDescCreate(&desc, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                   CUDA_R_32F));
  cublasOperation_t op_b = k.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                    op_a = k.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  set(CUBLASLT_MATMUL_DESC_TRANSA, op_b);
  set(CUBLASLT_MATMUL_DESC_TRANSB, op_a);
  if (k.bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, out);
  }
  if (k.device_scalars) set(CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
  if (k.quantized.on) set_scales(k);
  b = layout(in_b, k.transpose_b ? k.k : k.n, k.transpose_b ? k.n : k.k, k.ldb, k.batch,
             k.stride_b);
  a = layout(in_a, k.transpose_a ? k.m : k.k, k.transpose_a ? k.k : k.m, k.lda, k.batch,
             k.stride_a);
  c = layout(out, k.n, k.m, k.ldc, k.batch, k.stride_c);
  choose(handle, k);
}

GemmPlan::~GemmPlan() {
  for (auto l : {a, b, c})
    if (l) cublasLtMatrixLayoutDestroy(l);
  if (desc) cublasLtMatmulDescDestroy(desc);
}

// FP8 sums stay in float (no "fast accumulation"). The library needs pointers when it chooses an
// algorithm; each call sets its own.
void GemmPlan::set_scales(const GemmPlans::Key& k) {
  const void* some = reinterpret_cast<const void*>(uintptr_t{256});
  set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{0});
  set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode_of(k.quantized.scale, k.quantized.square_b));
  set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode_of(k.quantized.scale, k.quantized.square_a));
  set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, some);
  set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, some);
}

void GemmPlan::choose(cublasLtHandle_t handle, const GemmPlans::Key& k) {
  cublasLtMatmulPreference_t wish = nullptr;
  MT_BLAS(cublasLtMatmulPreferenceCreate(&wish));
  auto put = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    MT_BLAS(cublasLtMatmulPreferenceSetAttribute(wish, attribute, &value, sizeof value));
  };
  put(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, GemmPlans::kWorkspace);
  // Partial sums of a split K are added in float, in the workspace, not in the type of the result.
  put(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  put(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(k.align_b));
  put(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(k.align_a));
  put(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(k.align_c));
  put(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(k.align_d));
  int found = 0;
  cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle, desc, b, a, c, c, wish, 1, &choice, &found);
  cublasLtMatmulPreferenceDestroy(wish);
  usable = status == CUBLAS_STATUS_SUCCESS && found > 0;
}

GemmPlans::GemmPlans(std::function<void()> before_making)
    : before_making_(std::move(before_making)) {}
GemmPlans::~GemmPlans() {
  plans_.clear();
  if (handle_) cublasLtDestroy(static_cast<cublasLtHandle_t>(handle_));
}

GemmPlan& GemmPlans::find(const Key& key) {
  if (!handle_) {
    before_making_();
    cublasLtHandle_t made = nullptr;
    MT_BLAS(cublasLtCreate(&made));
    handle_ = made;
  }
  auto found = plans_.find(key);
  if (found == plans_.end()) {
    before_making_();
    if (plans_.size() >= kMaxPlans)
      plans_.erase(std::min_element(plans_.begin(), plans_.end(), [](auto& x, auto& y) {
        return x.second->used < y.second->used;
      }));
    found =
        plans_.emplace(key, std::make_unique<GemmPlan>(static_cast<cublasLtHandle_t>(handle_), key))
            .first;
  }
  found->second->used = ++clock_;
  return *found->second;
}

}  // namespace mtrain::cuda
