#include "mtrain/dist/context_slice.h"

#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/dist/context_places.h"

namespace mtrain {

ContextRing::ContextRing(int ranks, int64_t sequences)
    : ranks_(ranks),
      sequences_(sequences),
      chunks_(static_cast<size_t>(ranks * sequences)),
      rows_(static_cast<size_t>(ranks)) {}

ContextRing::ContextRing(std::span<const int32_t> lengths, int ranks)
    : ContextRing(ranks, static_cast<int64_t>(lengths.size())) {
  MT_CHECK(ranks >= 1, ranks, " ranks");
  int64_t turn = 0;  // the rank that gets the next remaining token
  for (int64_t s = 0; s < sequences_; ++s) {
    int64_t length = lengths[static_cast<size_t>(s)], chunk_length = length / (2 * ranks);
    MT_CHECK(length >= 0, "sequence ", s, " has ", length, " tokens");
    for (int rank = 0; rank < ranks; ++rank)
      chunk(rank, s).early = chunk(rank, s).late = chunk_length;
    for (int64_t left = length % (2 * ranks), i = 0; i < left; ++i) {
      Chunk& next = chunk(static_cast<int>((turn + i) % ranks), s);
      ++(i < ranks ? next.early : next.late);
    }
    turn = (turn + length % (2 * ranks)) % ranks;
  }
  place();
}

// Computes the positions of the chunks from their lengths.
void ContextRing::place() {
  for (int64_t s = 0; s < sequences_; ++s) {
    int64_t at = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      chunk(rank, s).early_at = at;
      at += early(rank, s);
    }
    for (int rank = ranks_; rank-- > 0;) {
      chunk(rank, s).late_at = at;
      at += late(rank, s);
    }
    tokens_ += at;
    for (int rank = 0; rank < ranks_; ++rank) {
      int64_t& rows = rows_[static_cast<size_t>(rank)];
      chunk(rank, s).row = rows;
      rows += length(rank, s);
    }
  }
}

bool ContextRing::even() const {
  return std::all_of(rows_.begin(), rows_.end(), [&](int64_t n) { return n == rows_[0]; });
}

ContextRing ContextRing::of_groups(int near) const {
  MT_CHECK(near >= 1 && ranks_ % near == 0, near, " of ", ranks_);
  ContextRing groups(ranks_ / near, sequences_);
  for (int rank = 0; rank < ranks_; ++rank)
    for (int64_t s = 0; s < sequences_; ++s) {
      groups.chunk(rank / near, s).early += early(rank, s);
      groups.chunk(rank / near, s).late += late(rank, s);
    }
  groups.place();
  return groups;
}

std::vector<RowRange> ContextRing::in_order(int first, int count) const {
  MT_CHECK(count >= 1 && first % count == 0 && first + count <= ranks_, first, " and ", count,
           " of ", ranks_);
  std::vector<int64_t> begin(static_cast<size_t>(count));
  for (int i = 1; i < count; ++i)
    begin[static_cast<size_t>(i)] = begin[static_cast<size_t>(i - 1)] + rows(first + i - 1);
  std::vector<RowRange> ranges;
  auto add = [&](int64_t row, int64_t n) {
    if (!ranges.empty() && ranges.back().first + ranges.back().rows == row)
      ranges.back().rows += n;
    else if (n > 0)
      ranges.push_back({row, n});
  };
  for (int64_t s = 0; s < sequences_; ++s) {
    for (int i = 0; i < count; ++i)
      add(begin[static_cast<size_t>(i)] + row(first + i, s), early(first + i, s));
    for (int i = count; i-- > 0;)
      add(begin[static_cast<size_t>(i)] + row(first + i, s) + early(first + i, s),
          late(first + i, s));
  }
  return ranges;
}

ContextSlice::ContextSlice(std::span<const int32_t> cu_seqlens, int ranks, int rank)
    : ranks_(ranks), rank_(rank) {
  MT_CHECK(!cu_seqlens.empty() && rank >= 0 && rank < ranks, "rank ", rank, " of ", ranks);
  std::vector<int32_t> lengths;
  std::vector<int64_t> starts(cu_seqlens.begin(), cu_seqlens.end());
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s)
    lengths.push_back(cu_seqlens[s + 1] - cu_seqlens[s]);
  add({ContextRing(lengths, ranks), 0, 0}, starts);
  bounds_.push_back(static_cast<int32_t>(rows_));
}

ContextSlice ContextSlice::sized(std::span<const int32_t> cu_seqlens, int ranks, int rank,
                                 int64_t max_tokens) {
  MT_CHECK(max_tokens > 0 && !cu_seqlens.empty() && rank >= 0 && rank < ranks, "rank ", rank,
           " of ", ranks, ", ", max_tokens, " tokens");
  std::vector<int32_t> lengths;
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s)
    lengths.push_back(cu_seqlens[s + 1] - cu_seqlens[s]);
  std::vector<ContextPlace> at = context_places(lengths, ranks, max_tokens);
  ContextSlice slice(ranks, rank);
  for (int size = ranks; size >= 1; --size) {
    if (ranks % size != 0) continue;
    int first = rank / size * size;
    std::vector<int32_t> own;
    std::vector<int64_t> starts;
    for (size_t s = 0; s < lengths.size(); ++s)
      if (at[s].ranks == size && at[s].first == first)
        own.push_back(lengths[s]), starts.push_back(cu_seqlens[s]);
    if (!own.empty()) slice.add({ContextRing(own, size), first, 0}, starts);
  }
  slice.bounds_.push_back(static_cast<int32_t>(slice.rows_));
  return slice;
}

void ContextSlice::add(Part part, std::span<const int64_t> starts) {
  int me = rank_ - part.first_rank;
  const ContextRing& ring = part.ring;
  auto range = [&](int64_t token, int64_t n) {
    if (!tokens_.empty() && tokens_.back().first + tokens_.back().rows == token)
      tokens_.back().rows += n;
    else if (n > 0)
      tokens_.push_back({token, n});
  };
  for (int64_t s = 0; s < ring.sequences(); ++s) {
    int64_t start = starts[static_cast<size_t>(s)];
    range(start + ring.early_at(me, s), ring.early(me, s));
    range(start + ring.late_at(me, s), ring.late(me, s));
    bounds_.push_back(static_cast<int32_t>(rows_ + ring.row(me, s)));
  }
  part.row = rows_;
  part.starts.assign(starts.begin(), starts.begin() + ring.sequences());
  rows_ += ring.rows(me);
  parts_.push_back(std::move(part));
}

const ContextRing& ContextSlice::ring() const {
  MT_CHECK(parts_.size() == 1, parts_.size(), " rings");
  return parts_[0].ring;
}

std::vector<int32_t> ContextSlice::take(std::span<const int32_t> values) const {
  std::vector<int32_t> mine;
  mine.reserve(static_cast<size_t>(rows_));
  for (const RowRange& r : tokens_) {
    auto some = values.subspan(static_cast<size_t>(r.first), static_cast<size_t>(r.rows));
    mine.insert(mine.end(), some.begin(), some.end());
  }
  return mine;
}

}  // namespace mtrain
