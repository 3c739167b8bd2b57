// The differentiable ops: each a free function that checks its arguments and puts one coarse node
// on the tape. Shape suffixes: T tokens (batch folded in), D width, N outputs, H heads, G key/value
// groups, E head dim, F mlp, V vocabulary. Shape faults are bugs of the model's author and throw
// Error(bug) with both shapes. An op whose kernels the backend lacks runs its composition
// (ops/compositions.h), or throws Error(config) where it has none. For the rank's own thread.
#pragma once
#include <functional>
#include <memory>
#include <string_view>

#include "mtrain/autograd/quantized_products.h"
#include "mtrain/autograd/tape.h"

namespace mtrain {

/// y[T,N] = x[T,D] · w[N,D]ᵀ + b[N] + residual[T,N]; `b` and `residual` may be undefined. The sum
/// is rounded once. The gradient of w accumulates in float inside the GEMM. With `quantized`, which
/// must outlive the tape, the matrix products of forward and backward are in a low-precision type.
MT_API Tensor linear(const Tensor& x_TD, const Tensor& w_ND, const Tensor& b_N = {},
                     const Tensor& residual_TN = {}, const QuantizedProducts* quantized = nullptr);
/// y[T,D]: y[t] = table[ids[t] - first_row]. ids int32 [T] must be valid rows of the whole table;
/// `table` holds its rows from `first_row` on. y is 0 for ids of other rows.
MT_API Tensor embedding(const Tensor& table_VD, const Tensor& ids_T, int64_t first_row = 0);
/// y = (w + offset) * x / sqrt(mean(x²) + eps) per token. An undefined `w` is 0, so that offset 1
/// gives a norm without weight.
MT_API Tensor rms_norm(const Tensor& x_TD, const Tensor& w_D, float eps, float offset = 0);
/// y = (w + offset) * (x - mean) / sqrt(var + eps) + b per token; `w` as above; `b` may be
/// undefined.
MT_API Tensor layer_norm(const Tensor& x_TD, const Tensor& w_D, const Tensor& b_D, float eps,
                         float offset = 0);
/// y = a + b, element by element; equal shapes.
MT_API Tensor add(const Tensor& a, const Tensor& b);
/// y = a + factor * b, element by element, rounded once; equal shapes.
MT_API Tensor add_scaled(const Tensor& a, const Tensor& b, float factor);
/// y[T,N] = x[T,N] + b[N] + residual[T,N], rounded once; `b` or `residual` may be undefined.
MT_API Tensor add_bias(const Tensor& x_TN, const Tensor& b_N, const Tensor& residual_TN = {});
/// y = a * b, element by element.
MT_API Tensor mul(const Tensor& a, const Tensor& b);
/// y = factor * x.
MT_API Tensor scale(const Tensor& x, float factor);
/// y = silu(gate) * up.
MT_API Tensor silu_mul(const Tensor& gate_TF, const Tensor& up_TF);
/// y = gelu(x), element by element.
MT_API Tensor gelu(const Tensor& x, GeluKind kind);
/// y = gelu(gate) * up.
MT_API Tensor gelu_mul(const Tensor& gate_TF, const Tensor& up_TF, GeluKind kind);
/// y = max(x, 0) or its square, element by element.
MT_API Tensor relu(const Tensor& x, ReluKind kind);
/// y = map(x), element by element. For logits that a model returns; cross_entropy() and
/// linear_cross_entropy() apply their map themselves.
MT_API Tensor map_logits(const Tensor& x_TV, const LogitMap& map);
/// y = dropout(x) with probability p while training. The mask depends only on seed, name, step and
/// global token index; ExecutionContext::first_token and ExecutionContext::own_tokens give the
/// indices of the rows of the residual stream.
MT_API Tensor dropout(const Tensor& x_TD, float p, uint64_t name_key);

/// The layout of heads in a fused projection [T, G*(H/G + 2)*E]: group by group, first the query
/// heads of the group, then its key, then its value.
struct HeadLayout {
  int64_t heads = 1, groups = 1, head_dim = 1;
  int64_t queries_per_group() const { return heads / groups; }
  int64_t group_stride() const { return (queries_per_group() + 2) * head_dim; }
  int64_t width() const { return groups * group_stride(); }
};

/// Cosines and sines [max_position, rotary_dim/2] in float. The first rotary_dim elements of a head
/// are rotated, in pairs (i, i + rotary_dim/2) (half-split, as in GPT-NeoX and Hugging Face's
/// Llama), or (2i, 2i + 1) if `interleaved`.
struct RopeTable {
  Tensor cos, sin;
  bool interleaved = false;
};

/// Boundaries of the sequences of a folded batch: sequence s holds tokens [cu_seqlens[s],
/// cu_seqlens[s+1]). On the host.
using SequenceBounds = std::shared_ptr<const std::vector<int32_t>>;

/// Rotates query and key heads of qkv [T, layout.width()] by the position of their token, int32
/// positions_T. Takes over the tensor and rotates it in place.
MT_API Tensor rope(Tensor&& qkv, const HeadLayout& layout, const RopeTable& table,
                   const Tensor& positions_T);
/// How attention turns the products of queries and keys into weights of values.
struct AttentionScores {
  float scale = 1;     // factor of the products
  bool causal = true;  // a token attends to no later token of its sequence
  int64_t window = 0;  // causal: a token attends to its last `window` tokens, itself included; 0:
                       // to all earlier ones (Child et al. 2019, arXiv:1904.10509)
  float cap = 0;      // > 0: scaled scores x become cap * tanh(x / cap) (Gemma 2, arXiv:2408.00118)
  float dropout = 0;  // probability that a weight is dropped while training
  uint64_t dropout_key = 0;
  int64_t first_head = 0;  // dropout: index of head 0 among the heads of the whole model
  int64_t first_sink = 0;  // index of the sink of head 0
};
/// o[T, H*E] = attention within each sequence of qkv [T, layout.width()]. sinks_H: one more logit
/// in the softmax of each query head, which takes its share of the weights and has no value (Xiao
/// et al. 2023, arXiv:2309.17453), in the dtype of qkv; may be undefined.
MT_API Tensor attention(const Tensor& qkv, const HeadLayout& layout, const SequenceBounds& bounds,
                        const AttentionScores& scores, const Tensor& sinks_H = {});
/// One rank's shard of a vocabulary-parallel matrix, whose row 0 is id `first`. On input, `loss`
/// and `lse` of `join(targets, loss, lse)` hold this rank's part: minus the logit of the target (0
/// if it is on another rank) and log-sum-exp over its own ids. `join` replaces them in place by the
/// loss and log-sum-exp over the whole vocabulary. Collective: all ranks call it once per chunk of
/// tokens.
struct VocabularyPart {
  int64_t first = 0;
  int64_t largest = 0;  // the largest number of ids on a rank, so that all ranks divide the tokens
                        // into the same chunks
  std::function<void(const Tensor& targets_T, const Tensor& loss_T, const Tensor& lse_T)> join;
  /// Replaces floats by their sums over the ranks, in rank order. Collective, as `join`.
  std::function<void(const Tensor& values)> add = {};
};

/// A teacher whose distribution over the vocabulary the student learns. The loss of a token is then
/// alpha * cross-entropy + (1 - alpha) * divergence (mtrain/kernel/distillation.h), without a
/// factor temperature².
/// The teacher's distribution is given by its logits, or by its most likely ids: then the
/// divergence is that of these ids and of all others as one (mtrain/kernel/top_k_distillation.h).
struct Distillation {
  Tensor teacher_TV;   // logits, in the student's dtype; of a shard, those of the same ids
  int64_t shared = 0;  // ids of the whole vocabulary that student and teacher both have
  /// In place of teacher_TV: the k most likely ids of each token, int32, ascending and less than
  /// `shared`, on every rank; -1 where the target is ignored.
  Tensor ids_TK;
  Tensor log_probabilities_TK;  // float: of these ids, at `temperature`
  Tensor log_rest_T;            // float: of all others together; not read if k is `shared`
  float temperature = 1;        // > 0; divides the logits of both, for the divergence
  float beta = 0;   // 0: KL(teacher ‖ student), 1: KL(student ‖ teacher), else generalized JSD
  float alpha = 0;  // weight of the cross-entropy, in [0, 1]
  Tensor divergence_T, cross_entropy_T;  // float: receive the two parts; 0 where target < 0
  /// Releases what is known of the teacher.
  void release() { teacher_TV = {}, ids_TK = {}, log_probabilities_TK = {}, log_rest_T = {}; }
};

/// Loss per token, float [T]: -log softmax(logits)[target]; 0 where target < 0. Columns >=
/// `valid_vocab` are padding. Takes over the logits: backward writes their gradient in place. With
/// a `part`, the logits cover only its ids, and `valid_vocab` still counts ids of the whole
/// vocabulary. With a `map`, the loss is that of map(logits). With a `distillation`, which is
/// copied, the loss is that one.
MT_API Tensor cross_entropy(Tensor&& logits_TV, const Tensor& targets_T, int64_t valid_vocab,
                            const VocabularyPart& part, const LogitMap& map = {},
                            const Distillation* distillation = nullptr);
MT_API Tensor cross_entropy(Tensor&& logits_TV, const Tensor& targets_T, int64_t valid_vocab);

/// cross_entropy(linear(x, w, b), targets, valid_vocab, part, map) in chunks of tokens, so that the
/// logits of all tokens never exist at the same time. `loss_weight` is the gradient that backward
/// will pass for every token. It lets forward compute the gradients (and accumulate those of
/// parameters) while the logits of a chunk exist. 0: not known. All logits are kept for backward if
/// it is not known, or if w is the result of an op. With a `part`, `valid_vocab` still counts ids
/// of the whole vocabulary, and the gradient of x is a partial sum over ranks (Shoeybi et al. 2019,
/// arXiv:1909.08053, §3). With `later`, the gradients of w and b are deferred to it, and the
/// gradient of all logits is kept until then. `b` may be undefined; with a `part`, w has a row and
/// b an entry for each of the rank's own ids.
MT_API Tensor linear_cross_entropy(const Tensor& x_TD, const Tensor& w_VD, const Tensor& targets_T,
                                   int64_t valid_vocab, float loss_weight,
                                   const VocabularyPart& part = {},
                                   DeferredGradients* later = nullptr,
                                   const QuantizedProducts* quantized = nullptr,
                                   const Tensor& b_V = {}, const LogitMap& map = {},
                                   const Distillation* distillation = nullptr);

/// Releases the memory of the intermediate result `discarded` and returns `y`, which was computed
/// from it. Before backward reaches the op of `y`, the op that produced `discarded` computes it
/// again (output-discarding recomputation; Megatron-LM, megatron/core/tensor_parallel/random.py).
/// Does nothing but return `y` if no tape is recorded, or if that op cannot recompute its result
/// from its saved context; norms and activations can. REQUIRES: all ops that read `discarded` ran
/// before this call; it is not a view.
MT_API Tensor discard_until_backward(const Tensor& y, const Tensor& discarded);

/// Offloads the saved activations of a part of the model to host memory until backward needs them.
/// Call `offload_begin` on the input of the part and `offload_end` on its result. Values do not
/// change. Parts are consecutive and do not nest.
MT_API Tensor offload_begin(const Tensor& x);
MT_API Tensor offload_end(const Tensor& y);

/// Runs `block(x)` without saving its activations; backward runs it again (Chen et al. 2016,
/// arXiv:1604.06174). The result is bit-identical, since every op and random draw is a function of
/// its arguments.
MT_API Tensor recompute(std::function<Tensor(const Tensor&)> block, const Tensor& x);
/// Stores `x` between forward and backward. The function that it returns is called once, in
/// backward, and returns a tensor with the same values.
using KeepInput = std::function<std::function<Tensor()>(const Tensor& x)>;
/// The same; `keep` stores x; empty: x itself is stored.
MT_API Tensor recompute(std::function<Tensor(const Tensor&)> block, const Tensor& x,
                        const KeepInput& keep);
/// The same with two inputs; the second one may be undefined.
MT_API Tensor recompute(std::function<Tensor(const Tensor&, const Tensor&)> block, const Tensor& a,
                        const Tensor& b);

}  // namespace mtrain
