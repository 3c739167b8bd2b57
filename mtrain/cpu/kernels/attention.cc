// Attention forward, after Dao 2023 (arXiv:2307.08691): each tile of queries iterates over the
// tiles of keys that it attends to, with a running maximum and sum per row. The whole matrix of
// probabilities is never stored.
#include <cmath>

#include "mtrain/cpu/kernels/attention_tiles.h"

namespace mtrain::cpu::MT_ISA {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
/// A row's running maximum changes only when an exponential would exceed 2^kSlack. Smaller
/// exponentials are harmless in float, and without a change the sums need no rescaling.
constexpr float kSlack = 12;

/// Memory of one call: packed keys and values, and buffers of each thread.
template <class Word>
struct ForwardMemory {
  Word *keys, *values;  // `key_slots` tiles: upright, across
  Word *q, *p;          // per thread: along; [kBlockRows<Word>, kTile / pack]
  float *o, *s;         // per thread: [kTile, width]; [kBlockRows<Word>, kTile]
  int64_t tile;         // words of one tile

  ForwardMemory(Pieces& pieces, int64_t key_slots, int64_t threads, int64_t width, int64_t pack) {
    tile = kTile * width / pack;
    keys = pieces.take<Word>(key_slots * tile);
    values = pieces.take<Word>(key_slots * tile);
    q = pieces.take<Word>(threads * tile);
    p = pieces.take<Word>(threads * kBlockRows<Word> * kTile / pack);
    o = pieces.take<float>(threads * kTile * width);
    s = pieces.take<float>(threads * kBlockRows<Word> * kTile);
  }
};

/// The current tile of queries.
template <class Word>
struct QueryTile {
  const Word* q;
  Word* p;
  float *o, *s;
  int64_t width;
  float factor;  // 2^(score * factor) is the exponential of the scaled score
  ScoreCap cap;
  ScoreBias bias;
  HeadDropout dropout;
  float top[kTile];  // running maximum of a row's scores, within kSlack
  Vec sum[kTile];    // lane-wise partial sums of a row's exponentials

  QueryTile(const ForwardMemory<Word>& m, int64_t thread, int64_t row_width, int64_t pack,
            const AttentionArgs& args, int64_t head)
      : q(m.q + thread * m.tile),
        p(m.p + thread * kBlockRows<Word> * kTile / pack),
        o(m.o + thread * kTile * row_width),
        s(m.s + thread * kBlockRows<Word> * kTile),
        width(row_width),
        factor(args.scale * kLog2OfE),
        cap(args),
        bias(args, head) {
    for (int64_t r = 0; r < kTile; ++r) {
      top[r] = -kInfinity;
      sum[r] = Vec{};
    }
  }
};

/// Updates a row's maximum and rescales the sums made with the old one (there are none if `first`).
template <class Word>
void raise_top(QueryTile<Word>& t, int64_t row, float top, bool first) {
  Vec shrink = exp2(splat((t.top[row] - top) * t.factor));
  t.top[row] = top;
  if (first) return;
  t.sum[row] *= shrink;
  float* o = t.o + row * t.width;
  for (int64_t d = 0; d < t.width; d += kLanes) store(o + d, load(o + d) * shrink);
}

/// Drops some of the exponentials that soften() stored for a row of `s`; its sum keeps them all.
template <int kPack, class Word>
void drop(QueryTile<Word>& t, int m, int64_t row, int64_t begin, int64_t columns, Vec shift) {
  float factors[kTile];
  t.dropout.factors(row, begin, columns, factors);
  for (int64_t c = begin; c < columns; c += kLanes) {
    Vec e = exp2(load(t.s + m * kTile + c) * t.factor - shift);
    put_along(t.p + (m * kTile + c) / kPack, e * load(factors + c));
  }
}

/// Turns columns [begin, columns) of a block of score rows into exponentials, in the layout of the
/// left operand of the product with the values.
template <int kPack, class Word>
void soften(QueryTile<Word>& t, int64_t row, int64_t begin, int64_t columns, bool first) {
  float tops[kBlockRows<Word>];
  for (int m = 0; m < kBlockRows<Word>; ++m) {
    const float* s = t.s + m * kTile;
    Vec top = load(s + begin);
    for (int64_t c = begin + kLanes; c < columns; c += kLanes) top = max(load(s + c), top);
    tops[m] = max_lane(top);
  }
  for (int m = 0; m < kBlockRows<Word>; ++m)
    if ((tops[m] - t.top[row + m]) * t.factor > kSlack) raise_top(t, row + m, tops[m], first);
  for (int m = 0; m < kBlockRows<Word>; ++m) {
    const float* s = t.s + m * kTile;
    Word* p = t.p + m * kTile / kPack;
    Vec shift = splat(t.top[row + m] == -kInfinity ? 0.0f : t.top[row + m] * t.factor),
        sum = t.sum[row + m];
    for (int64_t c = begin; c < columns; c += kLanes) {
      Vec e = exp2(load(s + c) * t.factor - shift);
      put_along(p + c / kPack, e);
      sum += e;
    }
    t.sum[row + m] = sum;
    if (t.dropout.keep) drop<kPack>(t, m, row + m, begin, columns, shift);
  }
}

/// One tile of keys for a tile of queries. The first row attends to keys [first_hidden, first_seen)
/// and each further row to the same number of keys, one key further on; both are clamped to
/// [0, keys].
struct KeySpan {
  int64_t keys, first_seen, first_hidden;
  bool leads;  // it is the first tile of the sequence's keys
  int64_t seen(int64_t row) const { return std::clamp<int64_t>(first_seen + row, 0, keys); }
  int64_t hidden(int64_t row) const { return std::clamp<int64_t>(first_hidden + row, 0, keys); }
  /// Whether no earlier tile has keys that this row attends to.
  bool starts(int64_t row) const { return leads || first_hidden + row >= 0; }
};

/// Processes one tile of keys and values for all rows.
template <class Unit, class Word>
void add_keys(QueryTile<Word>& t, int64_t rows, const Word* keys_upright, const Word* values,
              const KeySpan& span) {
  constexpr int kPack = Unit::kPack;
  int64_t units = t.width / kPack;
  for (int64_t r = 0; r < rows; r += kBlockRows<Word>) {
    int64_t seen = span.seen(r + kBlockRows<Word> - 1), hidden = span.hidden(r),
            begin = hidden / kBlockColumns<Word> * kBlockColumns<Word>,
            columns = round_up(seen, kBlockColumns<Word>);
    if (seen <= 0 || hidden >= span.keys) continue;
    bool first = span.starts(r);
    product_rows<Unit>({t.q + r * units, units, 1}, keys_upright + begin, kTile, t.s + begin, kTile,
                       columns - begin, units, false);
    for (int64_t m = 0; m < kBlockRows<Word>; ++m) {
      if (t.cap.caps()) t.cap.apply(t.s + m * kTile, begin, columns);
      if (t.bias.values) t.bias.add_to(t.s + m * kTile, r + m, begin, columns);
      for (int64_t c = begin; c < span.hidden(r + m); ++c) t.s[m * kTile + c] = -kInfinity;
      for (int64_t c = span.seen(r + m); c < columns; ++c) t.s[m * kTile + c] = -kInfinity;
    }
    soften<kPack>(t, r, begin, columns, first);
    product_rows<Unit>({t.p + begin / kPack, kTile / kPack, 1}, values + begin / kPack * t.width,
                       t.width, t.o + r * t.width, t.width, t.width,
                       (round_up(seen, kBlockTerms<Word>) - begin) / kPack, !first);
  }
}

/// log(e^a + e^b). REQUIRES: not both -infinity.
inline float log_add(float a, float b) {
  float high = std::max(a, b);
  return high + std::log(std::exp(a - high) + std::exp(b - high));
}

template <class T, class Word>
void finish(const QueryTile<Word>& t, int64_t rows, const AttentionArgs& args, int64_t token,
            int64_t head) {
  for (int64_t r = 0; r < rows; ++r) {
    float sum = sum_lanes(t.sum[r]), of_keys = t.top[r] * args.scale + std::log(sum),
          lse = args.sinks ? log_add(of_keys, to_float(static_cast<const T*>(args.sinks)[head]))
                           : of_keys;
    float& known = args.lse[head * args.tokens + token + r];
    const float* o = t.o + r * t.width;
    int64_t at = ((token + r) * args.heads + head) * args.head_dim;
    if (args.add) {  // merges the two results, weighted by their shares of the exponentials' sum
      float all = log_add(known, lse);
      float* to = static_cast<float*>(args.o) + at;
      SerialTeam{}.each(args.head_dim,
                        [to, before = std::exp(known - all)](int64_t d) { to[d] *= before; });
      cast_row(SerialTeam{}, o, to, args.head_dim, std::exp(of_keys - all) / sum, true);
      known = all;
    } else {
      known = lse;
      float share = args.sinks ? std::exp(of_keys - lse) : 1.0f;
      cast_row(SerialTeam{}, o, static_cast<T*>(args.o) + at, args.head_dim, share / sum, false);
    }
  }
}

/// One call: its arguments, its division into tasks, and its memory. If there are enough (sequence,
/// group) pairs for all threads, one task handles a pair, whose keys and values stay in its core's
/// cache; otherwise a task handles a tile of queries.
template <class T>
class ForwardCall {
 public:
  using Unit = typename UnitOf<T>::Type;
  using Word = typename Unit::Word;

  ForwardCall(CpuStream& cpu, const AttentionArgs& args)
      : cpu_(cpu),
        args_(args),
        tiling_(args, kBlockColumns<Word>),
        width_(tiling_.width()),
        grouped_(tiling_.grouped(cpu.threads())),
        memory_(allocate_scratch(cpu, [&](Pieces& pieces) {
          return ForwardMemory<Word>(
              pieces,
              grouped_ ? cpu.threads() * tiling_.longest_keys() : tiling_.all_keys() * args.groups,
              cpu.threads(), width_, Unit::kPack);
        })) {}

  void run() const {
    if (grouped_)
      for_uneven_tasks(cpu_, args_.sequences * args_.groups, [&](int64_t task, int thread) {
        run_group(task / args_.groups, task % args_.groups, thread);
      });
    else
      run_tiles();
  }

 private:
  /// Packs tile j of a group's keys and values.
  void lay_keys(int64_t s, int64_t g, int64_t j, int64_t slot, int64_t thread) const {
    int64_t token = tiling_.first_key(s) + j * kTile, rows = tiling_.key_rows(s, j);
    Word* along = memory_.q + thread * memory_.tile;
    lay_along(head_rows<const T>(args_.k, args_, token, g, 0, rows, width_), along);
    lay_upright(along, width_ / Unit::kPack, memory_.keys + slot * memory_.tile);
    lay_along(head_rows<const T>(args_.v, args_, token, g, 0, rows, width_), along);
    lay_across(along, width_, memory_.values + slot * memory_.tile);
  }

  /// Processes tile i of one head's queries. Its first key tile is at `slot`; further ones are
  /// `apart` slots apart.
  void run_queries(int64_t s, int64_t h, int64_t i, int64_t slot, int64_t apart,
                   int64_t thread) const {
    [[maybe_unused]] BlockSetup<Word> setup;
    int64_t token = tiling_.first_query(s) + i * kTile, rows = tiling_.query_rows(s, i);
    QueryTile<Word> t(memory_, thread, width_, Unit::kPack, args_, h);
    if (args_.dropout.p > 0) {
      t.dropout.keep.emplace(args_.dropout, h);
      t.dropout.query = tiling_.first_query_token(s) + i * kTile;
    }
    lay_along(head_rows<const T>(args_.q, args_, token, h / tiling_.per_group(),
                                 h % tiling_.per_group(), rows, width_),
              memory_.q + thread * memory_.tile);
    int64_t end = tiling_.seen_tiles(s, i);
    for (int64_t j = tiling_.first_tile(s, i); j < end; ++j) {
      int64_t at = (slot + j * apart) * memory_.tile;
      if (t.dropout.keep) t.dropout.key = tiling_.first_key_token(s) + j * kTile;
      t.bias.distance = tiling_.distance(s, i, j);
      add_keys<Unit>(t, rows, memory_.keys + at, memory_.values + at,
                     {tiling_.key_rows(s, j), tiling_.first_seen(s, i, j),
                      tiling_.first_hidden(s, i, j), j == 0});
    }
    if (end > 0) finish<T>(t, rows, args_, token, h);
  }

  void run_group(int64_t s, int64_t g, int64_t thread) const {
    int64_t slot = thread * tiling_.longest_keys();
    for (int64_t j = 0; j < tiling_.key_tiles(s); ++j) lay_keys(s, g, j, slot + j, thread);
    for (int64_t h = g * tiling_.per_group(); h < (g + 1) * tiling_.per_group(); ++h)
      for (int64_t i = 0; i < tiling_.query_tiles(s); ++i) run_queries(s, h, i, slot, 1, thread);
  }

  void run_tiles() const {
    int64_t groups = args_.groups, tiles = tiling_.all_queries();
    for_uneven_tasks(cpu_, tiling_.all_keys() * groups, [&](int64_t task, int thread) {
      tiling_.locate_keys(task / groups, [&](int64_t s, int64_t j) {
        lay_keys(s, task % groups, j, task, thread);
      });
    });
    for_uneven_tasks(cpu_, tiles * args_.heads, [&](int64_t task, int thread) {
      int64_t h = task % args_.heads;  // the last tiles, which attend to the most keys, come first
      tiling_.locate_queries(tiles - 1 - task / args_.heads, [&](int64_t s, int64_t i) {
        run_queries(s, h, i, tiling_.first_key_tile(s) * groups + h / tiling_.per_group(), groups,
                    thread);
      });
    });
  }

  CpuStream& cpu_;
  const AttentionArgs& args_;
  Tiling tiling_;
  int64_t width_;
  bool grouped_;
  ForwardMemory<Word> memory_;
};

}  // namespace

void attention(Stream& stream, const AttentionArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) { ForwardCall<T>(cpu_stream(stream), args).run(); });
}

void attention_sink_backward(Stream& stream, const AttentionSinkBackwardArgs& a) {
  with_float_type(a.dtype, [&]<class T>(T) {
    for_uneven_tasks(cpu_stream(stream), a.heads, [&](int64_t h, int) {
      float sink = to_float(static_cast<const T*>(a.sinks)[h]);
      double total = 0;
      for (int64_t t = 0; t < a.tokens; ++t) {
        int64_t at = (t * a.heads + h) * a.head_dim;
        const T *o = static_cast<const T*>(a.o) + at, *d_o = static_cast<const T*>(a.d_o) + at;
        float delta = SerialTeam{}.sum(
            a.head_dim, [&](int64_t d) { return to_float(o[d]) * to_float(d_o[d]); });
        total += static_cast<double>(std::exp(sink - a.lse[h * a.tokens + t]) * delta);
      }
      a.d_sinks[h] -= static_cast<float>(total);
    });
  });
}

}  // namespace mtrain::cpu::MT_ISA
