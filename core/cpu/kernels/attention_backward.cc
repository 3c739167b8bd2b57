// Attention backward: the probabilities come back from the scores and lse, tile by tile. One task owns one head of one
// sequence, so that dq, dk and dv are added in a fixed order; heads that share a key sum theirs at the end.
#include "mtrain/cpu/kernels/attention_tiles.h"

namespace mtrain::cpu::MT_ISA {

namespace {

/// The tile of queries at hand and its products; the memory of one thread.
struct GradTile {
  float *q, *d_o, *dq, *p, *ds;  // [kTile, width] three times, [kTile, kTile] twice
  float lse[kTile], delta[kTile];

  static int64_t floats(int64_t width) { return 3 * kTile * width + 2 * kTile * kTile; }
  GradTile(float* memory, int64_t width)
      : q(memory), d_o(q + kTile * width), dq(d_o + kTile * width), p(dq + kTile * width), ds(p + kTile * kTile) {}
};

/// The tiles of one group's keys and values: as rows, and transposed.
struct KeyTiles {
  const float *k, *k_transposed, *v_transposed;
};

/// p = exp(s - lse), ds = p (dp - delta) for one row, 0 in the columns from `seen` up to `columns`.
void row_gradient(float* p, float* ds, float lse, float delta, int64_t seen, int64_t columns) {
  Vec shift = splat(lse), offset = splat(delta);
  for (int64_t c = 0; c < columns; c += kLanes) {
    // Rounding can put a score a little above its lse; beyond 0 the exponential would lose its range, not its accuracy.
    Vec prob = exp_nonpositive(load(p + c) - shift);
    store(p + c, prob);
    store(ds + c, prob * (load(ds + c) - offset));
  }
  for (int64_t c = seen; c < columns; ++c) p[c] = ds[c] = 0;
}

/// Adds what one tile of queries and one tile of keys give to dq (in the tile), dk and dv.
void add_gradients(GradTile& t, int64_t rows, const KeyTiles& tiles, int64_t keys, int64_t first_seen, int64_t width,
                   float* dk, float* dv) {
  int64_t row_end = round_up(rows, kBlockRows), key_end = round_up(keys, kBlockRows);
  for (int64_t r = 0; r < row_end; r += kBlockRows) {
    int64_t seen = std::min(keys, first_seen + r + kBlockRows - 1), columns = round_up(seen, kLanes);
    float *p = t.p + r * kTile, *ds = t.ds + r * kTile;
    product_rows({t.q + r * width, width, 1}, tiles.k_transposed, kTile, p, kTile, columns, width, false);
    product_rows({t.d_o + r * width, width, 1}, tiles.v_transposed, kTile, ds, kTile, columns, width, false);
    for (int64_t m = 0; m < kBlockRows; ++m)
      row_gradient(p + m * kTile, ds + m * kTile, t.lse[r + m], t.delta[r + m],
                   std::clamp<int64_t>(first_seen + r + m, 0, keys), columns);
    product_rows({ds, kTile, 1}, tiles.k, width, t.dq + r * width, width, width, seen, true);
  }
  for (int64_t c = 0; c < key_end; c += kBlockRows) {
    int64_t r = std::max<int64_t>(0, (c - first_seen + 1) / kBlockRows * kBlockRows), count = row_end - r;
    if (count <= 0) continue;
    product_rows({t.p + r * kTile + c, 1, kTile}, t.d_o + r * width, width, dv + c * width, width, width, count, true);
    product_rows({t.ds + r * kTile + c, 1, kTile}, t.q + r * width, width, dk + c * width, width, width, count, true);
  }
}

/// Loads queries (times scale), d_o, lse and delta = Σ o d_o of one tile; rows beyond `rows` give no gradient.
template <class T>
void load_tile(GradTile& t, const AttentionBackwardArgs& back, int64_t token, int64_t head, int64_t rows, int64_t width) {
  const AttentionArgs& args = back.forward;
  int64_t dim = args.head_dim, per_group = args.heads / args.groups, at = (token * args.heads + head) * dim;
  load_rows(head_rows<const T>(args.q, token, head / per_group, head % per_group, dim), args.q.row_stride, rows, kTile,
            dim, width, args.scale, t.q);
  load_rows(static_cast<const T*>(back.d_o) + at, args.heads * dim, rows, kTile, dim, width, 1, t.d_o);
  std::memset(t.dq, 0, sizeof(float) * static_cast<size_t>(kTile * width));
  for (int64_t r = 0; r < kTile; ++r) {
    bool real = r < rows;
    const T* o = static_cast<const T*>(args.o) + at + r * args.heads * dim;
    t.lse[r] = real ? args.lse[head * args.tokens + token + r] : std::numeric_limits<float>::infinity();
    t.delta[r] = real ? SerialTeam{}.sum(dim, [&](int64_t d) { return to_float(o[d]) * t.d_o[r * width + d]; }) : 0;
  }
}

}  // namespace

void attention_backward(Stream& stream, const AttentionBackwardArgs& back) {
  auto& cpu = cpu_stream(stream);
  const AttentionArgs& args = back.forward;
  Tiling tiling(args);
  int64_t width = tiling.width(), dim = args.head_dim, tile = tiling.tile_floats(), per_group = tiling.per_group();
  int64_t packed = tiling.all_tiles() * args.groups * tile, partial = tiling.all_tiles() * args.heads * tile;
  int64_t per_thread = round_up(std::max(GradTile::floats(width), tile), 16);
  auto* k = reinterpret_cast<float*>(
      cpu.scratch(sizeof(float) * static_cast<size_t>(3 * packed + 2 * partial + per_thread * cpu.threads())));
  float *kt = k + packed, *vt = kt + packed, *dk = vt + packed, *dv = dk + partial, *own = dv + partial;
  with_float_type(args.dtype, [&]<class T>(T) {
    for_uneven_tasks(cpu, tiling.all_tiles() * args.groups, [&](int64_t task, int thread) {
      int64_t g = task % args.groups;
      float* v = own + per_thread * thread;
      tiling.locate(task / args.groups, [&](int64_t s, int64_t j) {
        int64_t token = tiling.start(s) + j * kTile, count = std::min(kTile, tiling.length(s) - j * kTile);
        load_rows(head_rows<const T>(args.k, token, g, 0, dim), args.k.row_stride, count, kTile, dim, width, 1,
                  k + task * tile);
        transpose_tile(k + task * tile, width, kt + task * tile);
        load_rows(head_rows<const T>(args.v, token, g, 0, dim), args.v.row_stride, count, kTile, dim, width, 1, v);
        transpose_tile(v, width, vt + task * tile);
      });
    });
    for_uneven_tasks(cpu, args.sequences * args.heads, [&](int64_t task, int thread) {
      int64_t s = task / args.heads, h = task % args.heads, g = h / per_group, n = tiling.length(s), tiles = tiling.tiles(s);
      int64_t first_tile = 0;
      for (int64_t u = 0; u < s; ++u) first_tile += tiling.tiles(u);
      auto partial_at = [&](float* base, int64_t j) { return base + ((first_tile + j) * args.heads + h) * tile; };
      for (int64_t j = 0; j < tiles; ++j) {
        std::memset(partial_at(dk, j), 0, sizeof(float) * static_cast<size_t>(tile));
        std::memset(partial_at(dv, j), 0, sizeof(float) * static_cast<size_t>(tile));
      }
      GradTile t(own + per_thread * thread, width);
      for (int64_t i = 0; i < tiles; ++i) {
        int64_t token = tiling.start(s) + i * kTile, rows = std::min(kTile, n - i * kTile);
        load_tile<T>(t, back, token, h, rows, width);
        for (int64_t j = 0, end = args.causal ? i + 1 : tiles; j < end; ++j) {
          int64_t at = ((first_tile + j) * args.groups + g) * tile, count = std::min(kTile, n - j * kTile);
          add_gradients(t, rows, {k + at, kt + at, vt + at}, count, args.causal ? (i - j) * kTile + 1 : kTile, width,
                        partial_at(dk, j), partial_at(dv, j));
        }
        for (int64_t r = 0; r < rows; ++r)
          cast_row(SerialTeam{}, t.dq + r * width, head_rows<T>(back.dq, token + r, g, h % per_group, dim), dim,
                   args.scale, false);
      }
    });
    for_uneven_tasks(cpu, tiling.all_tiles() * args.groups, [&](int64_t task, int) {
      int64_t g = task % args.groups, at = task / args.groups;
      tiling.locate(at, [&](int64_t s, int64_t j) {
        int64_t token = tiling.start(s) + j * kTile, count = std::min(kTile, tiling.length(s) - j * kTile);
        for (float* base : {dk, dv}) {
          float* sum = base + (at * args.heads + g * per_group) * tile;
          for (int64_t other = 1; other < per_group; ++other)
            SerialTeam{}.each(count * width, [&](int64_t x) { sum[x] += sum[other * tile + x]; });
          const HeadsView& view = base == dk ? back.dk : back.dv;
          for (int64_t r = 0; r < count; ++r)
            cast_row(SerialTeam{}, sum + r * width, head_rows<T>(view, token + r, g, 0, dim), dim, 1, false);
        }
      });
    });
  });
}

}  // namespace mtrain::cpu::MT_ISA
