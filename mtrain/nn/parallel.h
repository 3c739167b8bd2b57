// ParallelContext: the mesh axes that modules are cut over, as one rank sees them. Modules reach it
// through their Scope and name dimensions, not ranks: which axis cuts a dimension is said here,
// once. Refers to axes that outlive the model; for the rank's own thread.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/dist/context_attention.h"
#include "mtrain/dist/mesh.h"
#include "mtrain/dist/row_exchange.h"
#include "mtrain/tensor/placement.h"

namespace mtrain {

/// How many ranks lie along an axis; 1 for none.
inline int axis_size(const Axis* axis) { return axis ? axis->size() : 1; }
inline int axis_index(const Axis* axis) { return axis ? axis->index() : 0; }
/// The axis where it cuts anything, null where it has one rank.
inline const Axis* cutting(const Axis* axis) { return axis_size(axis) > 1 ? axis : nullptr; }

struct MT_API ParallelContext {
  const Axis* tp = nullptr;  // heads, MLPs and the vocabulary; null or of one rank: not cut, as for
                             // all axes here
  const Axis* cp = nullptr;  // the tokens of each sequence
  const Axis* ep = nullptr;  // experts
  const Axis* etp = nullptr;      // the width of each expert
  const Axis* edp = nullptr;      // replicas of experts
  const Axis* cp_near = nullptr;  // ranks of cp that exchange heads in a2a+p2p; null: there is none
  std::vector<ContextKind> cp_comm = {ContextKind::p2p};  // of all blocks, or of each
  /// A sequence takes as many ranks of cp as leave none of them more than these tokens of it; 0:
  /// always all.
  int64_t context_tokens = 0;
  const Axis* expert_group =
      nullptr;            // ep x etp as one, etp fastest: ranks that hold all experts together
  bool sequence = false;  // the residual stream is cut over tp by tokens
  bool overlap_tp =
      false;  // with `sequence`: the stream travels behind the products at the edges of regions
  bool overlap_wgrad = false;  // the experts' weight gradients are computed behind the exchange of
                               // their inputs' gradients
  /// What a rank does between beginning an exchange of tokens and waiting for it: another
  /// micro-batch's work. Null: nothing.
  std::shared_ptr<std::function<void()>> during_token_exchange;
  /// Called when an exchange of tokens starts. Null: nothing.
  std::shared_ptr<ExchangeWatch> exchange_watch;
  /// Ranks of tp that hold a copy of the same key/value head, where tp is larger than their number;
  /// null: none share.
  const Axis* kv_copies = nullptr;

  /// Tensors carry what the ranks of tp hold of them, and ops refuse what does not mix
  /// (autograd/placed.h).
  bool typed = false;

  /// The first and the last stage of this pipeline where they lie on different ranks: a table that
  /// both use is held twice.
  const Axis* embedding_group = nullptr;

  /// What the ranks of tp hold of the residual stream.
  Placement stream() const { return sequence && cutting(tp) ? Placement::S(0) : Placement::I(); }
  /// How the ranks of cp share keys and values in a block.
  ContextKind context_kind(int64_t block) const;
  /// The axis that cuts dimensions of this name ("heads", "mlp", "vocab", "experts", "expert_mlp");
  /// null: nothing does.
  const Axis* of(std::string_view dim) const;
};

/// A stretch of a dimension that is cut: local elements [local, local + size) are the whole's
/// [global, global + size).
struct ShardPiece {
  int64_t global = 0, local = 0, size = 0;
  bool is_primary =
      true;  // of several ranks that hold it, this one stands for all, in norms and in checkpoints
  bool operator==(const ShardPiece&) const = default;
};

/// What this rank holds along one dimension.
struct DimShard {
  int dim = 0;
  std::vector<ShardPiece> pieces;  // in local order
  int64_t size() const {
    int64_t n = 0;
    for (const auto& piece : pieces) n += piece.size;
    return n;
  }
};

/// The even cut of `size` elements: rank r of n gets [size*r/n, size*(r+1)/n).
MT_API ShardPiece even_piece(int64_t size, const Axis* axis);

/// Elements [begin, begin + size) of a parameter's gradient are summands over the ranks of `axis`
/// and are added up once per step.
struct PartialSum {
  const Axis* axis;
  int64_t begin, size;
};

}  // namespace mtrain
