#include "gemm.h"

#include "check.h"
#include "cuda_stream.h"
#include "gemm_plan.h"
#include "mtrain/base/error.h"

namespace mtrain::cuda {

GemmSteps plan_steps(const GemmArgs& g) {
  GemmSteps steps;
  steps.library = g.k > 0;
  // The library's output has the type of its inputs, or float.
  steps.widened = steps.library && g.c_dtype != g.dtype && g.c_dtype != DType::f32;
  // An addend is passed as C; the library rounds once, after bias and addend.
  steps.fused_addend = steps.library && g.addend && !steps.widened;
  steps.fused_bias = steps.library && g.bias && !steps.widened && g.bias_dtype == g.c_dtype;
  // A bias of another type needs a second pass and would be rounded twice with an addend: the plain
  // kernel does both at once.
  if (g.bias && !steps.fused_bias && (g.addend || g.batch > 1 || g.ldc != g.n || g.beta != 0))
    steps = {.library = false};
  if (steps.widened && (g.addend || g.bias || g.batch > 1)) steps = {.library = false};
  return steps;
}

void multiply(CudaStream& stream, GemmPlan& plan, const GemmCall& call) {
  const GemmArgs& g = call.args;
  const float *alpha = &g.alpha, *beta = &call.beta;
  if (call.device_scalars) {
    float* both = stream.scalars();
    check(joined_scales(stream.launch(), g, call.beta, both), "joined_scales");
    alpha = both, beta = both + 1;
  }
  size_t memory = plan.choice.workspaceSize > 0 ? GemmPlans::kWorkspace : 0;
  auto [where, workspace] = stream.place_of(g, call.whole, memory);
  MT_BLAS(cublasLtMatmul(static_cast<cublasLtHandle_t>(stream.gemm().handle()), plan.desc, alpha,
                         g.b, plan.b, g.a, plan.a, beta, call.read, plan.c, call.c, plan.c,
                         &plan.choice.algo, workspace, plan.choice.workspaceSize, where));
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
                     .c_dtype = c_dtype,
                     .device_scalars = g.scale_a || g.scale_b,
                     .tf32 = stream.tf32()};
  GemmPlan& plan = stream.gemm().find(key);
  if (!plan.usable) return false;
  if (steps.fused_bias) plan.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias);
  // A second pass over the result runs on the main stream, where scalars are computed, too.
  bool whole = !steps.widened && (!g.bias || steps.fused_bias) && !key.device_scalars;
  multiply(stream, plan,
           {.args = g,
            .beta = beta,
            .device_scalars = key.device_scalars,
            .whole = whole,
            .read = read,
            .c = c});
  return true;
}

}  // namespace

void gemm(CudaStream& stream, const GemmArgs& g) {
  if (g.m <= 0 || g.n <= 0 || g.batch <= 0) return;
  GemmSteps steps = plan_steps(g);
  bool done = false;
  if (steps.library && steps.widened) {
    void* wide = stream.scratch(sizeof(float) * static_cast<size_t>(g.m * g.n));
    done = g.ldc == g.n && run(stream, g, wide, DType::f32, g.n, 0, steps) &&
           (g.beta == 0 || g.beta == 1);
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
