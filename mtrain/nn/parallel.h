// ParallelContext: the mesh axes over which modules are sharded, as seen by one rank. Modules
// get it from their Scope and name dimensions, not ranks: only this class maps a dimension to its
// axis. Refers to axes that outlive the model; for the rank's own thread.
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

/// The number of ranks of an axis; 1 for null.
inline int axis_size(const Axis* axis) { return axis ? axis->size() : 1; }
inline int axis_index(const Axis* axis) { return axis ? axis->index() : 0; }
/// The axis if it has more than one rank, else null.
inline const Axis* active_axis(const Axis* axis) { return axis_size(axis) > 1 ? axis : nullptr; }

struct MT_API ParallelContext {
  const Axis* tp = nullptr;   // heads, MLPs and the vocabulary; null or one rank: not sharded, as
                              // for all axes here
  const Axis* cp = nullptr;   // the tokens of each sequence
  const Axis* ep = nullptr;   // experts
  const Axis* etp = nullptr;  // the width of each expert
  const Axis* edp = nullptr;  // replicas of experts
  const Axis* cp_a2a_group =
      nullptr;  // the ranks of cp that exchange heads in a2a+p2p; null: unused
  std::vector<ContextKind> cp_comm = {ContextKind::p2p};  // one for all blocks, or one per block
  /// Each sequence is sharded over the fewest ranks of cp that get at most this number of its
  /// tokens each; 0: over all ranks.
  int64_t max_tokens_per_cp_rank = 0;
  const Axis* expert_group =
      nullptr;  // ep x etp as one axis, etp fastest: ranks that together hold all experts
  bool sequence_parallel = false;  // the residual stream is sharded over tp by tokens
  bool overlap_tp = false;     // with `sequence_parallel`: transfers of the stream overlap with the
                               // products at region boundaries
  bool overlap_wgrad = false;  // the experts' weight gradients are computed during the exchange of
                               // their inputs' gradients
  /// Called between the start of a token exchange and the wait for it, to run another micro-batch's
  /// work. Null: no call.
  std::shared_ptr<std::function<void()>> during_token_exchange;
  /// Called when an exchange of tokens starts. Null: no call.
  std::shared_ptr<ExchangeWatch> exchange_watch;
  /// The ranks of tp that hold copies of the same key/value head, if tp exceeds the number of these
  /// heads; null: no copies.
  const Axis* kv_copies = nullptr;

  /// Tensors carry their placement on tp, and ops refuse invalid combinations
  /// (autograd/result_placement.h).
  bool tracks_placements = false;

  /// The ranks of this pipeline that hold a copy of the embedding matrix: those of the first stage,
  /// of the last one, whose head may be tied, and of one with multi-token prediction. Null: one
  /// rank.
  const Axis* embedding_group = nullptr;

  /// The placement of the residual stream on tp.
  Placement residual_placement() const {
    return sequence_parallel && active_axis(tp) ? Placement::S(0) : Placement::I();
  }
  /// How the ranks of cp share keys and values in a block.
  ContextKind context_kind(int64_t block) const;
  /// The axis that shards dimensions of this name ("heads", "mlp", "vocab", "experts",
  /// "expert_mlp"); null: none.
  const Axis* of(std::string_view dim) const;
};

/// A range of a sharded dimension: local elements [local, local + size) are elements [global,
/// global + size) of the whole.
struct ShardPiece {
  int64_t global = 0, local = 0, size = 0;
  bool is_primary =
      true;  // of the ranks that hold it, this one counts it in norms and saves it in checkpoints
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

/// The even split of `size` elements: rank r of n gets [size*r/n, size*(r+1)/n).
MT_API ShardPiece even_piece(int64_t size, const Axis* axis);

/// Elements [begin, begin + size) of a parameter's gradient are partial sums over the ranks of
/// `axis`, which are summed once per step.
struct PartialSum {
  const Axis* axis;
  int64_t begin, size;
};

}  // namespace mtrain
