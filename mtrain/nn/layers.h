// The layers that all models share: linear layers, embeddings, norms and the output head. Attention
// is in mtrain/nn/attention.h, MLPs are in mtrain/nn/mlp.h. Layers are values that hold references
// to parameters: the constructor adds the parameters, a call puts ops on the tape. For the rank's
// own thread. Dimensions: T tokens, D embed, V vocab.
#pragma once
#include <optional>

#include "mtrain/autograd/ops.h"
#include "mtrain/nn/adapter.h"
#include "mtrain/nn/model.h"
#include "mtrain/nn/region.h"
#include "mtrain/nn/scope.h"

namespace mtrain {

struct LinearOptions {
  float init_std = 0.02f;
  bool bias = false;
  std::vector<LogicalMatrix> matrices = {};  // of the weight; empty: it is one matrix
};

/// y[T,out] = x[T,in] · w[out,in]ᵀ + b, plus `residual` if it is defined, and plus the product of
/// its adapter if it has one. Local: only the weight is sharded; a call does not communicate.
class MT_API Linear {
 public:
  Linear(const Scope& scope, Dim out, Dim in, LinearOptions options = {});
  Tensor operator()(const Tensor& x, const Tensor& residual = {}) const;
  /// The same at the end of a region, where each rank has a shard of the inputs: sums the products
  /// over the ranks, then adds bias and residual once.
  Tensor leave(const Region& region, const Tensor& x, const Tensor& residual = {}) const;
  /// For Region::project.
  operator Projection() const {  // NOLINT(google-explicit-constructor)
    return {{weight.use(), bias ? bias->use() : Tensor(), quantized_, weight.coded.get()},
            adapter_ ? &*adapter_ : nullptr};
  }
  Parameter& weight;
  Parameter* bias;
  /// The adapters of the layer; null: it has none.
  const Adapter* adapter() const { return adapter_ ? &*adapter_ : nullptr; }

 private:
  const QuantizedProducts* quantized_;  // null: products are in the weight's type
  std::optional<Adapter> adapter_;
};

/// Looks up rows of a table and returns the residual stream. A dimension "vocab" is sharded over
/// ranks: each rank looks up its own rows, and the results are summed.
class MT_API Embedding {
 public:
  Embedding(const Scope& scope, Dim rows, Dim embed, float init_std = 0.02f);
  /// Id i is row `offset` + i.
  Embedding(const Scope& scope, Dim rows, Dim embed, float init_std, int64_t offset);
  /// Reads a table that another layer has added. `rows`: its first dimension.
  Embedding(const Scope& scope, const Dim& rows, Parameter& table);
  Tensor operator()(const Tensor& ids_T) const;
  Parameter& weight;

 private:
  Region region_;
  bool sharded_;
  int64_t first_row_;
};

struct NormOptions;

/// RMSNorm or LayerNorm.
class MT_API Norm {
 public:
  enum class Kind : uint8_t { rms, layer };
  Norm(const Scope& scope, const NormOptions& options, const Dim& embed);
  /// With a weight; LayerNorm has a bias, too.
  Norm(const Scope& scope, Kind kind, const Dim& embed, float eps);
  Tensor operator()(const Tensor& x_TD) const;

 private:
  Kind kind_;
  Parameter *weight_, *bias_;  // null: none
  float eps_, offset_;         // the result is multiplied by weight + offset
};

struct NormOptions {
  Norm::Kind kind = Norm::Kind::rms;
  float eps = 1e-5f;
  bool weight = true, bias = false;
  bool zero_centered = false;  // the factor is 1 + weight
};

/// The embedding matrix for a tied output head; null on a stage that has neither. If embedding and
/// head are on different ranks, both ranks hold the matrix with the same initial values, and their
/// gradients are summed once per step, so that both copies stay equal; only the embedding's copy
/// counts in norms and checkpoints. `scope`: the embedding's. Call it on every stage, after the
/// embedding is built.
MT_API Parameter* tied_table(const Scope& scope, const StageRange& stage, Dim rows, Dim embed,
                             float init_std);
/// The same for any stage that reads the embedding matrix: returns the matrix of this rank, or a
/// copy that this call adds. All ranks of ParallelContext::embedding_group must call it.
MT_API Parameter& shared_table(const Scope& scope, const StageRange& stage, Dim rows, Dim embed,
                               float init_std);

/// The output head: returns the loss per token if the input has targets, otherwise logits, which
/// need a vocabulary that is not sharded (else Error(bug)), or ModelInput::logits_of_part. `tied`:
/// the embedding matrix; null: the head has its own matrix. A bias is sharded like the vocabulary.
/// Logits are map(x · wᵀ + b).
class MT_API LmHead {
 public:
  LmHead(const Scope& scope, Dim vocab, Dim embed, int64_t valid_vocab, Parameter* tied,
         float init_std, bool bias = false, const LogitMap& map = {});
  Tensor operator()(const Tensor& x_TD, const ModelInput& input) const;

 private:
  Region region_;
  Parameter& weight_;
  Parameter* bias_;
  const QuantizedProducts* quantized_;
  int64_t valid_vocab_;
  VocabularyPart part_;
  LogitMap map_;
};

}  // namespace mtrain
