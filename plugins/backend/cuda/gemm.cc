#include "gemm.h"

#include <cublasLt.h>

#include <algorithm>

#include "check.h"
#include "cuda_stream.h"
#include "mtrain/base/error.h"

namespace mtrain::cuda {

namespace {

void check_blas(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorClass::peer, cat("cuBLASLt failed in ", what, ": ", cublasLtGetStatusString(status)),
              "see `nvidia-smi` for the GPU's state, then resume from the last checkpoint");
}
#define MT_BLAS(call) check_blas((call), #call)

cudaDataType_t type_of(DType dtype) {
  return dtype == DType::bf16 ? CUDA_R_16BF : dtype == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}
int alignment(const void* data) {
  auto bits = reinterpret_cast<uintptr_t>(data) | 256;
  return static_cast<int>(bits & -bits);
}

template <class T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  MT_BLAS(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value));
}

}  // namespace

// A row-major matrix is its transpose to the library, which counts columns first: C[M,N] = op(A) op(B) is asked for as
// Cᵀ = op(B)ᵀ op(A)ᵀ, so that its first operand is our B, and a bias over our columns is one over its rows.
struct GemmPlan {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t b = nullptr, a = nullptr, c = nullptr;
  cublasLtMatmulHeuristicResult_t choice{};
  bool usable = false;
  uint64_t used = 0;

  GemmPlan(cublasLtHandle_t handle, const GemmPlans::Key& k) {
    cudaDataType_t in = type_of(k.dtype), out = type_of(k.c_dtype);
    MT_BLAS(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    cublasOperation_t op_b = k.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                      op_a = k.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    set(desc, CUBLASLT_MATMUL_DESC_TRANSA, op_b);
    set(desc, CUBLASLT_MATMUL_DESC_TRANSB, op_a);
    if (k.bias) {
      set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, out);
    }
    b = layout(in, k.transpose_b ? k.k : k.n, k.transpose_b ? k.n : k.k, k.ldb, k.batch, k.stride_b);
    a = layout(in, k.transpose_a ? k.m : k.k, k.transpose_a ? k.k : k.m, k.lda, k.batch, k.stride_a);
    c = layout(out, k.n, k.m, k.ldc, k.batch, k.stride_c);
    choose(handle, k);
  }
  GemmPlan(const GemmPlan&) = delete;
  GemmPlan& operator=(const GemmPlan&) = delete;
  ~GemmPlan() {
    for (auto l : {a, b, c})
      if (l) cublasLtMatrixLayoutDestroy(l);
    if (desc) cublasLtMatmulDescDestroy(desc);
  }

 private:
  static cublasLtMatrixLayout_t layout(cudaDataType_t type, int64_t rows, int64_t cols, int64_t ld, int64_t batch,
                                       int64_t stride) {
    cublasLtMatrixLayout_t out = nullptr;
    MT_BLAS(cublasLtMatrixLayoutCreate(&out, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), ld));
    if (batch > 1) {
      auto count = static_cast<int32_t>(batch);
      MT_BLAS(cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
      MT_BLAS(
          cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
    }
    return out;
  }
  void choose(cublasLtHandle_t handle, const GemmPlans::Key& k) {
    cublasLtMatmulPreference_t wish = nullptr;
    MT_BLAS(cublasLtMatmulPreferenceCreate(&wish));
    auto put = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      MT_BLAS(cublasLtMatmulPreferenceSetAttribute(wish, attribute, &value, sizeof value));
    };
    put(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, GemmPlans::kWorkspace);
    // Parts of a sum that is cut are added in float, in workspace, not in the result's own type.
    put(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    put(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(k.align_b));
    put(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(k.align_a));
    put(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(k.align_c));
    put(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(k.align_d));
    int found = 0;
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, desc, b, a, c, c, wish, 1, &choice, &found);
    cublasLtMatmulPreferenceDestroy(wish);
    usable = status == CUBLAS_STATUS_SUCCESS && found > 0;
  }
};

GemmPlans::GemmPlans() = default;
GemmPlans::~GemmPlans() {
  plans_.clear();
  if (handle_) cublasLtDestroy(static_cast<cublasLtHandle_t>(handle_));
}

GemmPlan& GemmPlans::find(const Key& key) {
  if (!handle_) {
    cublasLtHandle_t made = nullptr;
    MT_BLAS(cublasLtCreate(&made));
    handle_ = made;
  }
  auto found = plans_.find(key);
  if (found == plans_.end()) {
    if (plans_.size() >= kMaxPlans)
      plans_.erase(std::min_element(plans_.begin(), plans_.end(),
                                    [](auto& x, auto& y) { return x.second->used < y.second->used; }));
    found = plans_.emplace(key, std::make_unique<GemmPlan>(static_cast<cublasLtHandle_t>(handle_), key)).first;
  }
  found->second->used = ++clock_;
  return *found->second;
}

GemmSteps plan_steps(const GemmArgs& g) {
  GemmSteps steps;
  steps.library = g.k > 0;
  // The library writes what it reads, or float.
  steps.widened = steps.library && g.c_dtype != g.dtype && g.c_dtype != DType::f32;
  // An addend takes the place of C; the library rounds once, after both.
  steps.fused_addend = steps.library && g.addend && !steps.widened;
  steps.fused_bias = steps.library && g.bias && !steps.widened && g.bias_dtype == g.c_dtype;
  // A bias of another type is a second pass, and would round twice before an addend: the plain kernel does both.
  if (g.bias && !steps.fused_bias && (g.addend || g.batch > 1 || g.ldc != g.n || g.beta != 0))
    steps = {.library = false};
  if (steps.widened && (g.addend || g.bias || g.batch > 1)) steps = {.library = false};
  return steps;
}

namespace {

bool run(CudaStream& stream, const GemmArgs& g, void* c, DType c_dtype, int64_t ldc, float beta,
         const GemmSteps& steps) {
  const void* read = steps.fused_addend ? g.addend : c;
  if (steps.fused_addend) beta = 1;
  GemmPlans::Key key{.m = g.m,
                     .n = g.n,
                     .k = g.k,
                     .lda = g.lda,
                     .ldb = g.ldb,
                     .ldc = ldc,
                     .batch = g.batch,
                     .stride_a = g.stride_a,
                     .stride_b = g.stride_b,
                     .stride_c = g.stride_c,
                     .transpose_a = g.transpose_a,
                     .transpose_b = g.transpose_b,
                     .bias = steps.fused_bias,
                     .reads_c = beta != 0,
                     .align_a = alignment(g.a),
                     .align_b = alignment(g.b),
                     .align_c = alignment(read),
                     .align_d = alignment(c),
                     .dtype = g.dtype,
                     .c_dtype = c_dtype};
  GemmPlans& plans = stream.gemm();
  GemmPlan& plan = plans.find(key);
  if (!plan.usable) return false;
  if (steps.fused_bias) set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias);
  // Whoever reads the result in a second pass does so on the main stream.
  bool whole = !steps.widened && (!g.bias || steps.fused_bias);
  auto [where, workspace] = stream.place_of(g, whole, plan.choice.workspaceSize > 0 ? GemmPlans::kWorkspace : 0);
  MT_BLAS(cublasLtMatmul(static_cast<cublasLtHandle_t>(plans.handle()), plan.desc, &g.alpha, g.b, plan.b, g.a, plan.a,
                         &beta, read, plan.c, c, plan.c, &plan.choice.algo, workspace, plan.choice.workspaceSize,
                         where));
  return true;
}

}  // namespace

void gemm(CudaStream& stream, const GemmArgs& g) {
  if (g.m <= 0 || g.n <= 0 || g.batch <= 0) return;
  GemmSteps steps = plan_steps(g);
  bool done = false;
  if (steps.library && steps.widened) {
    void* wide = stream.scratch(sizeof(float) * static_cast<size_t>(g.m * g.n));
    done = g.ldc == g.n && run(stream, g, wide, DType::f32, g.n, 0, steps) && (g.beta == 0 || g.beta == 1);
    if (done)
      check(cast(stream.launch(), {.src = wide,
                                   .dst = g.c,
                                   .count = g.m * g.n,
                                   .scale = 1,
                                   .accumulate = g.beta == 1,
                                   .src_dtype = DType::f32,
                                   .dst_dtype = g.c_dtype}),
            "cast");
  } else if (steps.library) {
    done = run(stream, g, g.c, g.c_dtype, g.ldc, g.beta, steps);
    if (done && g.bias && !steps.fused_bias)
      check(add(stream.launch(), {.a = g.c,
                                  .b = nullptr,
                                  .y = g.c,
                                  .count = g.m * g.n,
                                  .dtype = g.c_dtype,
                                  .row = g.bias,
                                  .cols = g.n,
                                  .row_dtype = g.bias_dtype}),
            "add");
  }
  if (!done) check(plain_gemm(stream.launch(), g), "plain_gemm");
}

}  // namespace mtrain::cuda
