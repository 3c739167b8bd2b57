// Attention forward, after Dao 2023 (arXiv:2307.08691): a tile of queries walks over the tiles of keys it may see with a
// running maximum and sum per row, so the probabilities never exist as a whole.
#include <cmath>

#include "mtrain/cpu/kernels/attention_tiles.h"

namespace mtrain::cpu::MT_ISA {

namespace {

/// What one task works on; the memory of one thread.
struct QueryTile {
  float *q, *o, *s;  // [kTile, width] twice, [kBlockRows, kTile]
  float top[kTile];
  Vec sum[kTile];  // lane-wise partial sums of a row's exponentials

  static int64_t floats(int64_t width) { return 2 * kTile * width + kBlockRows * kTile; }
  QueryTile(float* memory, int64_t width) : q(memory), o(q + kTile * width), s(o + kTile * width) {
    std::memset(o, 0, sizeof(float) * static_cast<size_t>(kTile * width));
    for (int64_t r = 0; r < kTile; ++r) {
      top[r] = -std::numeric_limits<float>::infinity();
      sum[r] = Vec{};
    }
  }
};

/// One row of scores becomes exponentials under the new maximum; what was summed before is scaled to it.
/// Columns from `seen` up to `columns` (whole vectors) count as minus infinity.
void soften_row(QueryTile& t, int64_t row, float* s, int64_t seen, int64_t columns, int64_t width) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (int64_t c = seen; c < columns; ++c) s[c] = -kInfinity;
  Vec top = splat(t.top[row]);
  for (int64_t c = 0; c < columns; c += kLanes) top = max(load(s + c), top);
  float new_top = max_lane(top);
  Vec shift = splat(new_top == -kInfinity ? 0.0f : new_top);
  if (new_top != t.top[row]) {
    Vec factor = exp_nonpositive(splat(t.top[row]) - shift);
    t.sum[row] *= factor;
    for (int64_t d = 0; d < width; d += kLanes) store(t.o + row * width + d, load(t.o + row * width + d) * factor);
    t.top[row] = new_top;
  }
  Vec sum = t.sum[row];
  for (int64_t c = 0; c < columns; c += kLanes) {
    Vec p = exp_nonpositive(load(s + c) - shift);
    store(s + c, p);
    sum += p;
  }
  t.sum[row] = sum;
}

/// Adds the keys and values of one tile, `keys` of them, to all rows. `first_seen` keys are visible to the first row and
/// one more to each further row (causal); at most `keys`.
void add_keys(QueryTile& t, int64_t rows, const float* k_transposed, const float* v, int64_t keys, int64_t first_seen,
              int64_t width) {
  for (int64_t r = 0; r < rows; r += kBlockRows) {
    int64_t seen = std::min(keys, first_seen + r + kBlockRows - 1);
    if (seen <= 0) continue;
    int64_t columns = round_up(seen, kLanes);
    product_rows({t.q + r * width, width, 1}, k_transposed, kTile, t.s, kTile, columns, width, false);
    for (int64_t m = 0; m < kBlockRows; ++m)
      soften_row(t, r + m, t.s + m * kTile, std::clamp<int64_t>(first_seen + r + m, 0, keys), columns, width);
    product_rows({t.s, kTile, 1}, v, width, t.o + r * width, width, width, seen, true);
  }
}

template <class T>
void finish(const QueryTile& t, int64_t rows, const AttentionArgs& args, int64_t token, int64_t head, int64_t width) {
  for (int64_t r = 0; r < rows; ++r) {
    float sum = sum_lanes(t.sum[r]);
    args.lse[head * args.tokens + token + r] = t.top[r] + std::log(sum);
    cast_row(SerialTeam{}, t.o + r * width, static_cast<T*>(args.o) + ((token + r) * args.heads + head) * args.head_dim,
             args.head_dim, 1.0f / sum, false);
  }
}

}  // namespace

void attention(Stream& stream, const AttentionArgs& args) {
  auto& cpu = cpu_stream(stream);
  Tiling tiling(args);
  int64_t width = tiling.width(), dim = args.head_dim, tile = tiling.tile_floats(), per_group = tiling.per_group();
  int64_t packed = tiling.all_tiles() * args.groups, per_thread = round_up(QueryTile::floats(width) + tile, 16);
  auto* keys = reinterpret_cast<float*>(
      cpu.scratch(sizeof(float) * static_cast<size_t>(2 * packed * tile + per_thread * cpu.threads())));
  float *values = keys + packed * tile, *own = values + packed * tile;
  with_float_type(args.dtype, [&]<class T>(T) {
    for_uneven_tasks(cpu, packed, [&](int64_t task, int thread) {
      int64_t g = task % args.groups;
      float* rows = own + per_thread * thread;
      tiling.locate(task / args.groups, [&](int64_t s, int64_t j) {
        int64_t token = tiling.start(s) + j * kTile, count = std::min(kTile, tiling.length(s) - j * kTile);
        load_rows(head_rows<const T>(args.k, token, g, 0, dim), args.k.row_stride, count, kTile, dim, width, 1, rows);
        transpose_tile(rows, width, keys + task * tile);
        load_rows(head_rows<const T>(args.v, token, g, 0, dim), args.v.row_stride, count, kTile, dim, width, 1,
                  values + task * tile);
      });
    });
    for_uneven_tasks(cpu, tiling.all_tiles() * args.heads, [&](int64_t task, int thread) {
      int64_t at = tiling.all_tiles() - 1 - task / args.heads, h = task % args.heads, g = h / per_group;
      tiling.locate(at, [&](int64_t s, int64_t i) {
        int64_t n = tiling.length(s), token = tiling.start(s) + i * kTile, rows = std::min(kTile, n - i * kTile);
        QueryTile t(own + per_thread * thread, width);
        load_rows(head_rows<const T>(args.q, token, g, h % per_group, dim), args.q.row_stride, rows, kTile, dim, width,
                  args.scale, t.q);
        for (int64_t j = 0, end = args.causal ? i + 1 : tiling.tiles(s); j < end; ++j) {
          const float* k = keys + ((at - i + j) * args.groups + g) * tile;
          int64_t count = std::min(kTile, n - j * kTile), first = args.causal ? (i - j) * kTile + 1 : kTile;
          add_keys(t, rows, k, k + packed * tile, count, first, width);
        }
        finish<T>(t, rows, args, token, h, width);
      });
    });
  });
}

}  // namespace mtrain::cpu::MT_ISA
