// The kernels a backend offers: one typed function pointer each, so that a changed argument is a
// compile error. A null pointer means that the backend lacks the kernel: an op with a composition
// of smaller kernels (mtrain/autograd/ops/compositions.h) runs that, any other op throws.
//
// Conventions. Pointers are device pointers, not owned, unless a comment says "on the host";
// matrices are row-major and contiguous unless strides are given; `dtype` is the element type of
// every `void*` without its own dtype; statistics, losses and gradients of parameters are float.
// `accumulate` means "+=" instead of "=". Dimensions: T tokens (batch folded in), D width, H query
// heads, G key/value groups, E head dim, V vocabulary. All kernels are deterministic: the same
// arguments give the same bits at any thread count.
#pragma once
#include <cstdint>

#include "mtrain/base/dtype.h"
#include "mtrain/base/quant_format.h"
#include "mtrain/kernel/attention_dropout.h"
#include "mtrain/kernel/quant_layout.h"
#include "mtrain/kernel/unary.h"
#include "mtrain/kernel/weight_codes.h"
#include "mtrain/tensor/activation_kernels.h"
#include "mtrain/tensor/loss_kernels.h"
#include "mtrain/tensor/product_kernels.h"
#include "mtrain/tensor/projection_kernels.h"

namespace mtrain {

class Stream;

/// y = (w + offset) * x * rstd, rstd = 1/sqrt(mean(x²) + eps), per row of x [rows, cols]; w [cols]
/// (Zhang & Sennrich 2019, arXiv:1910.07467). The sum w + offset is in float.
struct RmsNormArgs {
  const void* x;
  const void* w;  // null: a weight of 0, so pass offset = 1 for a norm without weight
  void* y;
  float* rstd;  // [rows]
  int64_t rows, cols;
  float eps;
  DType dtype;
  float offset = 0;
};
struct RmsNormBackwardArgs {
  const void* dy;
  const void* x;
  const void* w;  // null: a weight of 0, so pass offset = 1 for a norm without weight
  const float* rstd;
  void* dx;   // may be null: not needed
  float* dw;  // [cols], may be null
  int64_t rows, cols;
  bool accumulate_dx, accumulate_dw;
  DType dtype;
  float offset = 0;
};

/// y = (w + offset) * (x - mean) * rstd + b per row of x [rows, cols]; w and b [cols], mean and
/// rstd [rows] (Ba et al. 2016, arXiv:1607.06450).
struct LayerNormArgs {
  const void* x;
  const void* w;  // null: a weight of 0, so pass offset = 1 for a norm without weight
  const void* b;  // may be null
  void* y;
  float* mean;
  float* rstd;
  int64_t rows, cols;
  float eps;
  DType dtype;
  float offset = 0;
};
struct LayerNormBackwardArgs {
  const void* dy;
  const void* x;
  const void* w;  // null: a weight of 0, so pass offset = 1 for a norm without weight
  const float* mean;
  const float* rstd;
  void* dx;   // may be null
  float* dw;  // [cols], may be null
  float* db;  // [cols], may be null
  int64_t rows, cols;
  bool accumulate_dx, accumulate_dw, accumulate_db;
  DType dtype;
  float offset = 0;
};

/// Rotates pairs of the first rotary_dim elements of each head by the angle of the token's
/// position, in place (Su et al. 2021, arXiv:2104.09864). A pair is (i, i + rotary_dim/2), as in
/// GPT-NeoX and the Hugging Face Llama, or (2i, 2i + 1) if `interleaved`, as in the paper and
/// GPT-J. Rotates heads 0 … heads_per_group-1 of each group: head j of group g starts at x +
/// t*row_stride + g*group_stride + j*head_dim. `inverse` rotates by the negative angle (backward).
struct RopeArgs {
  void* x;
  const int32_t* positions;  // [tokens]
  const float* cos;          // [max_position, rotary_dim/2]
  const float* sin;
  int64_t tokens, groups, heads_per_group, head_dim, rotary_dim, row_stride, group_stride;
  bool inverse;
  DType dtype;
  bool interleaved = false;
};

/// A block of attention in which queries and keys are rows of different tensors, as for a sequence
/// whose tokens are sharded over ranks.
struct AttentionSpan {
  int32_t first_query = 0, queries = 0;  // rows [first_query, first_query + queries) of q, o, lse
  int32_t first_key = 0, keys = 0;       // attend to rows [first_key, first_key + keys) of k and v
  int32_t offset = 0;  // causal: query i attends to keys 0 … i + offset, or to the last of these.
                       // REQUIRES: causal: each query attends to a key. Dropout: query i is at the
                       // position of key i + offset
};
/// A number for each head and distance that is added to the scaled score (Raffel et al. 2019,
/// arXiv:1910.10683, 2.1): values[h*distances + zero + key - query], in positions of the sequence.
/// REQUIRES: the index is in [0, distances) for each query and key that attend; no cap.
struct AttentionBias {
  const float* values = nullptr;  // [heads, distances]; null: no bias
  int64_t distances = 0, zero = 0;
};
/// o = softmax(scale * q kᵀ + bias + mask) v per head and sequence, without storing the
/// probabilities (Dao 2023, arXiv:2307.08691). Query head h uses group h / (heads/groups). Sequence
/// s holds tokens [cu_seqlens[s], cu_seqlens[s+1]); tokens attend only within their sequence. lse
/// [heads, tokens] = log(sum(exp)) of the scaled, masked scores and the sink; o is [tokens,
/// heads*head_dim].
struct AttentionArgs {
  HeadsView q, k, v;  // q: heads/groups heads per group; k and v: one head per group
  void* o;
  float* lse;
  const int32_t* cu_seqlens;  // [sequences + 1], on the host
  int64_t sequences, tokens, heads, groups, head_dim;
  float scale;
  bool causal;
  DType dtype;
  const AttentionSpan* spans =
      nullptr;       // [sequences], on the host, replaces cu_seqlens; spans do not share query rows
  bool add = false;  // o is float; o and lse hold the result over other keys (0 and -inf: no keys
                     // yet), and the kernel merges its own result into them
  int64_t window = 0;  // causal: a query attends only to the last `window` of its keys; 0: to all.
                       // Other keys cost nothing
  float cap = 0;       // scaled scores x become cap * tanh(x / cap); 0: no cap
  const void* sinks = nullptr;  // [heads] in `dtype`: one more logit of each softmax, which has no
                                // value; may be null. `add`: passed once for each query
  AttentionDropout dropout = {};
  AttentionBias bias = {};
};
struct AttentionBackwardArgs {
  AttentionArgs forward;  // o (in `dtype`) and lse over all keys, as the last forward left them;
                          // `add` is ignored
  const void* d_o;        // [tokens, heads*head_dim]
  HeadsView dq, dk, dv;   // overwritten
  bool add = false;  // dq, dk and dv are float and added to. Otherwise every row of q must be in
                     // exactly one span; rows of dk and dv whose keys are in no span are not
                     // written
  float* d_bias = nullptr;  // [heads, distances] of the bias, added to; may be null
};
/// d_sinks[h] -= Σ_t exp(sinks[h] - lse[h,t]) <o[t,h], d_o[t,h]>: the gradient of the sinks of
/// attention, whose o and lse these are.
struct AttentionSinkBackwardArgs {
  const void* sinks;  // [heads]
  const void* o;      // [tokens, heads, head_dim]
  const void* d_o;
  const float* lse;  // [heads, tokens]
  float* d_sinks;    // [heads]
  int64_t tokens, heads, head_dim;
  DType dtype;
};

/// y[t] = table[ids[t] - first_row]. REQUIRES: ids are valid rows of the whole table.
struct EmbeddingArgs {
  const void* table;  // [rows, cols]
  const int32_t* ids;
  void* y;
  int64_t tokens, rows, cols;
  DType dtype;
  int64_t first_row =
      0;  // the table holds rows first_row … of the whole table; y is 0 for ids of other rows
};
/// d_table[ids[t] - first_row] += dy[t], in token order.
struct EmbeddingBackwardArgs {
  const void* dy;
  const int32_t* ids;
  float* d_table;  // [rows, cols], always accumulated into
  int64_t tokens, rows, cols;
  DType dtype;
  int64_t first_row = 0;
};

/// y[t] = addend[t] + Σ_j w(t,j) * x[source[t,j]], j ascending, summed in float and rounded once;
/// terms with a negative source are skipped. w(t,j) = weights[weight_of[t,j]]. `fan`: the number of
/// source rows per result row. Moves tokens to the rows of their experts and back (Fedus et al.
/// 2022, arXiv:2101.03961).
struct GatherSumArgs {
  const void* x;             // [any, cols]
  const int32_t* source;     // [rows, fan]
  const float* weights;      // null: every w is 1
  const int32_t* weight_of;  // [rows, fan]; null: w(t,j) = weights[t * fan + j]
  const void* addend;        // [rows, cols], may be null, may be y
  void* y;                   // [rows, cols]; no overlap with x
  int64_t rows, cols, fan;
  DType dtype;
};
/// out[r] = Σ_j <a[r / group], b[source[r,j]]>, j ascending; terms with a negative source are
/// skipped. This is the gradient of the weights of GatherSumArgs.
struct RowDotsArgs {
  const void* a;          // [rows / group, cols]
  const void* b;          // [any, cols]
  const int32_t* source;  // [rows, fan]
  float* out;             // [rows]
  int64_t rows, cols, group, fan;
  DType dtype;
};

/// y = a + factor * b + row; `b` and `row` may be null; the sum is rounded once.
struct AddArgs {
  const void* a;
  const void* b;
  void* y;
  int64_t count;
  DType dtype;
  const void* row = nullptr;  // [cols], in row_dtype, added to each row of y
  int64_t cols = 0;
  DType row_dtype = DType::f32;
  float factor = 1;
};

/// y = a * b. May be in place.
struct MulArgs {
  const void* a;
  const void* b;
  void* y;
  int64_t count;
  DType dtype;
};
/// y = f(x + shift), where `kind` selects f. May be in place.
struct UnaryArgs {
  const void* x;
  void* y;
  int64_t count;
  UnaryKind kind;
  float shift;
  DType dtype;
};

/// dst = scale * src (+ dst when accumulating), converting between any two of fp32, bf16, fp16.
struct CastArgs {
  const void* src;
  void* dst;
  int64_t count;
  float scale;
  bool accumulate;
  DType src_dtype, dst_dtype;
};

/// Copies blocks of `count` contiguous elements: block (i, j) of src goes to block (i, j) of dst,
/// or is added to it. Blocks of dst do not overlap, nor do src and dst. Strides are in elements;
/// those of src may be 0, so that one block goes to several places.
struct CopyBlocksArgs {
  const void* src;
  void* dst;
  int64_t outer, inner, count;  // i < outer, j < inner
  int64_t src_outer, src_inner, dst_outer, dst_inner;
  bool accumulate;  // the sum is computed in float and rounded once
  DType dtype;
};

/// out[c] (+)= sum over rows of x[r, c] in float: the gradient of a bias.
struct ColumnSumArgs {
  const void* x;
  float* out;
  int64_t rows, cols;
  bool accumulate;
  DType dtype;
};

/// y = x * keep / (1 - p), with keep drawn from Philox with the key (seed, name_key, step) at
/// first_index + i. The same call on dy is the backward (Srivastava et al. 2014).
struct DropoutArgs {
  const void* x;
  void* y;
  int64_t count, first_index;
  uint64_t seed, name_key, step;
  float p;
  DType dtype;
};

/// *amax = max |x|: NaN if x contains NaN, else infinity if x contains infinity.
struct AmaxArgs {
  const void* x;
  int64_t count;
  float* amax;
  bool accumulate;  // maximum with the previous value of *amax
  DType dtype;
};

/// x[r,c] ≈ factor · values[r,c], values = code · scale of the tile. Codes are rounded to nearest
/// (saturating) or stochastically. bf16 represents every value exactly (except in e8m0 tiles whose
/// amax is below 2^-109). A tile with infinity or NaN becomes all NaN. With dtype u8, x holds FP8
/// codes of the format, made with scale `tensor`: `values`, `codes` and `packed` receive these
/// codes unchanged, amax is not read, and factor is null.
struct QuantizeArgs {
  const void* x;      // [rows, cols]
  bf16* values;       // [rows, cols], may be null
  uint8_t* codes;     // [rows, cols], one code per byte, may be null
  float* scales;      // [ceil(rows / tile_rows), ceil(cols / tile_cols)], may be null; unused with
                      // `tensor`
  const float* amax;  // [1], tensor and nvfp4: the largest |x| of the whole tensor, from which its
                      // scale is computed; with delayed scaling, that of earlier steps
  float* factor;      // [1], output; may be null
  int64_t rows, cols;
  int64_t tile_rows = 1, tile_cols = 1;  // unused with `tensor`
  QuantFormat format = QuantFormat::e4m3;
  QuantScale scale = QuantScale::tensor;
  float headroom = 1;  // tensor: codes leave this factor of room above amax
  bool stochastic = false;
  uint64_t seed = 0, name_key = 0, step = 0;  // key of stochastic rounding
  int64_t first_row = 0, first_col = 0,
          all_cols = 0;  // position of the first element in the whole matrix, whose width is
                         // all_cols: stochastic rounding uses global indices
  DType dtype = DType::bf16;
  // The same codes and scales in the layout that quantized_gemm reads (kernel/quant_layout.h),
  // layout_of(args). Both may be null.
  uint8_t* packed = nullptr;      // [layout.code_bytes()]
  void* packed_scales = nullptr;  // [layout.scale_bytes()]; unused with `tensor`
  bool contract_rows = false;  // the contraction dimension of the product is rows; otherwise cols
};
MT_HD QuantLayout layout_of(const QuantizeArgs& a) {
  bool tiles = a.scale != QuantScale::tensor;
  return {.lines = a.contract_rows ? a.cols : a.rows,
          .k = a.contract_rows ? a.rows : a.cols,
          .format = a.format,
          .scale = a.scale,
          .group = !tiles            ? 0
                   : a.contract_rows ? a.tile_rows
                                     : a.tile_cols,
          .line_group = !tiles            ? 1
                        : a.contract_rows ? a.tile_cols
                                          : a.tile_rows};
}
/// C[M,N] (+)= A[M,K] B[N,K]ᵀ + bias + addend on the device's low-precision matrix unit. `product`
/// has the packed codes as a and b, the layouts' `k` as k, and C, bias and addend as in GemmArgs;
/// its scale_a and scale_b are the scales of whole tensors. Ignored: batch, lda, ldb, dtype,
/// transposes. Sums are in float.
struct QuantizedGemmArgs {
  GemmArgs product;
  QuantLayout a, b;
  const void* a_scales = nullptr;  // null with QuantScale::tensor
  const void* b_scales = nullptr;
};
/// y = the Walsh-Hadamard transform of 16 consecutive rows at a time, divided by 4. Before it,
/// row r is negated if bit r % 16 of `signs` is 1. The transform is orthogonal, so products that
/// sum over rows keep their value. Missing rows of the last 16 count as 0; y has ceil(rows / 16) *
/// 16 rows.
struct HadamardArgs {
  const void* x;
  void* y;
  int64_t rows, cols;
  uint32_t signs;
  DType dtype;
};

/// Dequantizes a weight to w[rows, cols] (kernel/weight_codes.h). Scales are floats or, for nf4
/// with double quantization, codes: block b of row r has the code scale_codes[r, b] in group
/// (first_block[r] + b) / kScaleGroup.
struct DecodeWeightArgs {
  const uint8_t* codes;        // [rows, code_bytes(format, cols)]
  const float* scales;         // [rows]; nf4: [rows, cols / kNf4Block]; null: double quantization
  const uint8_t* scale_codes;  // [rows, cols / kNf4Block]
  const float* groups;         // [groups, 2]: factor and offset
  const int32_t* first_block;  // [rows]
  void* w;
  int64_t rows, cols;  // nf4: cols is a multiple of kNf4Block
  WeightFormat format;
  DType dtype;
};

/// *out = sum of squares, in double, in a fixed order.
struct SquaredNormArgs {
  const float* x;
  int64_t count;
  double* out;  // on the host
};

/// AdamW, Adam with decoupled weight decay (Loshchilov & Hutter 2019, arXiv:1711.05101), in one
/// pass: g = grad*grad_scale; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g²; p -= lr (m/c1 /
/// (sqrt(v/c2) + eps) + decay p); c1 = 1 - b1^t, c2 = 1 - b2^t. Also writes the compute copy
/// `value` unless it is null.
struct AdamWArgs {
  float* param;
  const float* grad;
  float* exp_avg;
  float* exp_avg_sq;
  void* value;  // [count] in value_dtype, may be null
  int64_t count;
  float lr, beta1, beta2, eps, weight_decay, correction1, correction2, grad_scale;
  DType value_dtype;
};

/// Every kernel with its arguments: the one list that a new kernel is added to. The table, the
/// declarations of the backends' functions and their tables, profiles (profile.h), memory plans
/// (planning.h) and the declarations of work counts (work.h) are generated from it.
#define MT_KERNELS(X)                                          \
  X(gemm, GemmArgs)                                            \
  X(quantized_gemm, QuantizedGemmArgs)                         \
  X(rms_norm, RmsNormArgs)                                     \
  X(rms_norm_backward, RmsNormBackwardArgs)                    \
  X(layer_norm, LayerNormArgs)                                 \
  X(layer_norm_backward, LayerNormBackwardArgs)                \
  X(rope, RopeArgs)                                            \
  X(head_norm, HeadNormArgs)                                   \
  X(head_norm_backward, HeadNormBackwardArgs)                  \
  X(head_sums, HeadSumsArgs)                                   \
  X(clamp, ClampArgs)                                          \
  X(clamp_backward, ClampBackwardArgs)                         \
  X(attention, AttentionArgs)                                  \
  X(attention_backward, AttentionBackwardArgs)                 \
  X(attention_sink_backward, AttentionSinkBackwardArgs)        \
  X(sigmoid_mul, SigmoidMulArgs)                               \
  X(sigmoid_mul_backward, SigmoidMulBackwardArgs)              \
  X(silu_mul, SiluMulArgs)                                     \
  X(silu_mul_backward, SiluMulBackwardArgs)                    \
  X(gelu, GeluArgs)                                            \
  X(gelu_backward, GeluBackwardArgs)                           \
  X(gelu_mul, GeluMulArgs)                                     \
  X(gelu_mul_backward, GeluMulBackwardArgs)                    \
  X(relu, ReluArgs)                                            \
  X(relu_backward, ReluBackwardArgs)                           \
  X(embedding, EmbeddingArgs)                                  \
  X(embedding_backward, EmbeddingBackwardArgs)                 \
  X(gather_sum, GatherSumArgs)                                 \
  X(row_dots, RowDotsArgs)                                     \
  X(cross_entropy, CrossEntropyArgs)                           \
  X(cross_entropy_backward, CrossEntropyBackwardArgs)          \
  X(distillation, DistillationArgs)                            \
  X(distillation_backward, DistillationBackwardArgs)           \
  X(top_k_logits, TopKLogitsArgs)                              \
  X(top_k_distillation, TopKDistillationArgs)                  \
  X(top_k_distillation_backward, TopKDistillationBackwardArgs) \
  X(add, AddArgs)                                              \
  X(mul, MulArgs)                                              \
  X(unary, UnaryArgs)                                          \
  X(cast, CastArgs)                                            \
  X(copy_blocks, CopyBlocksArgs)                               \
  X(column_sum, ColumnSumArgs)                                 \
  X(dropout, DropoutArgs)                                      \
  X(amax, AmaxArgs)                                            \
  X(quantize, QuantizeArgs)                                    \
  X(hadamard, HadamardArgs)                                    \
  X(decode_weight, DecodeWeightArgs)                           \
  X(double_gemm, DoubleGemmArgs)                               \
  X(squared_norm, SquaredNormArgs)                             \
  X(adamw, AdamWArgs)

struct KernelTable {
#define MT_KERNEL(entry, Args) void (*entry)(Stream&, const Args&) = nullptr;
  MT_KERNELS(MT_KERNEL)
#undef MT_KERNEL
  /// The scale types that the device's matrix unit supports, one bit per QuantScale. For the
  /// others, quantized matrix products run as bf16 products of the rounded operands (gemm), with
  /// the same result up to the order of sums.
  uint32_t quant_scales = 0;
  bool multiplies(QuantScale scale) const {
    return quantized_gemm && (quant_scales >> static_cast<int>(scale) & 1u) != 0;
  }
};

}  // namespace mtrain
