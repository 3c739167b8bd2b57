// Attention backward: recomputes the probabilities from the scores and lse, tile by tile. The dk
// and dv of a head are summed in the order of its queries, and heads that share a key are summed
// from the first to the last, independent of the division into tasks. Queries iterate over blocks
// of keys, so that the data of a block stays in L2 for any sequence length. If there are enough
// (sequence, group) pairs for all threads, one task handles a pair, and everything it shares stays
// in its core's cache; otherwise each head is a task.
#include "mtrain/cpu/kernels/attention_tiles.h"

namespace mtrain::cpu::MT_ISA {

namespace {

/// Memory of one call: packed keys and values, dk and dv, and buffers of each thread.
template <class Word>
struct BackwardMemory {
  Word *k_upright, *k_across, *v_upright;             // one tile each, `key_slots` of them
  float *dk, *dv;                                     // [kTile, width] each, `sum_slots` of them
  Word *q_along, *q_across, *d_o_along, *d_o_across;  // per thread
  Word *p_across, *ds_across, *ds_along;  // per thread, [kTile, kTile] in the layout's units
  float *p, *ds;                          // per thread, [kBlockRows<Word>, kTile]
  float* dq;                   // per thread, [kTile, width] for each tile of the longest sequence
  float* bias_sums = nullptr;  // [distances] for each head of each sequence
  int64_t tile, square,
      floats;       // words of a tile of rows, and of a tile of probabilities; floats of a tile
  int64_t longest;  // number of tiles of a thread's dq

  BackwardMemory(Pieces& pieces, int64_t key_slots, int64_t sum_slots, int64_t threads,
                 int64_t longest_sequence, int64_t width, int64_t pack)
      : longest(longest_sequence) {
    tile = kTile * width / pack;
    square = kTile * kTile / pack;
    floats = kTile * width;
    for (Word** all : {&k_upright, &k_across, &v_upright})
      *all = pieces.take<Word>(key_slots * tile);
    for (float** all : {&dk, &dv}) *all = pieces.take<float>(sum_slots * floats);
    for (Word** own : {&q_along, &q_across, &d_o_along, &d_o_across})
      *own = pieces.take<Word>(threads * tile);
    for (Word** own : {&p_across, &ds_across, &ds_along})
      *own = pieces.take<Word>(threads * square);
    dq = pieces.take<float>(threads * longest * floats);
    p = pieces.take<float>(threads * kBlockRows<Word> * kTile);
    ds = pieces.take<float>(threads * kBlockRows<Word> * kTile);
  }
  /// The same, with the per-thread pointers moved to one thread's memory.
  BackwardMemory of_thread(int64_t thread) const {
    BackwardMemory m = *this;
    for (Word** own : {&m.q_along, &m.q_across, &m.d_o_along, &m.d_o_across}) *own += thread * tile;
    for (Word** own : {&m.p_across, &m.ds_across, &m.ds_along}) *own += thread * square;
    m.dq += thread * longest * floats;
    m.p += thread * kBlockRows<Word> * kTile;
    m.ds += thread * kBlockRows<Word> * kTile;
    return m;
  }
};

/// The key tiles of one (sequence, group): tile j is `step` words after tile j - 1.
template <class Word>
struct KeyTiles {
  Word *k_upright, *k_across, *v_upright;
  int64_t step;
  KeyTiles(const BackwardMemory<Word>& m, int64_t slot, int64_t slots_apart)
      : k_upright(m.k_upright + slot * m.tile),
        k_across(m.k_across + slot * m.tile),
        v_upright(m.v_upright + slot * m.tile),
        step(slots_apart * m.tile) {}
  KeyTiles at(int64_t j) const {
    KeyTiles t = *this;
    t.k_upright += j * step, t.k_across += j * step, t.v_upright += j * step;
    return t;
  }
};

/// The dk and dv of one head, or of one group, in one sequence, by tiles.
struct KeySums {
  float *dk, *dv;
  int64_t step;
  template <class Word>
  KeySums(const BackwardMemory<Word>& m, int64_t slot, int64_t slots_apart)
      : dk(m.dk + slot * m.floats), dv(m.dv + slot * m.floats), step(slots_apart * m.floats) {}
};

/// The current tile of queries: one thread's memory and the rows' statistics.
template <class Word>
struct GradTile {
  BackwardMemory<Word> m;
  int64_t width;
  float factor;  // 2^(score * factor - lse) is the probability
  ScoreCap cap;
  ScoreBias bias;
  HeadDropout dropout;
  float lse[kTile], delta[kTile];
};

/// One tile of keys: the number of keys, and the range [first_hidden, first_seen) that the first
/// query row attends to (one key further on for each further row; clamped to [0, keys]). `leads`:
/// it is the first key tile of the sequence; `first_of_keys`: these are the first queries for this
/// key tile. Sums start there.
struct KeyRange {
  int64_t keys, first_seen, first_hidden;
  bool leads, first_of_keys;
  int64_t seen(int64_t row) const { return std::clamp<int64_t>(first_seen + row, 0, keys); }
  int64_t hidden(int64_t row) const { return std::clamp<int64_t>(first_hidden + row, 0, keys); }
  /// Whether no earlier tile has keys that this row attends to.
  bool starts(int64_t row) const { return leads || first_hidden + row >= 0; }
};

/// The same as the loop of score_gradients() for one row of capped scores or dropped weights: ds
/// times the cap's derivative 1 - tanh², and p and dp times the factors of the weights.
template <class Word>
void varied_gradients(const GradTile<Word>& t, int64_t row, float* p, float* ds, int64_t begin,
                      int64_t columns) {
  Vec shift = splat(t.lse[row]), delta = splat(t.delta[row]);
  float factors[kTile];
  if (t.dropout.keep)
    t.dropout.factors(row, begin, columns, factors);
  else
    std::fill_n(factors, kTile, 1.0f);
  for (int64_t c = begin; c < columns; c += kLanes) {
    Vec score = load(p + c), ratio = score * t.cap.inner, factor = load(factors + c);
    Vec probability = exp2(score * t.factor - shift);
    store(p + c, probability * factor);
    store(ds + c, probability * (load(ds + c) * factor - delta) * (1.0f - ratio * ratio));
  }
}

/// p = 2^(factor s - lse), ds = p (dp - delta), in place of s and dp; 0 where a row does not attend
/// to the key.
template <class Word>
void score_gradients(GradTile<Word>& t, int64_t row, const KeyRange& range, int64_t begin,
                     int64_t columns) {
  bool varied = t.cap.caps() || t.dropout.keep;
  for (int64_t m = 0; m < kBlockRows<Word>; ++m) {
    float *p = t.m.p + m * kTile, *ds = t.m.ds + m * kTile;
    Vec shift = splat(t.lse[row + m]), delta = splat(t.delta[row + m]);
    if (t.cap.caps()) t.cap.apply(p, begin, columns);
    if (t.bias.values) t.bias.add_to(p, row + m, begin, columns);
    if (varied) varied_gradients(t, row + m, p, ds, begin, columns);
    for (int64_t c = varied ? columns : begin; c < columns; c += kLanes) {
      Vec probability = exp2(load(p + c) * t.factor - shift);
      store(p + c, probability);
      store(ds + c, probability * (load(ds + c) - delta));
    }
    int64_t hidden_end = std::max(begin, range.hidden(row + m));
    for (int64_t c = begin; c < hidden_end; ++c) p[c] = ds[c] = 0;
    for (int64_t c = range.seen(row + m); c < columns; ++c) p[c] = ds[c] = 0;
    if (t.bias.sums) t.bias.collect(ds, row + m, begin, columns);
  }
}

/// Stores columns [begin, columns) of a block of p and ds in the layouts of the products that use
/// them.
void lay_block(GradTile<float>& t, int64_t row, int64_t begin, int64_t columns) {
  for (int64_t m = 0; m < kBlockRows<float>; ++m)
    for (int64_t c = begin; c < columns; c += kLanes) {
      store(t.m.p_across + (row + m) * kTile + c, load(t.m.p + m * kTile + c));
      store(t.m.ds_across + (row + m) * kTile + c, load(t.m.ds + m * kTile + c));
    }
}
/// For floats the same layout serves both products with ds.
const float* ds_rows(const GradTile<float>& t, int64_t row) { return t.m.ds_across + row * kTile; }

#if defined(__AVX512BF16__)
void lay_block(GradTile<uint32_t>& t, int64_t row, int64_t begin, int64_t columns) {
  for (int64_t m = 0; m < kBlockRows<uint32_t>; m += 2)
    for (int64_t c = begin; c < columns; c += kLanes) {
      int64_t even = m * kTile + c, odd = even + kTile, across = (row + m) / 2 * kTile + c,
              along = kTile / 2;
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

/// Adds the contributions of one (query tile, key tile) pair to dq (in the query tile), dk and dv.
template <class Unit, class Word>
void add_gradients(GradTile<Word>& t, int64_t rows, const KeyTiles<Word>& keys, KeyRange range,
                   float* dk, float* dv) {
  constexpr int64_t kPack = Unit::kPack;
  static_assert(kBlockColumns<Word> % kBlockRows<Word> == 0,
                "a block of columns in dk and dv reads only what lay_block() stored");
  const BackwardMemory<Word>& m = t.m;
  int64_t width = t.width, units = width / kPack, row_end = round_up(rows, kBlockRows<Word>);
  for (int64_t r = 0; r < row_end; r += kBlockRows<Word>) {
    int64_t seen = range.seen(r + kBlockRows<Word> - 1), hidden = range.hidden(r),
            begin = hidden / kBlockColumns<Word> * kBlockColumns<Word>,
            columns = round_up(seen, kBlockColumns<Word>);
    if (hidden >= range.keys) continue;
    product_rows<Unit>({m.q_along + r * units, units, 1}, keys.k_upright + begin, kTile,
                       m.p + begin, kTile, columns - begin, units, false);
    product_rows<Unit>({m.d_o_along + r * units, units, 1}, keys.v_upright + begin, kTile,
                       m.ds + begin, kTile, columns - begin, units, false);
    score_gradients(t, r, range, begin, columns);
    lay_block(t, r, begin, columns);
    product_rows<Unit>({ds_rows(t, r) + begin / kPack, kTile / kPack, 1},
                       keys.k_across + begin / kPack * width, width, m.dq + r * width, width, width,
                       (round_up(seen, kBlockTerms<Word>) - begin) / kPack, !range.starts(r));
  }
  for (int64_t c = 0; c < range.keys; c += kBlockRows<Word>) {
    int64_t r = std::max<int64_t>(0,
                                  (c - range.first_seen + 1) / kBlockRows<Word> * kBlockRows<Word>),
            last = std::min(c + kBlockRows<Word>, range.keys) - range.first_hidden,
            count = (std::min(row_end, round_up(last, kBlockRows<Word>)) - r) / kPack;
    if (count <= 0) continue;
    int64_t from = r / kPack * kTile + c, other = r / kPack * width;
    product_rows<Unit>({m.p_across + from, 1, kTile}, m.d_o_across + other, width, dv + c * width,
                       width, width, count, !range.first_of_keys);
    product_rows<Unit>({m.ds_across + from, 1, kTile}, m.q_across + other, width, dk + c * width,
                       width, width, count, !range.first_of_keys);
  }
}

/// Loads queries, d_o, lse and delta = Σ o d_o of one tile; rows beyond `rows` contribute no
/// gradient.
template <class T, class Word>
void load_tile(GradTile<Word>& t, const AttentionBackwardArgs& back, int64_t token, int64_t head,
               int64_t rows) {
  const AttentionArgs& args = back.forward;
  int64_t dim = args.head_dim, per_group = args.heads / args.groups,
          at = (token * args.heads + head) * dim;
  const T *o = static_cast<const T*>(args.o) + at, *d_o = static_cast<const T*>(back.d_o) + at;
  lay_along(
      head_rows<const T>(args.q, args, token, head / per_group, head % per_group, rows, t.width),
      t.m.q_along);
  lay_along(Rows<const T>{d_o, args.heads * dim, rows, dim, t.width}, t.m.d_o_along);
  lay_across(t.m.q_along, t.width, t.m.q_across);
  lay_across(t.m.d_o_along, t.width, t.m.d_o_across);
  for (int64_t r = 0; r < kTile; ++r) {
    int64_t row = r * args.heads * dim;
    t.lse[r] = r < rows ? args.lse[head * args.tokens + token + r] * kLog2OfE
                        : std::numeric_limits<float>::infinity();
    t.delta[r] =
        r < rows
            ? SerialTeam{}.sum(
                  dim, [&](int64_t d) { return to_float(o[row + d]) * to_float(d_o[row + d]); })
            : 0;
  }
}

/// One call: its arguments, its division into tasks, and its memory.
template <class T>
class BackwardCall {
 public:
  using Unit = typename UnitOf<T>::Type;
  using Word = typename Unit::Word;

  BackwardCall(CpuStream& cpu, const AttentionBackwardArgs& back)
      : cpu_(cpu),
        back_(back),
        args_(back.forward),
        tiling_(args_, kBlockColumns<Word>),
        width_(tiling_.width()),
        grouped_(tiling_.grouped(cpu.threads())),
        memory_(allocate_scratch(cpu, [&](Pieces& pieces) {
          int64_t own = cpu.threads() * tiling_.longest_keys();
          BackwardMemory<Word> m(
              pieces, grouped_ ? own : tiling_.all_keys() * args_.groups,
              grouped_ ? own * (tiling_.per_group() > 1 ? 2 : 1) : tiling_.all_keys() * args_.heads,
              cpu.threads(), tiling_.longest_queries(), width_, Unit::kPack);
          if (back.d_bias) m.bias_sums = pieces.take<float>(args_.sequences * all_distances());
          return m;
        })) {}

  void run() {
    if (grouped_)
      for_uneven_tasks(cpu_, args_.sequences * args_.groups, [&](int64_t task, int thread) {
        run_group(task / args_.groups, task % args_.groups, thread);
      });
    else
      run_heads();
    if (back_.d_bias) sum_bias();
  }

 private:
  void prefetch_keys(int64_t s, int64_t g, int64_t j) const {
    int64_t token = tiling_.first_key(s) + j * kTile, rows = tiling_.key_rows(s, j);
    for (const HeadsView* view : {&args_.k, &args_.v})
      prefetch(head_rows<const T>(*view, args_, token, g, 0, rows, width_));
  }

  /// Packs tile j of a group's keys and values.
  void lay_keys(int64_t s, int64_t g, int64_t j, const KeyTiles<Word>& to, Word* along) const {
    int64_t token = tiling_.first_key(s) + j * kTile, rows = tiling_.key_rows(s, j);
    lay_along(head_rows<const T>(args_.k, args_, token, g, 0, rows, width_), along);
    lay_upright(along, width_ / Unit::kPack, to.k_upright);
    lay_across(along, width_, to.k_across);
    lay_along(head_rows<const T>(args_.v, args_, token, g, 0, rows, width_), along);
    lay_upright(along, width_ / Unit::kPack, to.v_upright);
  }

  void prefetch_tile(int64_t token, int64_t h, int64_t rows) const {
    int64_t dim = args_.head_dim, at = (token * args_.heads + h) * dim;
    prefetch(head_rows<const T>(args_.q, args_, token, h / tiling_.per_group(),
                                h % tiling_.per_group(), rows, width_));
    for (const void* base : {const_cast<const void*>(args_.o), back_.d_o})
      prefetch(
          Rows<const T>{static_cast<const T*>(base) + at, args_.heads * dim, rows, dim, width_});
  }

  /// Computes one head of one sequence: writes its dq, and leaves its dk and dv in `sums`.
  void run_head(const BackwardMemory<Word>& own, int64_t s, int64_t h, const KeyTiles<Word>& keys,
                KeySums sums) const {
    [[maybe_unused]] BlockSetup<Word> setup;
    constexpr int64_t kBlock = 8;  // key tiles per block: with their gradients about half of L2
    int64_t tiles = tiling_.query_tiles(s);
    GradTile<Word> t{own, width_, args_.scale * kLog2OfE, ScoreCap(args_), ScoreBias(args_, h), {},
                     {},  {}};
    if (args_.dropout.p > 0) t.dropout.keep.emplace(args_.dropout, h);
    if (back_.d_bias) {
      t.bias.sums = own.bias_sums + s * all_distances() + h * args_.bias.distances;
      std::fill_n(t.bias.sums, args_.bias.distances, 0.0f);
    }
    // With spans, the first queries that attend to a key tile may attend to only a part of it, so
    // its sums start at zero here.
    if (args_.spans) clear_sums(sums, s);
    for (int64_t block = 0; block < tiling_.key_tiles(s); block += kBlock) {
      int64_t block_end = std::min(block + kBlock, tiling_.key_tiles(s));
      for (int64_t i = tiling_.first_looking(s, block),
                   tile_end = tiling_.end_looking(s, block_end - 1);
           i < tile_end; ++i) {
        int64_t token = tiling_.first_query(s) + i * kTile, rows = tiling_.query_rows(s, i),
                last = tiling_.seen_tiles(s, i), first = std::max(block, tiling_.first_tile(s, i));
        if (std::min(last, block_end) <= first) continue;
        t.m.dq = own.dq + i * own.floats;
        load_tile<T>(t, back_, token, h, rows);
        if (i + 1 < tiles) prefetch_tile(token + kTile, h, tiling_.query_rows(s, i + 1));
        for (int64_t j = first, end = std::min(block_end, last); j < end; ++j) {
          if (t.dropout.keep) {
            t.dropout.query = tiling_.first_query_token(s) + i * kTile;
            t.dropout.key = tiling_.first_key_token(s) + j * kTile;
          }
          t.bias.distance = tiling_.distance(s, i, j);
          add_gradients<Unit>(
              t, rows, keys.at(j),
              {tiling_.key_rows(s, j), tiling_.first_seen(s, i, j), tiling_.first_hidden(s, i, j),
               j == 0, !args_.spans && i == (args_.causal ? j : 0)},
              sums.dk + j * sums.step, sums.dv + j * sums.step);
        }
        if (block + kBlock >= last) write_queries(t.m.dq, s, h, i);
      }
    }
  }

  int64_t all_distances() const { return args_.heads * args_.bias.distances; }

  /// Adds the sums of the sequences in their order.
  void sum_bias() const {
    int64_t distances = args_.bias.distances;
    for_uneven_tasks(cpu_, args_.heads, [&](int64_t h, int) {
      for (int64_t s = 0; s < args_.sequences; ++s) {
        const float* from = memory_.bias_sums + s * all_distances() + h * distances;
        SerialTeam{}.each(
            distances, [to = back_.d_bias + h * distances, from](int64_t d) { to[d] += from[d]; });
      }
    });
  }

  void clear_sums(const KeySums& sums, int64_t s) const {
    for (int64_t j = 0; j < tiling_.key_tiles(s); ++j)
      for (float* sum : {sums.dk, sums.dv})
        std::memset(sum + j * sums.step, 0, sizeof(float) * static_cast<size_t>(kTile * width_));
  }

  /// Writes rows of a gradient to a view, from row `token` on.
  void write(const float* from, const HeadsView& view, int64_t token, int64_t group, int64_t head,
             int64_t rows, float factor) const {
    auto put = [&]<class To>(const Rows<To>& to, bool add) {
      for (int64_t r = 0; r < rows; ++r)
        cast_row(SerialTeam{}, from + r * width_, to.data + r * to.stride, to.dim, factor, add);
    };
    if (back_.add)
      put(head_rows<float>(view, args_, token, group, head, rows, width_), true);
    else
      put(head_rows<T>(view, args_, token, group, head, rows, width_), false);
  }

  void write_queries(const float* dq, int64_t s, int64_t h, int64_t i) const {
    int64_t per_group = tiling_.per_group();
    write(dq, back_.dq, tiling_.first_query(s) + i * kTile, h / per_group, h % per_group,
          tiling_.query_rows(s, i), args_.scale);
  }

  static void add_sums(const KeySums& to, const KeySums& from, int64_t j, int64_t count) {
    for (auto [sum, more] : {std::pair{to.dk + j * to.step, from.dk + j * from.step},
                             std::pair{to.dv + j * to.step, from.dv + j * from.step}})
      SerialTeam{}.each(count, [sum = sum, more = more](int64_t x) { sum[x] += more[x]; });
  }

  void write_keys(const KeySums& sums, int64_t s, int64_t g, int64_t j) const {
    int64_t token = tiling_.first_key(s) + j * kTile, rows = tiling_.key_rows(s, j);
    write(sums.dk + j * sums.step, back_.dk, token, g, 0, rows, args_.scale);
    write(sums.dv + j * sums.step, back_.dv, token, g, 0, rows, 1.0f);
  }

  /// Processes all heads of a (sequence, group) on one thread, in its own memory.
  void run_group(int64_t s, int64_t g, int64_t thread) const {
    int64_t per_group = tiling_.per_group(), tiles = tiling_.key_tiles(s),
            slot = thread * tiling_.longest_keys();
    BackwardMemory<Word> own = memory_.of_thread(thread);
    KeyTiles<Word> keys(memory_, slot, 1);
    KeySums total(memory_, slot, 1),
        next(memory_, slot + cpu_.threads() * tiling_.longest_keys() * (per_group > 1), 1);
    for (int64_t j = 0; j < tiles; ++j) {
      if (j + 1 < tiles) prefetch_keys(s, g, j + 1);
      lay_keys(s, g, j, keys.at(j), own.q_along);
    }
    for (int64_t h = 0; h < per_group; ++h) {
      run_head(own, s, g * per_group + h, keys, h == 0 ? total : next);
      for (int64_t j = 0; h > 0 && j < tiles; ++j)
        add_sums(total, next, j, tiling_.key_rows(s, j) * width_);
    }
    for (int64_t j = 0; j < tiles; ++j) write_keys(total, s, g, j);
  }

  /// Each head is a task; data that heads share is in the call's memory.
  void run_heads() const {
    int64_t groups = args_.groups, heads = args_.heads, packed = tiling_.all_keys() * groups;
    for_uneven_tasks(cpu_, packed, [&](int64_t task, int thread) {
      tiling_.locate_keys(task / groups, [&](int64_t s, int64_t j) {
        lay_keys(s, task % groups, j, KeyTiles<Word>(memory_, task, 0),
                 memory_.of_thread(thread).q_along);
      });
    });
    for_uneven_tasks(cpu_, args_.sequences * heads, [&](int64_t task, int thread) {
      int64_t s = task / heads, h = task % heads, first = tiling_.first_key_tile(s);
      run_head(memory_.of_thread(thread), s, h,
               KeyTiles<Word>(memory_, first * groups + h / tiling_.per_group(), groups),
               KeySums(memory_, first * heads + h, heads));
    });
    for_uneven_tasks(cpu_, packed, [&](int64_t task, int) {
      int64_t at = task / groups, g = task % groups, head = at * heads + g * tiling_.per_group();
      KeySums total(memory_, head, 0);
      tiling_.locate_keys(at, [&](int64_t s, int64_t j) {
        for (int64_t h = 1; h < tiling_.per_group(); ++h)
          add_sums(total, KeySums(memory_, head + h, 0), 0, tiling_.key_rows(s, j) * width_);
        write_keys(total, s, g, j);
      });
    });
  }

  CpuStream& cpu_;
  const AttentionBackwardArgs& back_;
  const AttentionArgs& args_;
  Tiling tiling_;
  int64_t width_;
  bool grouped_;
  BackwardMemory<Word> memory_;
};

}  // namespace

void attention_backward(Stream& stream, const AttentionBackwardArgs& back) {
  with_float_type(back.forward.dtype,
                  [&]<class T>(T) { BackwardCall<T>(cpu_stream(stream), back).run(); });
}

}  // namespace mtrain::cpu::MT_ISA
