// Shared by the forward and backward of attention: tile sizes, the layouts that tile products need,
// and the conversions between them. Keys and values are packed once per call, so every query tile
// and every head of a group reads them without conversion; the copies take O(tokens) memory.
// Tasks of one call may share a Tiling; it is immutable.
//
// Layouts of a tile of 64 rows (tokens) of `width` values, in units of a float or a bf16 pair
// (tile_product.h):
//   along    [64][width / pack]   units run along a row: left operand of products over the head dim
//   upright  [width / pack][64]   transpose of "along": right operand of products over the head dim
//   across   [64 / pack][width]   units run across rows: right operand of products over tokens
#pragma once
#include <optional>
#include <type_traits>

#include "mtrain/cpu/kernels/launch.h"
#include "mtrain/cpu/kernels/scratch.h"
#include "mtrain/cpu/kernels/tile_product.h"
#include "mtrain/cpu/kernels/vec_types.h"
#include "mtrain/kernel/cast.h"

namespace mtrain::cpu::MT_ISA {

constexpr int64_t kTile = 64;  // queries and keys per tile

/// The division of the problem into tiles. The tiles of sequence s are consecutive, for queries and
/// for keys; the last one of each may be partly filled.
class Tiling {
 public:
  /// `columns`: the width is rounded up to a multiple of this.
  Tiling(const AttentionArgs& args, int64_t columns)
      : args_(args),
        window_(args.causal && args.window > 0 ? args.window : kNoWindow),
        width_(round_up(args.head_dim, columns)) {
    for (int64_t s = 0; s < args.sequences; ++s) {
      int64_t squares = query_tiles(s) * std::min(key_tiles(s), window_ / kTile + 2);
      all_queries_ += query_tiles(s);
      all_keys_ += key_tiles(s);
      longest_queries_ = std::max(longest_queries_, query_tiles(s));
      longest_keys_ = std::max(longest_keys_, key_tiles(s));
      most_squares_ = std::max(most_squares_, squares);
      squares_ += squares;
    }
  }
  int64_t queries(int64_t s) const { return args_.spans ? args_.spans[s].queries : length(s); }
  int64_t keys(int64_t s) const { return args_.spans ? args_.spans[s].keys : length(s); }
  /// First row of the sequence.
  int64_t first_query(int64_t s) const {
    return args_.spans ? args_.spans[s].first_query : args_.cu_seqlens[s];
  }
  int64_t first_key(int64_t s) const {
    return args_.spans ? args_.spans[s].first_key : args_.cu_seqlens[s];
  }
  int64_t query_tiles(int64_t s) const { return (queries(s) + kTile - 1) / kTile; }
  int64_t key_tiles(int64_t s) const { return (keys(s) + kTile - 1) / kTile; }
  /// Number of rows of a tile.
  int64_t query_rows(int64_t s, int64_t i) const { return std::min(kTile, queries(s) - i * kTile); }
  int64_t key_rows(int64_t s, int64_t j) const { return std::min(kTile, keys(s) - j * kTile); }
  /// Number of keys of tile j that the first row of query tile i attends to; each further row
  /// attends to one more. Not clamped to the number of keys.
  int64_t first_seen(int64_t s, int64_t i, int64_t j) const {
    return args_.causal ? (i - j) * kTile + offset(s) + 1 : kTile;
  }
  /// Number of keys of tile j that are before the window of the first row of query tile i; each
  /// further row has one more. Not clamped to [0, number of keys]. Without a window, no row of the
  /// tile has any.
  int64_t first_hidden(int64_t s, int64_t i, int64_t j) const {
    return window_ == kNoWindow ? -kTile : (i - j) * kTile + offset(s) + 1 - window_;
  }
  /// Query tile i attends to key tiles [first_tile, seen_tiles).
  int64_t first_tile(int64_t s, int64_t i) const {
    return window_ == kNoWindow ? 0
                                : std::max<int64_t>(0, i * kTile + offset(s) + 1 - window_) / kTile;
  }
  int64_t seen_tiles(int64_t s, int64_t i) const {
    if (!args_.causal) return key_tiles(s);
    return std::min(key_tiles(s), (i * kTile + query_rows(s, i) - 1 + offset(s)) / kTile + 1);
  }
  /// The first query tile that attends to key tile j.
  int64_t first_looking(int64_t s, int64_t j) const {
    return args_.causal ? std::max<int64_t>(0, (j * kTile - offset(s)) / kTile) : 0;
  }
  /// One past the last query tile that attends to key tile j.
  int64_t end_looking(int64_t s, int64_t j) const {
    if (window_ == kNoWindow) return query_tiles(s);
    int64_t last = j * kTile + key_rows(s, j) + window_ - 2 - offset(s);
    return last < 0 ? 0 : std::min(query_tiles(s), last / kTile + 1);
  }
  /// Position of the first key of tile j relative to that of the first query of tile i.
  int64_t distance(int64_t s, int64_t i, int64_t j) const { return (j - i) * kTile - offset(s); }
  /// For dropout: the token of the first query, and that of the first key.
  int64_t first_query_token(int64_t s) const { return args_.dropout.first_tokens[s]; }
  int64_t first_key_token(int64_t s) const { return first_query_token(s) - offset(s); }
  /// Number of tiles of all sequences; of the longest sequence.
  int64_t all_queries() const { return all_queries_; }
  int64_t all_keys() const { return all_keys_; }
  int64_t longest_queries() const { return longest_queries_; }
  int64_t longest_keys() const { return longest_keys_; }
  /// Number of key tiles of all earlier sequences.
  int64_t first_key_tile(int64_t s) const {
    int64_t sum = 0;
    for (int64_t earlier = 0; earlier < s; ++earlier) sum += key_tiles(earlier);
    return sum;
  }
  /// Whether one task per (sequence, group of heads) keeps all threads busy: the largest task is at
  /// most half of a thread's share of the work.
  bool grouped(int64_t threads) const {
    return 2 * threads * most_squares_ <= args_.groups * squares_;
  }
  /// Head dim rounded up to whole blocks; the added columns are zero.
  int64_t width() const { return width_; }
  int64_t per_group() const { return args_.heads / args_.groups; }

  /// Calls f(sequence, tile within the sequence) for a global number of a query tile or key tile.
  template <class F>
  void locate_queries(int64_t tile, F&& f) const {
    int64_t s = 0;
    while (tile >= query_tiles(s)) tile -= query_tiles(s++);
    f(s, tile);
  }
  template <class F>
  void locate_keys(int64_t tile, F&& f) const {
    int64_t s = 0;
    while (tile >= key_tiles(s)) tile -= key_tiles(s++);
    f(s, tile);
  }

 private:
  int64_t length(int64_t s) const { return args_.cu_seqlens[s + 1] - args_.cu_seqlens[s]; }
  int64_t offset(int64_t s) const { return args_.spans ? args_.spans[s].offset : 0; }

  static constexpr int64_t kNoWindow = int64_t{1} << 40;  // more than any distance of tokens
  const AttentionArgs& args_;
  int64_t window_, width_, all_queries_ = 0, all_keys_ = 0, longest_queries_ = 0, longest_keys_ = 0,
                           most_squares_ = 0, squares_ = 0;
};

/// Soft-caps scores before they are scaled: x becomes outer * tanh(x * inner), so that the scaled
/// score is cap * tanh(scaled score / cap).
struct ScoreCap {
  float inner = 0, outer = 0;  // scale / cap, cap / scale; 0: no cap
  explicit ScoreCap(const AttentionArgs& args)
      : inner(args.cap > 0 ? args.scale / args.cap : 0),
        outer(args.cap > 0 ? args.cap / args.scale : 0) {}
  bool caps() const { return inner > 0; }
  void apply(float* scores, int64_t begin, int64_t end) const {
    for (int64_t c = begin; c < end; c += kLanes)
      store(scores + c, tanh(load(scores + c) * inner) * outer);
  }
};

/// Added to the scores of one head before they are scaled; none without `values`.
struct ScoreBias {
  const float* values = nullptr;              // of distances -zero … count - zero - 1
  float* sums = nullptr;                      // [count], of the gradient; may be null
  int64_t count = 0, zero = 0, distance = 0;  // distance: Tiling::distance() of the current tiles
  float factor = 1;                           // 1 / scale
  ScoreBias(const AttentionArgs& args, int64_t head)
      : values(args.bias.values ? args.bias.values + head * args.bias.distances : nullptr),
        count(args.bias.distances),
        zero(args.bias.zero),
        factor(1 / args.scale) {}
  /// Adds to scores [begin, end) of a row of the tile; there is none for distances out of range.
  void add_to(float* scores, int64_t row, int64_t begin, int64_t end) const {
    int64_t at = zero + distance - row, last = std::min(end, count - at);
    const float* from = values + at;
    for (int64_t c = std::max(begin, -at); c < last; ++c) scores[c] += from[c] * factor;
  }
  /// Adds the gradients of scores [begin, end) of a row to the sums.
  void collect(const float* gradients, int64_t row, int64_t begin, int64_t end) const {
    int64_t at = zero + distance - row, last = std::min(end, count - at);
    float* to = sums + at;
    for (int64_t c = std::max(begin, -at); c < last; ++c) to[c] += gradients[c];
  }
};

/// Dropout of the weights of one head in one sequence: none without `keep`.
struct HeadDropout {
  std::optional<AttentionKeep> keep;
  int64_t query = 0, key = 0;  // tokens of the first rows of the current tiles
  /// The factors of one row's weights for keys [begin, end) of the tile.
  void factors(int64_t row, int64_t begin, int64_t end, float* to) const {
    keep->row(query + row, key + begin, end - begin, to + begin);
  }
};

/// `rows` rows of a matrix of T with row stride `stride`; elements beyond `rows` and beyond `dim`
/// count as zero.
template <class T>
struct Rows {
  T* data;
  int64_t stride, rows, dim, width;
};

/// Prefetches rows that are needed soon. They are too far apart for the hardware prefetcher.
template <class T>
inline void prefetch(const Rows<const T>& rows) {
  for (int64_t r = 0; r < rows.rows; ++r)
    for (int64_t byte = 0, end = rows.dim * static_cast<int64_t>(sizeof(T)); byte < end; byte += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(rows.data + r * rows.stride) + byte);
}

/// Copies `dim` 16-bit values and pads to `width` with zeros. Rows are short, so vectors of fixed
/// size are faster than a call of memcpy.
template <class T>
MT_HD void copy_padded(const T* from, int64_t dim, int64_t width, T* to) {
  constexpr int64_t kStep = 4 * kLanes / static_cast<int64_t>(sizeof(T));
  int64_t d = 0;
  for (; d + kStep <= dim; d += kStep) {
    IntVec v;
    std::memcpy(&v, from + d, sizeof v);
    std::memcpy(static_cast<void*>(to + d), &v, sizeof v);
  }
  for (; d < dim; ++d) to[d] = from[d];
  for (; d < width; ++d) to[d] = T();
}

/// Fills a tile in the layout "along".
template <class T, class Word>
inline void lay_along(const Rows<const T>& from, Word* to) {
  constexpr int64_t kPack = std::is_same_v<Word, float> ? 1 : 2;
  int64_t units = from.width / kPack;
  for (int64_t r = 0; r < from.rows; ++r) {
    Word* row = to + r * units;
    if constexpr (kPack == 1) {
      cast_row(SerialTeam{}, from.data + r * from.stride, row, from.dim, 1.0f, false);
      for (int64_t d = from.dim; d < units; ++d) row[d] = 0;
    } else {
      copy_padded(from.data + r * from.stride, from.dim, from.width, reinterpret_cast<T*>(row));
    }
  }
  std::memset(to + from.rows * units, 0,
              sizeof(Word) * static_cast<size_t>((kTile - from.rows) * units));
}

/// "along" to "upright": a transpose of units, in 4 x 4 squares.
template <class Word>
inline void lay_upright(const Word* along, int64_t units, Word* to) {
  typedef Word Four __attribute__((vector_size(16)));
  for (int64_t r = 0; r < kTile; r += 4)
    for (int64_t d = 0; d < units; d += 4) {
      Four row[4];
      for (int i = 0; i < 4; ++i) std::memcpy(&row[i], along + (r + i) * units + d, sizeof(Four));
      transpose_four<Word>(row);
      for (int i = 0; i < 4; ++i) std::memcpy(to + (d + i) * kTile + r, &row[i], sizeof(Four));
    }
}

/// "along" to "across"; for floats the two are the same.
inline void lay_across(const float* along, int64_t width, float* to) {
  std::memcpy(to, along, sizeof(float) * static_cast<size_t>(kTile * width));
}
#if defined(__AVX512BF16__)
inline void lay_across(const uint32_t* along, int64_t width, uint32_t* to) {
  int64_t units = width / 2;
  for (int64_t r = 0; r < kTile; r += 2) {
    const uint32_t *even = along + r * units, *odd = even + units;
    uint32_t* row = to + r / 2 * width;
    for (int64_t d = 0; d < units; ++d) {
      row[2 * d] = (even[d] & 0xFFFFu) | (odd[d] << 16);
      row[2 * d + 1] = (even[d] >> 16) | (odd[d] & 0xFFFF0000u);
    }
  }
}
#endif

/// Stores a vector of floats as units of one row: as floats, or rounded to half as many bf16 pairs.
MT_HD void put_along(float* to, Vec v) { store(to, v); }
#if defined(__AVX512BF16__)
MT_HD void put_along(uint32_t* to, Vec v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)));
}
/// Stores two rows at the same columns as one row of pairs.
MT_HD void put_across(uint32_t* to, Vec even, Vec odd) {
  __m512i low = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(even)));
  __m512i high = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(odd)));
  _mm512_storeu_si512(to, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}
#endif

/// The rows of one head of a HeadsView.
template <class T>
inline Rows<T> head_rows(const HeadsView& view, const AttentionArgs& args, int64_t token,
                         int64_t group, int64_t head_in_group, int64_t rows, int64_t width) {
  T* data = static_cast<T*>(view.data) + token * view.row_stride + group * view.group_stride +
            head_in_group * args.head_dim;
  return {data, view.row_stride, rows, args.head_dim, width};
}

}  // namespace mtrain::cpu::MT_ISA
