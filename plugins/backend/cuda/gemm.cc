#include "gemm.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "check.h"
#include "cuda_stream.h"
#include "gemm_plan.h"
#include "mtrain/base/error.h"
#include "mtrain/base/log.h"

namespace mtrain::cuda {

namespace {

/// The epilogue reads a bias from multiples of 16 bytes only. If rows of a 16-bit result are not
/// such multiples, it rounds the product before it adds the bias, as seen with CUDA 13.0 on H200.
bool fits_epilogue(const GemmArgs& g) {
  if (g.bias_dtype != g.c_dtype || alignment(g.bias) < 16) return false;
  return g.c_dtype == DType::f32 || (g.ldc % 8 == 0 && alignment(g.c) >= 16);
}

}  // namespace

GemmSteps plan_steps(const GemmArgs& g) {
  if (g.k <= 0) return {.library = false};
  // The library's output has the type of its inputs, or float.
  bool other_type = g.c_dtype != g.dtype && g.c_dtype != DType::f32;
  GemmSteps steps;
  steps.fused_bias = g.bias && !other_type && fits_epilogue(g);
  steps.widened = other_type || (g.bias && !steps.fused_bias);
  // An addend is passed as C; the library rounds once, after bias and addend.
  steps.fused_addend = g.addend && !steps.widened;
  bool packed = g.batch == 1 && g.ldc == g.n && (g.beta == 0 || g.beta == 1);
  if (steps.widened && !packed) return {.library = false};
  return steps;
}

namespace {

std::string describe(const GemmArgs& g, const GemmCall& call) {
  return cat("[", g.m, ", ", g.k, "] x [", g.k, ", ", g.n, "]",
             g.batch > 1 ? cat(", batch ", g.batch) : "", ", ", name(g.dtype), " to ",
             name(g.c_dtype), g.transpose_a ? ", A transposed" : "",
             g.transpose_b ? ", B transposed" : "", g.bias ? ", bias" : "",
             call.beta != 0 ? ", added to C" : "", "; row strides ", g.lda, ", ", g.ldb, ", ",
             g.ldc, "; addresses of A, B, C are multiples of ", alignment(g.a), ", ",
             alignment(g.b), ", ", alignment(call.c), " bytes");
}

}  // namespace

bool multiply(CudaStream& stream, GemmPlan& plan, const GemmCall& call) {
  const GemmArgs& g = call.args;
  const float *alpha = &g.alpha, *beta = &call.beta;
  if (call.device_scalars) {
    float* both = stream.scalars();
    check(joined_scales(stream.launch(), g, call.beta, both), "joined_scales");
    alpha = both, beta = both + 1;
  }
  size_t memory = plan.choice.workspaceSize > 0 ? GemmPlans::kWorkspace : 0;
  auto [where, workspace] = stream.place_of(g, call.whole, memory);
  cublasStatus_t status =
      cublasLtMatmul(static_cast<cublasLtHandle_t>(stream.gemm().handle()), plan.desc, alpha, g.b,
                     plan.b, g.a, plan.a, beta, call.read, plan.c, call.c, plan.c,
                     &plan.choice.algo, workspace, plan.choice.workspaceSize, where);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE) {
    check_blas(status, "cublasLtMatmul");
    return true;
  }
  plan.usable = false;  // nothing was launched
  log_warn("cuBLASLt proposed an algorithm for a product and refuses to run it (",
           cublasLtGetStatusString(status), "): ", describe(g, call),
           "; slower kernels of mtrain compute products of this shape");
  return false;
}

namespace {

/// Of one product that the library computes, into `c`. Returns false if it cannot.
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
                     .c_dtype = c_dtype,
                     .device_scalars = g.scale_a || g.scale_b,
                     .tf32 = stream.tf32()};
  GemmPlan& plan = stream.gemm().find(key);
  if (!plan.usable) return false;
  if (steps.fused_bias) plan.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias);
  // A second pass over the result runs on the main stream, where scalars are computed, too.
  return multiply(stream, plan,
                  {.args = g,
                   .beta = beta,
                   .device_scalars = key.device_scalars,
                   .whole = !steps.widened && !key.device_scalars,
                   .read = read,
                   .c = c});
}

/// Rows [begin, begin + rows) of a product.
GemmArgs rows_of(GemmArgs g, int64_t begin, int64_t rows) {
  auto at = [](auto* data, int64_t elements, DType dtype) -> decltype(data) {
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(data)>>,
                                    const std::byte, std::byte>;
    return data ? static_cast<Byte*>(data) + elements * static_cast<int64_t>(size_of(dtype))
                : nullptr;
  };
  g.a = at(g.a, g.transpose_a ? begin : begin * g.lda, g.dtype);
  g.c = at(g.c, begin * g.ldc, g.c_dtype);
  g.addend = at(g.addend, begin * g.ldc, g.c_dtype);
  g.m = rows;
  return g;
}

/// The product in float, then bias and addend, rounded once.
bool run_in_float(CudaStream& stream, const GemmArgs& g, const GemmSteps& steps) {
  int64_t count = g.m * g.n;
  void* wide = stream.scratch(sizeof(float) * static_cast<size_t>(count));
  if (g.addend)
    check(cast(stream.launch(), {.src = g.addend,
                                 .dst = wide,
                                 .count = count,
                                 .scale = 1,
                                 .accumulate = false,
                                 .src_dtype = g.c_dtype,
                                 .dst_dtype = DType::f32}),
          "cast");
  if (!run(stream, g, wide, DType::f32, g.n, g.addend ? 1.0f : 0.0f, steps)) return false;
  if (g.bias)
    check(add(stream.launch(), {.a = wide,
                                .b = nullptr,
                                .y = wide,
                                .count = count,
                                .dtype = DType::f32,
                                .row = g.bias,
                                .cols = g.n,
                                .row_dtype = g.bias_dtype}),
          "add");
  check(cast(stream.launch(), {.src = wide,
                               .dst = g.c,
                               .count = count,
                               .scale = 1,
                               .accumulate = g.beta == 1,
                               .src_dtype = DType::f32,
                               .dst_dtype = g.c_dtype}),
        "cast");
  return true;
}

/// In slices of rows, so that the float memory stays small.
bool run_widened(CudaStream& stream, const GemmArgs& g, const GemmSteps& steps) {
  constexpr int64_t kMost = int64_t{64} << 20;  // elements
  int64_t slice = std::clamp<int64_t>(kMost / g.n, 1, g.m);
  for (int64_t begin = 0; begin < g.m; begin += slice)
    if (GemmArgs part = rows_of(g, begin, std::min(slice, g.m - begin));
        !run_in_float(stream, part, steps))
      check(plain_gemm(stream.launch(), part), "plain_gemm");
  return true;
}

}  // namespace

void gemm(CudaStream& stream, const GemmArgs& g) {
  if (g.m <= 0 || g.n <= 0 || g.batch <= 0) return;
  GemmSteps steps = plan_steps(g);
  bool done =
      steps.library && (steps.widened ? run_widened(stream, g, steps)
                                      : run(stream, g, g.c, g.c_dtype, g.ldc, g.beta, steps));
  if (!done) check(plain_gemm(stream.launch(), g), "plain_gemm");
}

}  // namespace mtrain::cuda
