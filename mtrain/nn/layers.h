// The building blocks of transformers. Modules are values that hold references to parameters: the
// constructor adds the parameters, a call puts ops on the tape. Dimensions: T tokens, D embed, H
// heads, G key/value groups, E head dim, F mlp, V vocab.
#pragma once
#include <optional>

#include "mtrain/autograd/ops.h"
#include "mtrain/config/fields.h"
#include "mtrain/nn/head_shard.h"
#include "mtrain/nn/model.h"
#include "mtrain/nn/region.h"
#include "mtrain/nn/rope_table.h"
#include "mtrain/nn/scope.h"

namespace mtrain {

struct LinearOptions {
  float init_std = 0.02f;
  bool bias = false;
};

/// y[T,out] = x[T,in] · w[out,in]ᵀ + b, plus `residual` if it is defined. Local: only the weight is
/// sharded; a call does not communicate.
class MT_API Linear {
 public:
  Linear(const Scope& scope, Dim out, Dim in, LinearOptions options = {});
  Tensor operator()(const Tensor& x, const Tensor& residual = {}) const;
  /// The same at the end of a region, where each rank has a shard of the inputs: sums the products
  /// over the ranks, then adds bias and residual once.
  Tensor leave(const Region& region, const Tensor& x, const Tensor& residual = {}) const;
  /// Weight and bias, for Region::project.
  operator LinearWeights() const {  // NOLINT(google-explicit-constructor)
    return {weight.use(), bias ? bias->use() : Tensor(), quantized_};
  }
  Parameter& weight;
  Parameter* bias;

 private:
  const QuantizedProducts* quantized_;  // null: products are in the weight's type
};

/// Looks up rows of a table and returns the residual stream. A dimension "vocab" is sharded over
/// ranks: each rank looks up its own rows, and the results are summed.
class MT_API Embedding {
 public:
  Embedding(const Scope& scope, Dim rows, Dim embed, float init_std = 0.02f);
  Tensor operator()(const Tensor& ids_T) const;
  Parameter& weight;

 private:
  Region region_;
  bool sharded_;
  int64_t first_row_;
};

/// RMSNorm, or LayerNorm with bias.
class MT_API Norm {
 public:
  enum class Kind : uint8_t { rms, layer };
  Norm(const Scope& scope, Kind kind, Dim embed, float eps);
  Tensor operator()(const Tensor& x_TD) const;

 private:
  Parameter& weight_;
  Parameter* bias_;
  float eps_;
};

struct AttentionOptions {
  HeadLayout layout;
  bool bias = false;
  bool causal = true;
  float init_std = 0.02f, out_init_std = 0.02f;
  const RopeTable* rope = nullptr;  // null: no rotary positions; must outlive the module
};

/// Self-attention with one fused projection that holds queries, keys and values group by group.
/// Like the MLPs, it adds its result to `residual` if that is defined; the last product does this
/// when it stores its result, which saves a pass over memory.
class MT_API Attention {
 public:
  Attention(const Scope& scope, Dim embed, const AttentionOptions& options);
  Tensor operator()(const Tensor& x_TD, const ModelInput& input,
                    const Tensor& residual_TD = {}) const;

 private:
  AttentionOptions options_;
  Region region_;
  const BlockPlan* plan_;
  HeadShard heads_;
  ContextGroups context_;
  ContextKind context_kind_;
  Linear qkv_, out_;
};

/// down(silu(gate(x)) * up(x)).
class MT_API GatedMlp {
 public:
  GatedMlp(const Scope& scope, Dim embed, Dim mlp, float init_std, float out_init_std);
  Tensor operator()(const Tensor& x_TD, const Tensor& residual_TD = {}) const;

 private:
  Region region_;
  const BlockPlan* plan_;
  Linear gate_, up_, down_;
};

/// down(gelu(up(x))).
class MT_API Mlp {
 public:
  Mlp(const Scope& scope, Dim embed, Dim mlp, GeluKind kind, LinearOptions options,
      float out_init_std);
  Tensor operator()(const Tensor& x_TD, const Tensor& residual_TD = {}) const;

 private:
  GeluKind kind_;
  Region region_;
  const BlockPlan* plan_;
  Linear up_, down_;
};

/// The embedding's table for a tied output head; null on a stage that has neither. If embedding and
/// head are on different ranks, both ranks hold the table with the same initial values, and their
/// gradients are summed once per step, so that both copies stay equal; only the embedding's copy
/// counts in norms and checkpoints. `scope`: the embedding's. Call it on every stage, after the
/// embedding is built.
MT_API Parameter* tied_table(const Scope& scope, const StageRange& stage, Dim rows, Dim embed,
                             float init_std);

/// The output head: returns the loss per token if the input has targets, otherwise logits, which
/// need a vocabulary that is not sharded (else Error(bug)). `tied`: the embedding's table; null:
/// the head has its own matrix. A bias is sharded like the vocabulary.
class MT_API LmHead {
 public:
  LmHead(const Scope& scope, Dim vocab, Dim embed, int64_t valid_vocab, Parameter* tied,
         float init_std, bool bias = false);
  Tensor operator()(const Tensor& x_TD, const ModelInput& input) const;

 private:
  Region region_;
  Parameter& weight_;
  Parameter* bias_;
  const QuantizedProducts* quantized_;
  int64_t valid_vocab_;
  VocabularyPart part_;
};

/// Maps the rows of a fused query/key/value projection to Hugging Face's separate matrices: `q`,
/// `k` and `v` are their names; three equal names mean one matrix that stacks all queries, then all
/// keys, then all values.
MT_API std::vector<HfPiece> hf_qkv_pieces(const HeadLayout& layout, const std::string& q,
                                          const std::string& k, const std::string& v,
                                          bool transpose = false);

}  // namespace mtrain
