// How the tokens of a micro-batch are sharded over the ranks of a context-parallel axis. Each
// sequence is split into 2n chunks for n ranks; rank r holds chunk r followed by chunk 2n-1-r, so
// that causal attention is the same work on every rank (Llama 3, arXiv:2407.21783, section 3.3.2).
// Chunks may differ in length: the tokens beyond a multiple of 2n go to the ranks in turn, one
// each, across all sequences. Therefore nothing is padded, and ranks differ by at most one token.
// Value types; thread-safe.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "mtrain/base/export.h"
#include "mtrain/tensor/row_range.h"

namespace mtrain {

/// Sequences that are sharded over a ring of ranks.
class MT_API ContextRing {
 public:
  /// `lengths[s]` tokens of sequence s. REQUIRES: ranks >= 1.
  ContextRing(std::span<const int32_t> lengths, int ranks);

  int ranks() const { return ranks_; }
  int64_t sequences() const { return sequences_; }
  /// Number of tokens in a rank's earlier and later chunk of sequence s.
  int64_t early(int rank, int64_t s) const { return chunk(rank, s).early; }
  int64_t late(int rank, int64_t s) const { return chunk(rank, s).late; }
  /// Positions in the sequence where these chunks begin.
  int64_t early_at(int rank, int64_t s) const { return chunk(rank, s).early_at; }
  int64_t late_at(int rank, int64_t s) const { return chunk(rank, s).late_at; }
  /// The row of the first token of sequence s among the rank's rows.
  int64_t row(int rank, int64_t s) const { return chunk(rank, s).row; }
  int64_t length(int rank, int64_t s) const { return early(rank, s) + late(rank, s); }
  /// Number of rows of a rank, and of all ranks.
  int64_t rows(int rank) const { return rows_[static_cast<size_t>(rank)]; }
  int64_t tokens() const { return tokens_; }
  /// Whether all ranks have the same number of rows.
  bool even() const;
  /// The same sequences on a ring of groups of `near` adjacent ranks.
  /// REQUIRES: near divides ranks().
  ContextRing of_groups(int near) const;
  /// The ranges of rows, in the concatenated rows of ranks [first, first + count), that give each
  /// sequence in order: the rows of rank first / count of of_groups(count). REQUIRES: count divides
  /// first.
  std::vector<RowRange> in_order(int first, int count) const;

 private:
  struct Chunk {
    int64_t early = 0, late = 0, early_at = 0, late_at = 0, row = 0;
  };
  ContextRing(int ranks, int64_t sequences);
  Chunk& chunk(int rank, int64_t s) { return chunks_[static_cast<size_t>(rank * sequences_ + s)]; }
  const Chunk& chunk(int rank, int64_t s) const {
    return chunks_[static_cast<size_t>(rank * sequences_ + s)];
  }
  void place();

  int ranks_;
  int64_t sequences_, tokens_ = 0;
  std::vector<Chunk> chunks_;  // [ranks][sequences]
  std::vector<int64_t> rows_;  // by rank
};

/// One rank's rows of a micro-batch: those of one ring over the whole axis or, with dynamic context
/// parallelism, those of one ring per size.
class MT_API ContextSlice {
 public:
  struct Part {
    ContextRing ring;
    int first_rank;  // the ring is ranks [first_rank, first_rank + ring.ranks()) of the axis
    int64_t row;     // the first row of this ring in the slice
    std::vector<int64_t> starts = {};  // the first token of each sequence in the micro-batch
  };
  /// Sequence s is tokens [cu_seqlens[s], cu_seqlens[s + 1]) and is sharded over all ranks of the
  /// axis.
  ContextSlice(std::span<const int32_t> cu_seqlens, int ranks, int rank);
  /// Each sequence is on the ranks that context_places() assigns.
  static ContextSlice sized(std::span<const int32_t> cu_seqlens, int ranks, int rank,
                            int64_t max_tokens);

  const std::vector<Part>& parts() const { return parts_; }
  /// The ring over the whole axis. REQUIRES: parts().size() is 1.
  const ContextRing& ring() const;
  int ranks() const { return ranks_; }
  int rank() const { return rank_; }
  /// Number of rows of this rank.
  int64_t rows() const { return rows_; }
  /// The first row of each sequence on this rank, followed by the number of rows.
  const std::vector<int32_t>& bounds() const { return bounds_; }
  /// The tokens of the micro-batch that these rows represent, in order.
  const std::vector<RowRange>& tokens() const { return tokens_; }
  /// Selects this rank's values from those of all tokens.
  std::vector<int32_t> take(std::span<const int32_t> of_all_tokens) const;

 private:
  ContextSlice(int ranks, int rank) : ranks_(ranks), rank_(rank) {}
  void add(Part part, std::span<const int64_t> starts);

  int ranks_, rank_;
  int64_t rows_ = 0;
  std::vector<Part> parts_;
  std::vector<RowRange> tokens_;
  std::vector<int32_t> bounds_;
};

}  // namespace mtrain
