// The kernels of this plugin as plain functions: each queues its work on a stream and returns.
// Arguments are those of the kernel table, in device memory. No exceptions and no library except
// the CUDA runtime, so that nvcc has little to parse. Thread-safe for different streams.
#pragma once
#include <cuda_runtime_api.h>

#include "mtrain/tensor/kernel_table.h"

namespace mtrain::cuda {

/// Where a call runs. `scratch` returns device memory that is valid until its next call for the
/// stream; null if there is none.
struct Launch {
  cudaStream_t stream;
  int processors;  // of the device
  void* owner;
  void* (*scratch_of)(void* owner, size_t bytes);
  void* scratch(size_t bytes) const { return scratch_of(owner, bytes); }
};

/// Success if the current device can run this build's kernels.
cudaError_t kernels_present();

/// For float, bf16 and fp16; any other dtype returns cudaErrorInvalidValue.
cudaError_t rms_norm(const Launch&, const RmsNormArgs&);
cudaError_t rms_norm_backward(const Launch&, const RmsNormBackwardArgs&);
cudaError_t layer_norm(const Launch&, const LayerNormArgs&);
cudaError_t layer_norm_backward(const Launch&, const LayerNormBackwardArgs&);
cudaError_t rope(const Launch&, const RopeArgs&);
cudaError_t silu_mul(const Launch&, const SiluMulArgs&);
cudaError_t silu_mul_backward(const Launch&, const SiluMulBackwardArgs&);
cudaError_t gelu(const Launch&, const GeluArgs&);
cudaError_t gelu_backward(const Launch&, const GeluBackwardArgs&);
cudaError_t embedding(const Launch&, const EmbeddingArgs&);
cudaError_t embedding_backward(const Launch&, const EmbeddingBackwardArgs&);
cudaError_t gather_sum(const Launch&, const GatherSumArgs&);
cudaError_t row_dots(const Launch&, const RowDotsArgs&);
cudaError_t cross_entropy(const Launch&, const CrossEntropyArgs&);
cudaError_t cross_entropy_backward(const Launch&, const CrossEntropyBackwardArgs&);
cudaError_t add(const Launch&, const AddArgs&);
cudaError_t cast(const Launch&, const CastArgs&);
cudaError_t copy_blocks(const Launch&, const CopyBlocksArgs&);
cudaError_t column_sum(const Launch&, const ColumnSumArgs&);
cudaError_t dropout(const Launch&, const DropoutArgs&);
cudaError_t amax(const Launch&, const AmaxArgs&);
/// REQUIRES: tiles of whole runs of 16 elements along one dimension, with sides that divide 128.
cudaError_t quantize(const Launch&, const QuantizeArgs&);
cudaError_t hadamard(const Launch&, const HadamardArgs&);
/// The values of packed codes, including the scales of their tiles: [lines, padded_sum].
cudaError_t quantized_values(const Launch&, const QuantLayout&, const void* codes,
                             const void* scales, bf16* values);
/// out[0] = alpha * scale_a * scale_b, out[1] = beta, in device memory.
cudaError_t joined_scales(const Launch&, const GemmArgs&, float beta, float* out);
/// Updates many tensors in one launch. REQUIRES: at most kAdamWBatch; all `value` have one dtype or
/// are null.
constexpr int kAdamWBatch = 32;
cudaError_t adamw(const Launch&, const AdamWArgs* list, int count);
/// out[i] = sum of squares of tensor i, in memory that the device can write to. Each sum is
/// independent of the other tensors. REQUIRES: at most kNormBatch.
constexpr int kNormBatch = 128;
cudaError_t squared_norms(const Launch&, const SquaredNormArgs* list, int count, double* out);
/// Any product of GemmArgs, slowly: for shapes that the library does not support.
cudaError_t plain_gemm(const Launch&, const GemmArgs&);

/// Attention for any shape and dtype, without cuDNN. `spans`: in device memory, one per sequence;
/// cu_seqlens and spans of the arguments are ignored. `max_queries` and `max_keys`: the maxima over
/// all spans.
struct PlainSpans {
  const AttentionSpan* spans;
  int64_t count, max_queries, max_keys;
};
cudaError_t plain_attention(const Launch&, const AttentionArgs&, const PlainSpans&);
cudaError_t plain_attention_backward(const Launch&, const AttentionBackwardArgs&,
                                     const PlainSpans&);

}  // namespace mtrain::cuda
