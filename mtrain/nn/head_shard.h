// The heads of an attention layer on a tensor-parallel rank, and the matrices in its fused
// projection. Stateless.
#pragma once
#include "mtrain/autograd/ops.h"
#include "mtrain/nn/logical_matrix.h"
#include "mtrain/nn/parallel.h"

namespace mtrain {

/// The layout of `heads` query heads with `kv_heads` key/value heads (0: as many) of width
/// `head_dim` (0: hidden_size / heads). Throws Error(bug) if the sizes do not divide evenly; the
/// rules `heads-divide-hidden` and `kv-heads-divide-heads` check this for recipes before a model is
/// built.
MT_API HeadLayout layout_of_heads(int64_t hidden_size, int64_t heads, int64_t kv_heads = 0,
                                  int64_t head_dim = 0);

struct HeadShard {
  HeadLayout local;               // of this rank
  std::vector<ShardPiece> qkv;    // rows of the fused projection; empty: all
  std::vector<ShardPiece> heads;  // columns of the output projection; empty: all
  std::vector<ShardPiece> keys;   // of a key for each group, [groups * head_dim]; empty: all
  int64_t copied_begin = 0,
          copied_rows = 0;  // local rows of the projection that other ranks hold too
};

/// Assigns whole groups to ranks if tp divides their number. If tp is larger, several ranks share a
/// group's query heads and each holds a copy of its key and value; the copy of the first
/// rank is primary (Megatron-LM, megatron/core/transformer/attention.py). Throws Error(config) if
/// neither number divides the other, or the query heads cannot be divided evenly.
MT_API HeadShard shard_heads(const HeadLayout& whole, const Axis* tp);

/// The matrices "q" [heads * head_dim, cols], "k" and "v" [groups * head_dim, cols] of the whole
/// fused projection, which is stored group by group.
MT_API std::vector<LogicalMatrix> qkv_matrices(const HeadLayout& whole, int64_t cols);

}  // namespace mtrain
