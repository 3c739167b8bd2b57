// Matrix products on packed panels: B goes once into panels that fit the caches, A stays as it is unless it is stored
// transposed, and a tile of C stays in registers for all terms of a chunk. Every element of C is summed in one order that
// the problem's size alone fixes.
#include "mtrain/cpu/kernels/gemm_pack.h"
#include "mtrain/cpu/kernels/attention_tiles.h"

namespace mtrain::cpu::MT_ISA {

#if defined(__AVX512F__)
namespace {

constexpr int64_t kMaxRowBytes = 8192;      // of terms in one chunk: rows of A beside a panel of B stay in L2
constexpr int64_t kMaxPanelsBytes = 6 << 20;  // of B packed at a time: a part of L3
constexpr int64_t kBlockBytes = 384 << 10;  // of A that one thread works on at a time: a part of L2

template <class T>
class PackedGemm {
 public:
  using Unit = typename UnitOf<T>::Type;
  using Word = typename Unit::Word;
  static constexpr int64_t kPack = Unit::kPack;

  PackedGemm(CpuStream& stream, const GemmArgs& g) : stream_(stream), g_(g) {
    chunk_ = std::min<int64_t>(g.k, kMaxRowBytes / static_cast<int64_t>(sizeof(T)));
    chunks_ = (g.k + chunk_ - 1) / chunk_;
    int64_t panel_words = chunk_ / kPack * kPanel;
    int64_t panels = (g.n + kPanel - 1) / kPanel;
    panels_at_once_ = std::clamp<int64_t>(kMaxPanelsBytes / (panel_words * 4), 1, panels);
    tiles_ = (g.m + kTileRows - 1) / kTileRows;
    int64_t block = std::max<int64_t>(1, kBlockBytes / (kTileRows * chunk_ * static_cast<int64_t>(sizeof(T))));
    if (g.transpose_a) block = (block + kPackedTiles - 1) / kPackedTiles * kPackedTiles;
    int64_t threads = stream.threads();
    blocks_ = std::min(tiles_, ((tiles_ + block - 1) / block + threads - 1) / threads * threads);
    block_tiles_ = (tiles_ + blocks_ - 1) / blocks_;
    // Few rows: a block meets a part of the panels at a time, so that every thread gets something.
    parts_ = std::clamp<int64_t>((threads + blocks_ - 1) / blocks_, 1, panels_at_once_);
    cut_scratch(stream, [&](Pieces& pieces) {
      b_ = pieces.take<Word>(panels_at_once_ * panel_words);
      if (g.transpose_a) a_ = pieces.take<Word>(threads * a_words());
      if (chunks_ > 1 && g.c_dtype != DType::f32) partial_ = pieces.take<float>(g.m * panels_at_once_ * kPanel);
      if (g.bias) bias_ = pieces.take<float>(panels * kPanel);
      return 0;
    });
    if (g.bias) {
      std::memset(bias_, 0, sizeof(float) * static_cast<size_t>(panels * kPanel));
      stream.kernels().cast(stream, {g.bias, bias_, g.n, 1, false, g.bias_dtype, DType::f32});
    }
  }

  void run() {
    int64_t step = panels_at_once_ * kPanel;
    for (int64_t column = 0; column < g_.n; column += step)
      for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
        pack_b(column, chunk);
        for_uneven_tasks(stream_, blocks_ * parts_, [&](int64_t task, int thread) {
          multiply(task / parts_, task % parts_, column, chunk, thread);
        });
      }
  }

 private:
  int64_t a_words() const { return (block_tiles_ + kPackedTiles - 1) / kPackedTiles * kPackedTiles * kTileRows * (chunk_ / kPack); }
  int64_t units(int64_t chunk) const { return (std::min(chunk_, g_.k - chunk * chunk_)) / kPack; }
  int64_t panels(int64_t column) const {
    return std::min(panels_at_once_, (g_.n - column + kPanel - 1) / kPanel);
  }

  void pack_b(int64_t column, int64_t chunk) {
    auto b = static_cast<const T*>(g_.b);
    int64_t words = units(chunk) * kPanel, term = chunk * chunk_;
    for_tasks(stream_, panels(column), [&](int64_t panel) {
      int64_t at = column + panel * kPanel, columns = std::min<int64_t>(kPanel, g_.n - at);
      Word* to = b_ + panel * words;
      if (g_.transpose_b)
        pack_panel_upright(reinterpret_cast<const Word*>(b + at * g_.ldb + term), g_.ldb / kPack, columns, units(chunk), to);
      else
        pack_panel_across(b + term * g_.ldb + at, g_.ldb, columns, units(chunk), to);
    });
  }

  /// Consecutive tiles of rows and packed panels.
  struct Range {
    int64_t first_tile, last_tile, first_panel, last_panel;
  };

  void multiply(int64_t block, int64_t part, int64_t column, int64_t chunk, int thread) {
    int64_t count = panels(column);
    Range range = {block * tiles_ / blocks_, (block + 1) * tiles_ / blocks_, part * count / parts_,
                   (part + 1) * count / parts_};
    if (range.first_panel == range.last_panel) return;
    TileA<Word> a = operand_a(range.first_tile, range.last_tile, chunk, thread);
    bool begins = chunk == 0, ends = chunk == chunks_ - 1;
    int64_t partial_ld = panels_at_once_ * kPanel;
    const float* bias = bias_ ? bias_ + column : nullptr;
    if (g_.c_dtype == DType::f32 && begins)
      walk<float>(a, range, column, chunk, output<float>(column, bias));
    else if (g_.c_dtype == DType::f32)
      walk<float>(a, range, column, chunk, in_place(static_cast<float*>(g_.c) + column, g_.ldc, 1, g_.alpha));
    else if (ends)
      walk<T>(a, range, column, chunk, output<T>(column, bias, begins ? nullptr : partial_, partial_ld));
    else
      walk<float>(a, range, column, chunk, in_place(partial_, partial_ld, begins ? 0.0f : 1.0f));
  }

  /// C from this column on, with all that the caller wants added.
  template <class C>
  TileOutput<C> output(int64_t column, const float* bias, const float* add = nullptr, int64_t ld_add = 0) const {
    auto before = static_cast<const C*>(g_.addend ? g_.addend : g_.c) + column;
    return {static_cast<C*>(g_.c) + column, g_.ldc, before, g_.addend ? 1 : g_.beta, bias, add, ld_add, g_.alpha};
  }
  static TileOutput<float> in_place(float* c, int64_t ldc, float beta, float alpha = 1) {
    return {.c = c, .ldc = ldc, .before = c, .beta = beta, .alpha = alpha};
  }

  /// The block's rows of A: as they lie, or packed into the thread's own memory when they are stored as columns.
  TileA<Word> operand_a(int64_t first, int64_t last, int64_t chunk, int thread) {
    auto a = static_cast<const T*>(g_.a);
    int64_t term = chunk * chunk_, n = units(chunk);
    if (!g_.transpose_a) return {reinterpret_cast<const Word*>(a + first * kTileRows * g_.lda + term), g_.lda / kPack, 1};
    Word* to = a_ + thread * a_words();
    for (int64_t t = first; t < last; t += kPackedTiles)
      pack_tiles_across(a + term * g_.lda + t * kTileRows, g_.lda, g_.m - t * kTileRows, n,
                        to + (t - first) * kTileRows * n);
    return {to, 1, kTileRows};
  }

  template <class C>
  void walk(TileA<Word> a, const Range& range, int64_t column, int64_t chunk, TileOutput<C> out) {
    int64_t n = units(chunk), tile_words = g_.transpose_a ? kTileRows * n : kTileRows * a.row;
    for (int64_t panel = range.first_panel; panel < range.last_panel; ++panel) {
      int64_t at = panel * kPanel, cols = std::min<int64_t>(kPanel, g_.n - column - at);
      const Word* b = b_ + panel * n * kPanel;
      for (int64_t t = range.first_tile; t < range.last_tile; ++t) {
        int64_t row = t * kTileRows;
        TileOutput<C> to = out;
        to.c += row * out.ldc + at;
        to.before += row * out.ldc + at;
        if (out.bias) to.bias += at;
        if (out.add) to.add += row * out.ld_add + at;
        TileA<Word> rows = {a.data + (t - range.first_tile) * tile_words, a.row, a.step};
        multiply_tile(rows, b, n, static_cast<int>(std::min<int64_t>(kTileRows, g_.m - row)), cols, to);
      }
    }
  }
  /// A narrow end of C needs half a panel. The last rows of A are fewer than a tile's: smaller tiles take them, and what
  /// lies beyond is not read.
  template <class C>
  static void multiply_tile(TileA<Word> a, const Word* b, int64_t n, int rows, int64_t cols, const TileOutput<C>& out) {
    if (cols <= kPanel / 2) return multiply_rows<kTileVectors / 2>(a, b, n, rows, cols, out);
    multiply_rows<kTileVectors>(a, b, n, rows, cols, out);
  }
  template <int Vectors, class C>
  static void multiply_rows(TileA<Word> a, const Word* b, int64_t n, int rows, int64_t cols, TileOutput<C> out) {
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
  int64_t chunk_, chunks_, panels_at_once_, tiles_, blocks_, block_tiles_, parts_;
  Word *a_ = nullptr, *b_ = nullptr;
  float *partial_ = nullptr, *bias_ = nullptr;
};

/// Rows of pairs must start at even values.
[[maybe_unused]] bool pairs_fit(const GemmArgs& g) {
  auto even = [](const void* data, int64_t ld) { return reinterpret_cast<uintptr_t>(data) % 4 == 0 && ld % 2 == 0; };
  return g.k % 2 == 0 && (g.transpose_a || even(g.a, g.lda)) && (!g.transpose_b || even(g.b, g.ldb));
}

}  // namespace

bool packed_gemm(Stream& stream, const GemmArgs& g) {
  if (g.batch != 1 || (g.transpose_a && g.transpose_b)) return false;
  if (g.dtype == DType::f32 && g.c_dtype == DType::f32) return PackedGemm<float>(cpu_stream(stream), g).run(), true;
#if defined(__AVX512BF16__)
  if (g.dtype == DType::bf16 && (g.c_dtype == DType::f32 || g.c_dtype == DType::bf16) && pairs_fit(g))
    return PackedGemm<bf16>(cpu_stream(stream), g).run(), true;
#endif
  return false;
}

#else

bool packed_gemm(Stream&, const GemmArgs&) {
  return false;
}

#endif

}  // namespace mtrain::cpu::MT_ISA
