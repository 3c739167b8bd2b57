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

// Both wait for company (pending.h). A norm's result is there when the stream has been waited for.
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
void small_product(Stream& stream, const SmallGemmArgs& args) {
  small_gemm(cuda_stream(stream), args);
}
void attend(Stream& stream, const AttentionArgs& args) { attention(cuda_stream(stream), args); }
void attend_backward(Stream& stream, const AttentionBackwardArgs& args) {
  attention_backward(cuda_stream(stream), args);
}

}  // namespace

uint32_t small_scales_of(int architecture) {
  auto bit = [](SmallScale scale) { return 1u << static_cast<int>(scale); };
  if (architecture >= 100)
    return bit(SmallScale::tensor) | bit(SmallScale::e8m0) | bit(SmallScale::nvfp4);
  if (architecture >= 90) return bit(SmallScale::tensor) | bit(SmallScale::power_of_two);
  return architecture >= 89 ? bit(SmallScale::tensor) : 0;
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
  MT_LAUNCHED(quantise, QuantiseArgs);
  MT_LAUNCHED(hadamard, HadamardArgs);
#undef MT_LAUNCHED
  table.adamw = update;
  table.squared_norm = norm;
  table.gemm = product;
  table.small_gemm = small_product;
  table.attention = attend;
  table.attention_backward = attend_backward;
  return table;
}

}  // namespace mtrain::cuda
