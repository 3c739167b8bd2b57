// Attention forward, after Dao 2023 (arXiv:2307.08691): a tile of queries walks over the tiles of keys it may
// see with a running maximum and sum per row, so the probabilities never exist as a whole.
#include <cmath>

#include "mtrain/cpu/kernels/attention_tiles.h"

namespace mtrain::cpu::MT_ISA {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
/// A row's running maximum is only moved when the scores outgrow it by 2^kSlack: exponentials up to that are
/// harmless in float, and the sums need no rescaling for them.
constexpr float kSlack = 12;

/// Memory of one call: all keys and values laid out, and what each thread works on.
template <class Word>
struct ForwardMemory {
  Word *keys, *values;  // per tile and group: upright, across
  Word *q, *p;          // per thread: along; [kBlockRows, kTile / pack]
  float *o, *s;         // per thread: [kTile, width]; [kBlockRows, kTile]
  int64_t tile;         // words of one tile

  ForwardMemory(Pieces& pieces, int64_t packed_tiles, int64_t threads, int64_t width, int64_t pack) {
    tile = kTile * width / pack;
    keys = pieces.take<Word>(packed_tiles * tile);
    values = pieces.take<Word>(packed_tiles * tile);
    q = pieces.take<Word>(threads * tile);
    p = pieces.take<Word>(threads * kBlockRows * kTile / pack);
    o = pieces.take<float>(threads * kTile * width);
    s = pieces.take<float>(threads * kBlockRows * kTile);
  }
};

/// The queries at hand.
template <class Word>
struct QueryTile {
  const Word* q;
  Word* p;
  float *o, *s;
  int64_t width;
  float factor;      // scores times this are exponents of 2
  float top[kTile];  // running maximum of a row's scores, give or take kSlack
  Vec sum[kTile];    // lane-wise partial sums of a row's exponentials

  QueryTile(const ForwardMemory<Word>& m, int64_t thread, int64_t row_width, int64_t pack, float scale)
      : q(m.q + thread * m.tile),
        p(m.p + thread * kBlockRows * kTile / pack),
        o(m.o + thread * kTile * row_width),
        s(m.s + thread * kBlockRows * kTile),
        width(row_width),
        factor(scale * kLog2e) {
    for (int64_t r = 0; r < kTile; ++r) {
      top[r] = -kInfinity;
      sum[r] = Vec{};
    }
  }
};

/// Moves a row's maximum and scales what was summed under the old one (nothing yet when `first`).
template <class Word>
void raise_top(QueryTile<Word>& t, int64_t row, float top, bool first) {
  Vec shrink = exp2(splat((t.top[row] - top) * t.factor));
  t.top[row] = top;
  if (first) return;
  t.sum[row] *= shrink;
  float* o = t.o + row * t.width;
  for (int64_t d = 0; d < t.width; d += kLanes) store(o + d, load(o + d) * shrink);
}

/// A block of score rows becomes exponentials, as the left operand of the product with the values.
template <int kPack, class Word>
void soften(QueryTile<Word>& t, int64_t row, int64_t columns, bool first) {
  float tops[kBlockRows];
  for (int m = 0; m < kBlockRows; ++m) {
    const float* s = t.s + m * kTile;
    Vec top = load(s);
    for (int64_t c = kLanes; c < columns; c += kLanes) top = max(load(s + c), top);
    tops[m] = max_lane(top);
  }
  for (int m = 0; m < kBlockRows; ++m)
    if ((tops[m] - t.top[row + m]) * t.factor > kSlack) raise_top(t, row + m, tops[m], first);
  for (int m = 0; m < kBlockRows; ++m) {
    const float* s = t.s + m * kTile;
    Word* p = t.p + m * kTile / kPack;
    Vec shift = splat(t.top[row + m] == -kInfinity ? 0.0f : t.top[row + m] * t.factor), sum = t.sum[row + m];
    for (int64_t c = 0; c < columns; c += kLanes) {
      Vec e = exp2(load(s + c) * t.factor - shift);
      put_along(p + c / kPack, e);
      sum += e;
    }
    t.sum[row + m] = sum;
  }
}

/// Adds the keys and values of one tile, `keys` of them, to all rows. The first row sees `first_seen` keys
/// and each further row one more (causal); none sees more than `keys`. `first`: the rows' sums are still
/// empty.
template <class Unit, class Word>
void add_keys(QueryTile<Word>& t, int64_t rows, const Word* keys_upright, const Word* values, int64_t keys,
              int64_t first_seen, bool first) {
  constexpr int kPack = Unit::kPack;
  int64_t units = t.width / kPack;
  for (int64_t r = 0; r < rows; r += kBlockRows) {
    int64_t seen = std::min(keys, first_seen + r + kBlockRows - 1), columns = round_up(seen, kLanes);
    product_rows<Unit>({t.q + r * units, units, 1}, keys_upright, kTile, t.s, kTile, columns, units, false);
    for (int64_t m = 0; m < kBlockRows; ++m)
      for (int64_t c = std::min(keys, first_seen + r + m); c < columns; ++c) t.s[m * kTile + c] = -kInfinity;
    soften<kPack>(t, r, columns, first);
    product_rows<Unit>({t.p, kTile / kPack, 1}, values, t.width, t.o + r * t.width, t.width, t.width,
                       (seen + kPack - 1) / kPack, !first);
  }
}

template <class T, class Word>
void finish(const QueryTile<Word>& t, int64_t rows, const AttentionArgs& args, int64_t token, int64_t head) {
  for (int64_t r = 0; r < rows; ++r) {
    float sum = sum_lanes(t.sum[r]);
    args.lse[head * args.tokens + token + r] = t.top[r] * args.scale + std::log(sum);
    cast_row(SerialTeam{}, t.o + r * t.width,
             static_cast<T*>(args.o) + ((token + r) * args.heads + head) * args.head_dim, args.head_dim,
             1.0f / sum, false);
  }
}

template <class T>
void attention_of(CpuStream& cpu, const AttentionArgs& args) {
  using Unit = typename UnitOf<T>::Type;
  using Word = typename Unit::Word;
  constexpr int64_t kPack = Unit::kPack;
  Tiling tiling(args);
  int64_t width = tiling.width(), groups = args.groups, packed = tiling.all_tiles() * groups;
  auto m = cut_scratch(
      cpu, [&](Pieces& pieces) { return ForwardMemory<Word>(pieces, packed, cpu.threads(), width, kPack); });

  for_uneven_tasks(cpu, packed, [&](int64_t task, int thread) {
    tiling.locate(task / groups, [&](int64_t s, int64_t j) {
      int64_t token = tiling.start(s) + j * kTile, rows = std::min(kTile, tiling.length(s) - j * kTile);
      Word* along = m.q + thread * m.tile;
      lay_along(head_rows<const T>(args.k, args, token, task % groups, 0, rows, width), along);
      lay_upright(along, width / kPack, m.keys + task * m.tile);
      lay_along(head_rows<const T>(args.v, args, token, task % groups, 0, rows, width), along);
      lay_across(along, width, m.values + task * m.tile);
    });
  });
  for_uneven_tasks(cpu, tiling.all_tiles() * args.heads, [&](int64_t task, int thread) {
    int64_t at = tiling.all_tiles() - 1 - task / args.heads, h = task % args.heads,
            g = h / tiling.per_group();
    tiling.locate(at, [&](int64_t s, int64_t i) {
      int64_t n = tiling.length(s), token = tiling.start(s) + i * kTile,
              rows = std::min(kTile, n - i * kTile);
      QueryTile<Word> t(m, thread, width, kPack, args.scale);
      lay_along(head_rows<const T>(args.q, args, token, g, h % tiling.per_group(), rows, width),
                m.q + thread * m.tile);
      for (int64_t j = 0, end = args.causal ? i + 1 : tiling.tiles(s); j < end; ++j) {
        int64_t other = ((at - i + j) * groups + g) * m.tile;
        add_keys<Unit>(t, rows, m.keys + other, m.values + other, std::min(kTile, n - j * kTile),
                       args.causal ? (i - j) * kTile + 1 : kTile, j == 0);
      }
      finish<T>(t, rows, args, token, h);
    });
  });
}

}  // namespace

void attention(Stream& stream, const AttentionArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) { attention_of<T>(cpu_stream(stream), args); });
}

}  // namespace mtrain::cpu::MT_ISA
