#include "table.h"

#include "check.h"
#include "cuda_stream.h"
#include "mtrain/base/error.h"

namespace mtrain::cuda {

namespace {

template <auto kKernel, const char* kName, class Args>
void launched(Stream& stream, const Args& args) {
  cudaError_t status = kKernel(cuda_stream(stream).launch(), args);
  MT_CHECK(status != cudaErrorInvalidValue, "the CUDA kernel '", kName,
           "' does not take these arguments");
  check(status, kName);
}

// Both are held back for joint launches (pending.h). The result of a norm is available after
// waiting for the stream.
void update(Stream& stream, const AdamWArgs& args) {
  cuda_stream(stream).join_lanes();
  cuda_stream(stream).pending().add(args);
}
void norm(Stream& stream, const SquaredNormArgs& args) {
  CudaStream& s = cuda_stream(stream);
  s.join_lanes();
  if (s.pending().add(args)) return;
  s.synchronize();
  MT_CHECK(s.pending().add(args), "no slot for a norm");
}

void product(Stream& stream, const GemmArgs& args) { gemm(cuda_stream(stream), args); }
void quantized_product(Stream& stream, const QuantizedGemmArgs& args) {
  quantized_gemm(cuda_stream(stream), args);
}
void attend(Stream& stream, const AttentionArgs& args) { attention(cuda_stream(stream), args); }
void attend_backward(Stream& stream, const AttentionBackwardArgs& args) {
  attention_backward(cuda_stream(stream), args);
}

}  // namespace

uint32_t quant_scales_of(int architecture) {
  auto bit = [](QuantScale scale) { return 1u << static_cast<int>(scale); };
  if (architecture >= 100)
    return bit(QuantScale::tensor) | bit(QuantScale::e8m0) | bit(QuantScale::nvfp4);
  if (architecture >= 90) return bit(QuantScale::tensor) | bit(QuantScale::power_of_two);
  return architecture >= 89 ? bit(QuantScale::tensor) : 0;
}

KernelTable cuda_kernels() {
  KernelTable table;
#define MT_LAUNCHED(entry, Args)                                 \
  do {                                                           \
    static constexpr char kName[] = #entry;                      \
    table.entry = launched<&::mtrain::cuda::entry, kName, Args>; \
  } while (false)
  MT_LAUNCHED(rms_norm, RmsNormArgs);
  MT_LAUNCHED(rms_norm_backward, RmsNormBackwardArgs);
  MT_LAUNCHED(layer_norm, LayerNormArgs);
  MT_LAUNCHED(layer_norm_backward, LayerNormBackwardArgs);
  MT_LAUNCHED(rope, RopeArgs);
  MT_LAUNCHED(silu_mul, SiluMulArgs);
  MT_LAUNCHED(silu_mul_backward, SiluMulBackwardArgs);
  MT_LAUNCHED(gelu, GeluArgs);
  MT_LAUNCHED(gelu_backward, GeluBackwardArgs);
  MT_LAUNCHED(embedding, EmbeddingArgs);
  MT_LAUNCHED(embedding_backward, EmbeddingBackwardArgs);
  MT_LAUNCHED(gather_sum, GatherSumArgs);
  MT_LAUNCHED(row_dots, RowDotsArgs);
  MT_LAUNCHED(cross_entropy, CrossEntropyArgs);
  MT_LAUNCHED(cross_entropy_backward, CrossEntropyBackwardArgs);
  MT_LAUNCHED(add, AddArgs);
  MT_LAUNCHED(cast, CastArgs);
  MT_LAUNCHED(copy_blocks, CopyBlocksArgs);
  MT_LAUNCHED(column_sum, ColumnSumArgs);
  MT_LAUNCHED(dropout, DropoutArgs);
  MT_LAUNCHED(amax, AmaxArgs);
  MT_LAUNCHED(quantize, QuantizeArgs);
  MT_LAUNCHED(hadamard, HadamardArgs);
#undef MT_LAUNCHED
  table.adamw = update;
  table.squared_norm = norm;
  table.gemm = product;
  table.quantized_gemm = quantized_product;
  table.attention = attend;
  table.attention_backward = attend_backward;
  return table;
}

}  // namespace mtrain::cuda
