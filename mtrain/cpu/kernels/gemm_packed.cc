// Matrix products on packed panels. B is packed once into panels that fit the caches; A is read in
// place if the inner loop can use its rows; a tile of C stays in registers for a whole chunk of K.
// 16-bit floats are converted to fp32 during packing, unless the CPU multiplies bf16 pairs. The
// problem's size alone fixes the order in which each element of C is summed.
#include "mtrain/cpu/kernels/gemm_amx.h"
#include "mtrain/cpu/kernels/gemm_dot.h"

namespace mtrain::cpu::MT_ISA {

namespace {

// These sizes are measured (docs/benchmarks/cpu.md): those for pairs on Zen 5, those for floats on
// Ice Lake and Zen 4.
/// Words along K in one chunk: rows of A and a panel of B fit into L2 together.
template <class Unit>
constexpr int64_t kMaxRowWords = Unit::kPack == 1 ? 1024 : 2048;
/// Bytes of A that one thread processes at a time: a part of L2.
template <class Unit>
constexpr int64_t kBlockBytes = 384 << 10;
constexpr int64_t kMaxPanelsBytes = 6 << 20;  // bytes of B packed at a time: a part of L3
constexpr int64_t kRowGap =
    16;  // words between packed rows, so that rows do not compete for the same cache sets
constexpr int64_t kDotRows = 8;  // up to this number of rows, gemm_dot.h is faster
constexpr int64_t kMaxPartialBytes =
    64 << 20;  // bytes of sums over earlier chunks, for types of C that cannot hold them

/// Rows of a tile of A, and the number of words that the inner loop processes at a time: K is
/// padded to a multiple of it with zeros.
template <class Unit>
constexpr int64_t kRows = kTileRows;
template <class Unit>
constexpr int64_t kStep = 1;
#if defined(__AMX_BF16__)
template <>
constexpr int64_t kRows<TileUnit> = kAmxRows;
template <>
constexpr int64_t kStep<TileUnit> = kAmxWords;
template <>
constexpr int64_t kMaxRowWords<TileUnit> = 1024;
template <>
constexpr int64_t kBlockBytes<TileUnit> = 768 << 10;  // processors with AMX have 2 MiB of L2
#endif

/// Calls f(T{}) with the element type of A and B.
template <class Unit, class F>
void with_operand(DType dtype, F&& f) {
  if constexpr (Unit::kPack == 2)
    f(bf16{});
  else
    with_float_type(dtype, f);
}

template <class Unit>
class PackedGemm {
 public:
  using Word = typename Unit::Word;
  static constexpr int64_t kPack = Unit::kPack, kRows = cpu::MT_ISA::kRows<Unit>,
                           kStep = cpu::MT_ISA::kStep<Unit>;

  PackedGemm(CpuStream& stream, const GemmArgs& g) : stream_(stream), g_(g) {
    bool words = kPack == 1 ? g.dtype == DType::f32
                            : g.k % 2 == 0 && g.lda % 2 == 0;  // rows of A can be read in place
    packs_a_ = g.transpose_a || kStep > 1 || !words;
    // Chunks of equal length, in whole cache lines.
    chunk_ = std::min(
        g.k, round_up(divide_up(g.k, divide_up(g.k, kMaxRowWords<Unit> * kPack)), 16 * kPack));
    chunks_ = divide_up(g.k, chunk_);
    tiles_ = divide_up(g.m, kRows);
    all_panels_ = divide_up(g.n, kPanel);
    int64_t threads = stream.threads(), panel_words = chunk_words() * kPanel;
    few_rows_ = tiles_ <= block_tiles() && all_panels_ >= threads;
    if (few_rows_) {
      blocks_ = parts_ = 1;
      panels_at_once_ = all_panels_;
    } else {
      panels_at_once_ = std::clamp<int64_t>(kMaxPanelsBytes / (panel_words * 4), 1, all_panels_);
      split_rows(threads);
    }
    allocate_scratch(stream, [&](Pieces& pieces) {
      b_ = pieces.take<Word>((few_rows_ ? threads : panels_at_once_) * panel_words);
      if (packs_a_) a_ = pieces.take<Word>((few_rows_ ? 1 : threads) * a_words());
      if (chunks_ > 1 && g.c_dtype != DType::f32)
        partial_ = pieces.take<float>(g.m * panels_at_once_ * kPanel);
      if (g.bias) bias_ = pieces.take<float>(all_panels_ * kPanel);
#if defined(__AMX_BF16__)
      if (kStep > 1) sums_ = pieces.take<float>(threads * amx_sums(block_rows()));
#endif
      return 0;
    });
    if (g.bias) {
      std::memset(bias_, 0, sizeof(float) * static_cast<size_t>(all_panels_ * kPanel));
      stream.kernels().cast(stream, {g.bias, bias_, g.n, 1, false, g.bias_dtype, DType::f32});
    }
  }

  void run() { few_rows_ ? run_panels() : run_blocks(); }

 private:
  /// Consecutive row tiles and packed panels; panels are counted from `column`.
  struct Range {
    int64_t first_tile, last_tile, first_panel, last_panel, column, chunk, thread;
  };

  /// Number of row tiles of A that one thread processes at a time.
  int64_t block_tiles() const {
    int64_t tiles = std::max<int64_t>(1, kBlockBytes<Unit> / (kRows * chunk_words() * 4));
    return g_.transpose_a && kStep == 1 ? divide_up(tiles, kPackedTiles) * kPackedTiles : tiles;
  }

  /// Divides the rows into blocks, one task each. If there are few blocks, each task multiplies
  /// only a part of the panels, so that every thread gets work.
  void split_rows(int64_t threads) {
    blocks_ = std::min(tiles_, divide_up(divide_up(tiles_, block_tiles()), threads) * threads);
    parts_ = std::clamp<int64_t>(divide_up(threads, blocks_), 1, panels_at_once_);
  }

  /// Words of the longest chunk.
  int64_t chunk_words() const { return round_up(divide_up(chunk_, kPack), kStep); }
  int64_t terms(int64_t chunk) const { return std::min(chunk_, g_.k - chunk * chunk_); }
  /// Words of a chunk, padded to whole steps.
  int64_t units(int64_t chunk) const { return round_up(divide_up(terms(chunk), kPack), kStep); }
  int64_t panels(int64_t column) const {
    return std::min(panels_at_once_, divide_up(g_.n - column, kPanel));
  }
  /// Number of rows of the largest block.
  int64_t block_rows() const { return divide_up(tiles_, blocks_) * kRows; }
  /// Words of a packed block of A.
  int64_t a_words() const {
    int64_t tiles = divide_up(tiles_, blocks_);
    if (kStep > 1) return tiles * kRows * chunk_words();
    if (g_.transpose_a) return round_up(tiles, kPackedTiles) * kRows * chunk_words();
    return tiles * kRows * (chunk_words() + kRowGap);
  }

  /// Many rows: panels are packed first, then each block of rows is multiplied with all of them.
  void run_blocks() {
    for (int64_t column = 0; column < g_.n; column += panels_at_once_ * kPanel)
      for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
        int64_t count = panels(column), panel_words = units(chunk) * kPanel;
        for_tasks(stream_, count, [&](int64_t panel) {
          pack_panel(column + panel * kPanel, chunk, b_ + panel * panel_words);
        });
        for_uneven_tasks(stream_, blocks_ * parts_, [&](int64_t task, int thread) {
          int64_t block = task / parts_, part = task % parts_;
          Range range = {block * tiles_ / blocks_,
                         (block + 1) * tiles_ / blocks_,
                         part * count / parts_,
                         (part + 1) * count / parts_,
                         column,
                         chunk,
                         thread};
          if (range.first_panel == range.last_panel) return;
          TileA<Word> a = operand_a(range, packs_a_ ? a_ + thread * a_words() : nullptr);
          multiply(a, b_ + range.first_panel * panel_words, range);
        });
      }
  }

  /// Few rows: each thread packs a panel and multiplies it at once, while it is in the core's
  /// cache.
  void run_panels() {
    for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
      Range all = {0, tiles_, 0, 0, 0, chunk, 0};
      TileA<Word> a = operand_a(all, a_);
      for_uneven_tasks(stream_, all_panels_, [&](int64_t panel, int thread) {
        Word* b = b_ + thread * chunk_words() * kPanel;
        pack_panel(panel * kPanel, chunk, b);
        multiply(a, b, {0, tiles_, panel, panel + 1, 0, chunk, thread});
      });
    }
  }

  void pack_panel(int64_t column, int64_t chunk, Word* to) {
    int64_t term = chunk * chunk_, columns = std::min<int64_t>(kPanel, g_.n - column),
            n = terms(chunk);
    PanelLayout layout = kStep > 1 ? PanelLayout::halves(units(chunk)) : PanelLayout::whole();
    with_operand<Unit>(g_.dtype, [&]<class T>(T) {
      auto b = static_cast<const T*>(g_.b);
      if (g_.transpose_b)
        pack_panel_upright<Word>(b + column * g_.ldb + term, g_.ldb, columns, n, layout, to);
      else
        pack_panel_across<Word>(b + term * g_.ldb + column, g_.ldb, columns, n, layout, to);
    });
    int64_t packed = divide_up(n, kPack);
    for (int part = 0; packed < units(chunk) && part < kTileVectors; part += kTileVectors / 2)
      std::memset(to + layout.at(packed, part), 0,
                  sizeof(Word) * static_cast<size_t>((units(chunk) - packed) * kPanel / 2));
  }

  /// The range's rows of A, in place or packed.
  TileA<Word> operand_a(const Range& range, Word* to) {
    int64_t row = range.first_tile * kRows, last = std::min(g_.m, range.last_tile * kRows);
    int64_t term = range.chunk * chunk_, n = units(range.chunk), gap = n + kRowGap;
    if (!packs_a_) {
      auto from = static_cast<const std::byte*>(g_.a) +
                  (row * g_.lda + term) * static_cast<int64_t>(size_of_operand());
      return {reinterpret_cast<const Word*>(from), g_.lda / kPack, 1};
    }
#if defined(__AMX_BF16__)
    if constexpr (kStep > 1) {
      pack_amx_rows(static_cast<const bf16*>(g_.a), g_.lda, g_.transpose_a, row, last, term,
                    terms(range.chunk), to);
      return {to, 0, 0};
    }
#endif
    with_operand<Unit>(g_.dtype, [&]<class T>(T) {
      auto a = static_cast<const T*>(g_.a);
      if (!g_.transpose_a) {
        for (int64_t r = row; r < last; ++r)
          pack_row(a + r * g_.lda + term, terms(range.chunk), to + (r - row) * gap);
        return;
      }
      for (int64_t t = range.first_tile; t < range.last_tile; t += kPackedTiles)
        pack_tiles_across<Word>(a + term * g_.lda + t * kTileRows, g_.lda, last - t * kTileRows,
                                terms(range.chunk), to + (t - range.first_tile) * kTileRows * n);
    });
    if (g_.transpose_a) return {to, 1, kTileRows};
    return {to, gap, 1};
  }
  size_t size_of_operand() const { return sizeof(Word) / kPack; }

  /// `b`: the range's first panel.
  void multiply(TileA<Word> a, const Word* b, const Range& range) {
    bool begins = range.chunk == 0, ends = range.chunk == chunks_ - 1;
    int64_t column = range.column, partial_ld = panels_at_once_ * kPanel;
    const float* bias = bias_ ? bias_ + column : nullptr;
    if (g_.c_dtype == DType::f32 && begins)
      walk(a, b, range, output<float>(column, bias));
    else if (g_.c_dtype == DType::f32)
      walk(a, b, range, in_place(static_cast<float*>(g_.c) + column, g_.ldc, 1, g_.alpha));
    else if (!ends)
      walk(a, b, range, in_place(partial_, partial_ld, begins ? 0.0f : 1.0f));
    else if (g_.c_dtype == DType::bf16)
      walk(a, b, range, output<bf16>(column, bias, begins ? nullptr : partial_, partial_ld));
    else
      walk(a, b, range, output<f16>(column, bias, begins ? nullptr : partial_, partial_ld));
  }

  /// Output for C from this column on, with everything that is added to the product.
  template <class C>
  TileOutput<C> output(int64_t column, const float* bias, const float* add = nullptr,
                       int64_t ld_add = 0) const {
    auto before = static_cast<const C*>(g_.addend ? g_.addend : g_.c) + column;
    return {static_cast<C*>(g_.c) + column,
            g_.ldc,
            before,
            g_.addend ? 1 : g_.beta,
            bias,
            add,
            ld_add,
            g_.alpha};
  }
  static TileOutput<float> in_place(float* c, int64_t ldc, float beta, float alpha = 1) {
    return {.c = c, .ldc = ldc, .before = c, .beta = beta, .alpha = alpha};
  }

  template <class C>
  void walk(TileA<Word> a, const Word* panels, const Range& range, const TileOutput<C>& out) {
    int64_t n = units(range.chunk), tile_words = kRows * (a.step == 1 ? a.row : n);
    for (int64_t panel = range.first_panel; panel < range.last_panel; ++panel) {
      int64_t at = panel * kPanel, cols = std::min<int64_t>(kPanel, g_.n - range.column - at);
      const Word* b = panels + (panel - range.first_panel) * n * kPanel;
#if defined(__AMX_BF16__)
      if constexpr (kStep > 1) {
        int64_t row = range.first_tile * kRows,
                rows = std::min(g_.m, range.last_tile * kRows) - row;
        AmxProduct<C>(a.data, b, n, rows, cols, sums_ + range.thread * amx_sums(block_rows()),
                      moved(out, row, at))
            .run();
        continue;
      }
#endif
      if constexpr (kStep == 1) {
        for (int64_t t = range.first_tile; t < range.last_tile; ++t) {
          int64_t row = t * kRows;
          TileA<Word> rows = {a.data + (t - range.first_tile) * tile_words, a.row, a.step};
          multiply_tile(rows, b, n, static_cast<int>(std::min<int64_t>(kRows, g_.m - row)), cols,
                        moved(out, row, at));
        }
      }
    }
  }
  /// A narrow end of C needs only half a panel. The last rows of A may be fewer than a tile has:
  /// smaller tiles process them, and nothing beyond is read.
  template <class C>
  static void multiply_tile(TileA<Word> a, const Word* b, int64_t n, int rows, int64_t cols,
                            const TileOutput<C>& out) {
    if (cols <= kPanel / 2) return multiply_rows<kTileVectors / 2>(a, b, n, rows, cols, out);
    multiply_rows<kTileVectors>(a, b, n, rows, cols, out);
  }
  template <int Vectors, class C>
  static void multiply_rows(TileA<Word> a, const Word* b, int64_t n, int rows, int64_t cols,
                            TileOutput<C> out) {
    auto take = [&]<int kRows>(std::integral_constant<int, kRows>) {
      tile_product<Unit, kRows, Vectors>(a, b, n, cols, out);
      a.data += kRows * a.row;
      out.c += kRows * out.ldc;
      out.before += kRows * out.ldc;
      if (out.add) out.add += kRows * out.ld_add;
      rows -= kRows;
    };
    if (rows == kTileRows) return take(std::integral_constant<int, kTileRows>());
    if (rows >= 4) take(std::integral_constant<int, 4>());
    if (rows >= 2) take(std::integral_constant<int, 2>());
    if (rows >= 1) take(std::integral_constant<int, 1>());
  }

  CpuStream& stream_;
  const GemmArgs& g_;
  bool packs_a_, few_rows_;
  int64_t chunk_, chunks_, tiles_, all_panels_, panels_at_once_, blocks_, parts_;
  Word *a_ = nullptr, *b_ = nullptr;
  float *partial_ = nullptr, *bias_ = nullptr, *sums_ = nullptr;
};

#if defined(__AMX_BF16__)
using Bf16Unit = TileUnit;
#else
using Bf16Unit = UnitOf<bf16>::Type;
#endif

/// Calls PackedGemm for a limited number of rows of C at a time, so that the buffer of sums over
/// earlier chunks stays small if C cannot hold them.
template <class Unit>
void run_packed(CpuStream& stream, const GemmArgs& g) {
  int64_t columns = std::min(round_up(g.n, kPanel),
                             std::max<int64_t>(kPanel, kMaxPanelsBytes / (kMaxRowWords<Unit> * 4)));
  bool in_c = g.c_dtype == DType::f32 || g.k <= kMaxRowWords<Unit> * Unit::kPack;
  int64_t step = in_c ? g.m : kMaxPartialBytes / (columns * 4);
  auto at = [](auto* base, int64_t elements, DType dtype) {
    return base + elements * (dtype == DType::f32 ? 4 : 2);
  };
  for (int64_t row = 0; row < g.m; row += step) {
    GemmArgs part = g;
    part.m = std::min(step, g.m - row);
    part.a = at(static_cast<const std::byte*>(g.a), row * (g.transpose_a ? 1 : g.lda), g.dtype);
    part.c = at(static_cast<std::byte*>(g.c), row * g.ldc, g.c_dtype);
    if (g.addend) part.addend = at(static_cast<const std::byte*>(g.addend), row * g.ldc, g.c_dtype);
    PackedGemm<Unit>(stream, part).run();
  }
}

}  // namespace

void packed_gemm(Stream& stream, const GemmArgs& g) {
  if (g.transpose_b && !g.transpose_a && g.m <= kDotRows)
    return DotGemm(cpu_stream(stream), g).run();
  if (g.dtype == DType::bf16)
    run_packed<Bf16Unit>(cpu_stream(stream), g);
  else
    run_packed<FloatUnit>(cpu_stream(stream), g);
}

}  // namespace mtrain::cpu::MT_ISA
