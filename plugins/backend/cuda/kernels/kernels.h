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

// Deleted here: kernels of the table that are functions of CudaStream instead (table.cc). A kernel
// that this backend lacks is deleted here too, and is then absent from the table. (nvcc cannot read
// a second declaration of a deleted function.)
#ifndef __CUDACC__
cudaError_t gemm(const Launch&, const GemmArgs&) = delete;
cudaError_t quantized_gemm(const Launch&, const QuantizedGemmArgs&) = delete;
cudaError_t attention(const Launch&, const AttentionArgs&) = delete;
cudaError_t attention_backward(const Launch&, const AttentionBackwardArgs&) = delete;
cudaError_t adamw(const Launch&, const AdamWArgs&) = delete;
cudaError_t squared_norm(const Launch&, const SquaredNormArgs&) = delete;
#endif

/// Every other kernel of the table, under the name of its entry; a kernel without a definition does
/// not link. Types are float, bf16 and fp16; others give cudaErrorInvalidValue. quantize() takes
/// tiles of 16 adjacent elements or a multiple along one dimension, with sides that divide 128.
#define MT_LAUNCHED(entry, Args) cudaError_t entry(const Launch&, const Args&);
MT_KERNELS(MT_LAUNCHED)
#undef MT_LAUNCHED

/// The values of packed codes, with the scales of their tiles: [lines, padded_k].
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

/// Attention for any shape and dtype, without cuDNN. `spans`: in device memory, one per sequence,
/// as are the `first_tokens` of dropout (null: none); those of the arguments, and cu_seqlens, are
/// ignored. `max_queries` and `max_keys`: the maxima over all spans.
struct PlainSpans {
  const AttentionSpan* spans;
  int64_t count, max_queries, max_keys;
  const int64_t* first_tokens;
};
cudaError_t plain_attention(const Launch&, const AttentionArgs&, const PlainSpans&);
cudaError_t plain_attention_backward(const Launch&, const AttentionBackwardArgs&,
                                     const PlainSpans&);

}  // namespace mtrain::cuda
