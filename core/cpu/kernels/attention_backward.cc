// Attention backward: the probabilities come back from the scores and lse, tile by tile. One task owns one
// head of one sequence, so that dq, dk and dv are added in a fixed order; heads that share a key sum theirs
// at the end.
#include "mtrain/cpu/kernels/attention_tiles.h"

namespace mtrain::cpu::MT_ISA {

namespace {

/// Memory of one call: all keys and values laid out, the heads' own dk and dv, and what each thread works on.
template <class Word>
struct BackwardMemory {
  Word *k_upright, *k_across, *v_upright;             // per tile and group
  float *dk, *dv;                                     // per tile and head: [kTile, width]
  Word *q_along, *q_across, *d_o_along, *d_o_across;  // per thread
  Word *p_across, *ds_across, *ds_along;              // per thread, [kTile, kTile] in the layout's units
  float *dq, *p, *ds;                                 // per thread: [kTile, width]; [kBlockRows, kTile] twice
  int64_t tile, square;                               // words of a tile of rows, of probabilities

  BackwardMemory(Pieces& pieces, int64_t packed_tiles, int64_t head_tiles, int64_t threads, int64_t width,
                 int64_t pack) {
    tile = kTile * width / pack;
    square = kTile * kTile / pack;
    for (Word** all : {&k_upright, &k_across, &v_upright}) *all = pieces.take<Word>(packed_tiles * tile);
    for (float** all : {&dk, &dv}) *all = pieces.take<float>(head_tiles * kTile * width);
    for (Word** own : {&q_along, &q_across, &d_o_along, &d_o_across})
      *own = pieces.take<Word>(threads * tile);
    for (Word** own : {&p_across, &ds_across, &ds_along}) *own = pieces.take<Word>(threads * square);
    dq = pieces.take<float>(threads * kTile * width);
    p = pieces.take<float>(threads * kBlockRows * kTile);
    ds = pieces.take<float>(threads * kBlockRows * kTile);
  }
  /// The same with the per-thread pieces moved on to one thread's.
  BackwardMemory of_thread(int64_t thread, int64_t width) const {
    BackwardMemory m = *this;
    for (Word** own : {&m.q_along, &m.q_across, &m.d_o_along, &m.d_o_across}) *own += thread * tile;
    for (Word** own : {&m.p_across, &m.ds_across, &m.ds_along}) *own += thread * square;
    m.dq += thread * kTile * width;
    m.p += thread * kBlockRows * kTile;
    m.ds += thread * kBlockRows * kTile;
    return m;
  }
};

/// The queries at hand: one thread's memory and the rows' statistics.
template <class Word>
struct GradTile {
  BackwardMemory<Word> m;
  int64_t width;
  float factor;  // scores times this, less `lse`, are exponents of 2
  float lse[kTile], delta[kTile];
};

/// One tile of keys: how many there are, and how many the first row of queries sees (one more with each
/// further row). Whether it is the first that these queries meet, and these the first queries that it meets:
/// sums start there.
struct KeyRange {
  int64_t keys, first_seen;
  bool first_of_queries, first_of_keys;
  int64_t seen(int64_t row) const { return std::clamp<int64_t>(first_seen + row, 0, keys); }
};

/// p = 2^(factor s - lse), ds = p (dp - delta), in place of s and dp; 0 where a row does not see the key.
template <class Word>
void score_gradients(GradTile<Word>& t, int64_t row, KeyRange range, int64_t columns) {
  for (int64_t m = 0; m < kBlockRows; ++m) {
    float *p = t.m.p + m * kTile, *ds = t.m.ds + m * kTile;
    Vec shift = splat(t.lse[row + m]), delta = splat(t.delta[row + m]);
    for (int64_t c = 0; c < columns; c += kLanes) {
      Vec probability = exp2(load(p + c) * t.factor - shift);
      store(p + c, probability);
      store(ds + c, probability * (load(ds + c) - delta));
    }
    for (int64_t c = range.seen(row + m); c < columns; ++c) p[c] = ds[c] = 0;
  }
}

/// Lays a block of p and ds out for the products that use them.
void lay_block(GradTile<float>& t, int64_t row, int64_t columns) {
  for (int64_t m = 0; m < kBlockRows; ++m)
    for (int64_t c = 0; c < columns; c += kLanes) {
      store(t.m.p_across + (row + m) * kTile + c, load(t.m.p + m * kTile + c));
      store(t.m.ds_across + (row + m) * kTile + c, load(t.m.ds + m * kTile + c));
    }
}
/// For floats one layout serves both products with ds.
const float* ds_rows(const GradTile<float>& t, int64_t row) {
  return t.m.ds_across + row * kTile;
}

#if defined(__AVX512BF16__)
void lay_block(GradTile<uint32_t>& t, int64_t row, int64_t columns) {
  for (int64_t m = 0; m < kBlockRows; m += 2)
    for (int64_t c = 0; c < columns; c += kLanes) {
      int64_t even = m * kTile + c, odd = even + kTile, across = (row + m) / 2 * kTile + c, along = kTile / 2;
      put_across(t.m.p_across + across, load(t.m.p + even), load(t.m.p + odd));
      Vec ds_even = load(t.m.ds + even), ds_odd = load(t.m.ds + odd);
      put_across(t.m.ds_across + across, ds_even, ds_odd);
      put_along(t.m.ds_along + (row + m) * along + c / 2, ds_even);
      put_along(t.m.ds_along + (row + m + 1) * along + c / 2, ds_odd);
    }
}
const uint32_t* ds_rows(const GradTile<uint32_t>& t, int64_t row) {
  return t.m.ds_along + row * kTile / 2;
}
#endif

/// Adds what one tile of queries and one tile of keys give to dq (in the tile), dk and dv. `at` finds the
/// tile of keys.
template <class Unit, class Word>
void add_gradients(GradTile<Word>& t, int64_t rows, int64_t at, KeyRange range, float* dk, float* dv) {
  constexpr int64_t kPack = Unit::kPack;
  const BackwardMemory<Word>& m = t.m;
  int64_t width = t.width, units = width / kPack, row_end = round_up(rows, kBlockRows);
  for (int64_t r = 0; r < row_end; r += kBlockRows) {
    int64_t seen = range.seen(r + kBlockRows - 1), columns = round_up(seen, kLanes);
    product_rows<Unit>({m.q_along + r * units, units, 1}, m.k_upright + at, kTile, m.p, kTile, columns, units,
                       false);
    product_rows<Unit>({m.d_o_along + r * units, units, 1}, m.v_upright + at, kTile, m.ds, kTile, columns,
                       units, false);
    score_gradients(t, r, range, columns);
    lay_block(t, r, columns);
    product_rows<Unit>({ds_rows(t, r), kTile / kPack, 1}, m.k_across + at, width, m.dq + r * width, width,
                       width, (seen + kPack - 1) / kPack, !range.first_of_queries);
  }
  for (int64_t c = 0; c < range.keys; c += kBlockRows) {
    int64_t r = std::max<int64_t>(0, (c - range.first_seen + 1) / kBlockRows * kBlockRows),
            count = (row_end - r) / kPack;
    if (count <= 0) continue;
    int64_t from = r / kPack * kTile + c, other = r / kPack * width;
    product_rows<Unit>({m.p_across + from, 1, kTile}, m.d_o_across + other, width, dv + c * width, width,
                       width, count, !range.first_of_keys);
    product_rows<Unit>({m.ds_across + from, 1, kTile}, m.q_across + other, width, dk + c * width, width,
                       width, count, !range.first_of_keys);
  }
}

/// Loads queries, d_o, lse and delta = Σ o d_o of one tile; rows beyond `rows` give no gradient.
template <class T, class Word>
void load_tile(GradTile<Word>& t, const AttentionBackwardArgs& back, int64_t token, int64_t head,
               int64_t rows) {
  const AttentionArgs& args = back.forward;
  int64_t dim = args.head_dim, per_group = args.heads / args.groups, at = (token * args.heads + head) * dim;
  const T *o = static_cast<const T*>(args.o) + at, *d_o = static_cast<const T*>(back.d_o) + at;
  lay_along(head_rows<const T>(args.q, args, token, head / per_group, head % per_group, rows, t.width),
            t.m.q_along);
  lay_along(Rows<const T>{d_o, args.heads * dim, rows, dim, t.width}, t.m.d_o_along);
  lay_across(t.m.q_along, t.width, t.m.q_across);
  lay_across(t.m.d_o_along, t.width, t.m.d_o_across);
  for (int64_t r = 0; r < kTile; ++r) {
    int64_t row = r * args.heads * dim;
    t.lse[r] =
        r < rows ? args.lse[head * args.tokens + token + r] * kLog2e : std::numeric_limits<float>::infinity();
    t.delta[r] = r < rows ? SerialTeam{}.sum(
                                dim, [&](int64_t d) { return to_float(o[row + d]) * to_float(d_o[row + d]); })
                          : 0;
  }
}

/// Everything one head of one sequence gives: its dq is written, its dk and dv stay in its own tiles.
template <class T, class Unit, class Word>
void run_head(const AttentionBackwardArgs& back, const Tiling& tiling, const BackwardMemory<Word>& m,
              int64_t s, int64_t h) {
  const AttentionArgs& args = back.forward;
  int64_t per_group = tiling.per_group(), g = h / per_group, n = tiling.length(s), tiles = tiling.tiles(s),
          first = 0;
  int64_t width = tiling.width(), floats = kTile * width;
  for (int64_t earlier = 0; earlier < s; ++earlier) first += tiling.tiles(earlier);
  auto own = [&](float* base, int64_t j) { return base + ((first + j) * args.heads + h) * floats; };
  GradTile<Word> t{m, width, args.scale * kLog2e, {}, {}};
  for (int64_t i = 0; i < tiles; ++i) {
    int64_t token = tiling.start(s) + i * kTile, rows = std::min(kTile, n - i * kTile);
    load_tile<T>(t, back, token, h, rows);
    for (int64_t j = 0, end = args.causal ? i + 1 : tiles; j < end; ++j)
      add_gradients<Unit>(t, rows, ((first + j) * args.groups + g) * m.tile,
                          {std::min(kTile, n - j * kTile), args.causal ? (i - j) * kTile + 1 : kTile, j == 0,
                           i == (args.causal ? j : 0)},
                          own(m.dk, j), own(m.dv, j));
    Rows<T> dq = head_rows<T>(back.dq, args, token, g, h % per_group, rows, width);
    for (int64_t r = 0; r < rows; ++r)
      cast_row(SerialTeam{}, m.dq + r * width, dq.data + r * dq.stride, dq.dim, args.scale, false);
  }
}

/// Adds the dk and dv of the heads of one group, in order, and writes them out.
template <class T, class Word>
void combine_heads(const AttentionBackwardArgs& back, const Tiling& tiling, const BackwardMemory<Word>& m,
                   int64_t at, int64_t g) {
  const AttentionArgs& args = back.forward;
  int64_t width = tiling.width(), floats = kTile * width, per_group = tiling.per_group();
  tiling.locate(at, [&](int64_t s, int64_t j) {
    int64_t token = tiling.start(s) + j * kTile, rows = std::min(kTile, tiling.length(s) - j * kTile);
    for (float* base : {m.dk, m.dv}) {
      float* sum = base + (at * args.heads + g * per_group) * floats;
      for (int64_t other = 1; other < per_group; ++other)
        SerialTeam{}.each(rows * width, [&](int64_t x) { sum[x] += sum[other * floats + x]; });
      Rows<T> out = head_rows<T>(base == m.dk ? back.dk : back.dv, args, token, g, 0, rows, width);
      for (int64_t r = 0; r < rows; ++r)
        cast_row(SerialTeam{}, sum + r * width, out.data + r * out.stride, out.dim,
                 base == m.dk ? args.scale : 1.0f, false);
    }
  });
}

template <class T>
void attention_backward_of(CpuStream& cpu, const AttentionBackwardArgs& back) {
  using Unit = typename UnitOf<T>::Type;
  using Word = typename Unit::Word;
  constexpr int64_t kPack = Unit::kPack;
  const AttentionArgs& args = back.forward;
  Tiling tiling(args);
  int64_t width = tiling.width(), groups = args.groups, packed = tiling.all_tiles() * groups;
  auto m = cut_scratch(cpu, [&](Pieces& pieces) {
    return BackwardMemory<Word>(pieces, packed, tiling.all_tiles() * args.heads, cpu.threads(), width, kPack);
  });

  for_uneven_tasks(cpu, packed, [&](int64_t task, int thread) {
    tiling.locate(task / groups, [&](int64_t s, int64_t j) {
      int64_t token = tiling.start(s) + j * kTile, rows = std::min(kTile, tiling.length(s) - j * kTile);
      Word* along = m.q_along + thread * m.tile;
      lay_along(head_rows<const T>(args.k, args, token, task % groups, 0, rows, width), along);
      lay_upright(along, width / kPack, m.k_upright + task * m.tile);
      lay_across(along, width, m.k_across + task * m.tile);
      lay_along(head_rows<const T>(args.v, args, token, task % groups, 0, rows, width), along);
      lay_upright(along, width / kPack, m.v_upright + task * m.tile);
    });
  });
  for_uneven_tasks(cpu, args.sequences * args.heads, [&](int64_t task, int thread) {
    run_head<T, Unit>(back, tiling, m.of_thread(thread, width), task / args.heads, task % args.heads);
  });
  for_uneven_tasks(cpu, packed, [&](int64_t task, int) {
    combine_heads<T>(back, tiling, m, task / groups, task % groups);
  });
}

}  // namespace

void attention_backward(Stream& stream, const AttentionBackwardArgs& back) {
  with_float_type(back.forward.dtype,
                  [&]<class T>(T) { attention_backward_of<T>(cpu_stream(stream), back); });
}

}  // namespace mtrain::cpu::MT_ISA
