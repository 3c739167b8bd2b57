// Products of codes on the matrix units for FP8 and FP4. Both operands are stored in lines along
// the contraction dimension, which every unit supports.
#include "check.h"
#include "cuda_stream.h"
#include "gemm_plan.h"
#include "mtrain/base/error.h"

namespace mtrain::cuda {

namespace {

GemmPlans::Key key_of(const QuantizedGemmArgs& args, const void* read) {
  const GemmArgs& g = args.product;
  int64_t k = args.a.padded_k();
  return {.m = g.m,
          .n = g.n,
          .k = k,
          .lda = k,
          .ldb = k,
          .ldc = g.ldc,
          .batch = 1,
          .stride_a = 0,
          .stride_b = 0,
          .stride_c = 0,
          .transpose_a = false,
          .transpose_b = true,
          .bias = g.bias != nullptr,
          .reads_c = g.beta != 0 || g.addend,
          .align_a = alignment(g.a),
          .align_b = alignment(g.b),
          .align_c = alignment(read),
          .align_d = alignment(g.c),
          .dtype = DType::bf16,
          .c_dtype = g.c_dtype,
          // If tile scales occupy the scale arguments, the scales of whole tensors are applied
          // after the sum.
          .device_scalars = args.a.scale == QuantScale::nvfp4,
          .quantized = {.on = true,
                        .square_a = args.a.square(),
                        .square_b = args.b.square(),
                        .a = args.a.format,
                        .b = args.b.format,
                        .scale = args.a.scale}};
}

/// Float scales of groups whose rows do not start at multiples of 16 bytes: the library does not
/// document their padding.
bool ragged(const QuantLayout& layout) {
  return layout.scale == QuantScale::power_of_two && !layout.square() && layout.lines % 4 != 0;
}

/// The library reads the scale of a whole tensor from multiples of 16 bytes only. `slot`: 0 or 1.
const void* aligned_scale(CudaStream& stream, const float* scale, int slot) {
  if (!scale || alignment(scale) >= 16) return scale;
  float* copy = stream.scalars() + 4 * (slot + 1);
  MT_CUDA(cudaMemcpyAsync(copy, scale, sizeof(float), cudaMemcpyDeviceToDevice, stream.handle()));
  return copy;
}

/// Runs on the matrix unit; returns false if the library does not support the product.
bool run_on_matrix_unit(CudaStream& stream, const QuantizedGemmArgs& args) {
  const GemmArgs& g = args.product;
  if ((g.bias && (g.bias_dtype != g.c_dtype || alignment(g.bias) < 16)) || ragged(args.a) ||
      ragged(args.b))
    return false;
  const void* read = g.addend ? g.addend : g.c;
  float beta = g.addend ? 1.0f : g.beta;
  GemmPlans::Key key = key_of(args, read);
  GemmPlan& plan = stream.gemm().find(key);
  if (!plan.usable) return false;
  bool tensor = args.a.scale == QuantScale::tensor;
  const void *a_scales = tensor ? aligned_scale(stream, g.scale_a, 0) : args.a_scales,
             *b_scales = tensor ? aligned_scale(stream, g.scale_b, 1) : args.b_scales;
  plan.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, b_scales);
  plan.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, a_scales);
  if (g.bias) plan.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias);
  return multiply(stream, plan,
                  {.args = g,
                   .beta = beta,
                   .device_scalars = key.device_scalars,
                   .whole = false,
                   .read = read,
                   .c = g.c});
}

/// Decodes the operands and multiplies them as bf16.
void emulate(CudaStream& stream, const QuantizedGemmArgs& args) {
  int64_t k = args.a.padded_k();
  auto count = [&](const QuantLayout& layout) { return static_cast<size_t>(layout.lines * k); };
  auto* a = static_cast<bf16*>(stream.operands(sizeof(bf16) * (count(args.a) + count(args.b))));
  bf16* b = a + count(args.a);
  check(quantized_values(stream.launch(), args.a, args.product.a, args.a_scales, a),
        "quantized_values");
  check(quantized_values(stream.launch(), args.b, args.product.b, args.b_scales, b),
        "quantized_values");
  GemmArgs g = args.product;
  g.a = a, g.b = b, g.transpose_a = false, g.transpose_b = true;
  g.k = g.lda = g.ldb = k, g.batch = 1, g.dtype = DType::bf16;
  gemm(stream, g);
  stream.join_lanes();  // the operands' memory is reused
}

}  // namespace

void quantized_gemm(CudaStream& stream, const QuantizedGemmArgs& args) {
  MT_CHECK(args.a.scale == args.b.scale && args.a.k == args.b.k &&
               args.a.padded_k() == args.b.padded_k(),
           "operands of different k or scales");
  MT_CHECK(args.a.lines == args.product.m && args.b.lines == args.product.n,
           "operands of another shape than the result");
  if (args.product.m <= 0 || args.product.n <= 0) return;
  if (!run_on_matrix_unit(stream, args)) emulate(stream, args);
}

}  // namespace mtrain::cuda
