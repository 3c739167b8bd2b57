// What attention's two passes share: tile sizes, and keys and values converted to float tiles once per call, so that
// every query tile and every head of a group reads them in the layout its products want. The copies take O(tokens).
#pragma once
#include "mtrain/cpu/kernels/launch.h"
#include "mtrain/cpu/kernels/tile_product.h"
#include "mtrain/kernel/cast.h"

namespace mtrain::cpu::MT_ISA {

constexpr int64_t kTile = 64;  // queries and keys per tile

inline int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

/// The problem cut into tiles. Sequence s owns tiles [first_tile(s), first_tile(s + 1)) of 64 tokens, the last one partly
/// filled.
class Tiling {
 public:
  explicit Tiling(const AttentionArgs& args) : args_(args), width_(round_up(args.head_dim, kLanes)) {
    for (int64_t s = 0; s < args.sequences; ++s) tiles_ += tiles(s);
  }
  int64_t length(int64_t s) const { return args_.cu_seqlens[s + 1] - args_.cu_seqlens[s]; }
  int64_t start(int64_t s) const { return args_.cu_seqlens[s]; }
  int64_t tiles(int64_t s) const { return (length(s) + kTile - 1) / kTile; }
  int64_t all_tiles() const { return tiles_; }
  /// Head dim rounded up to whole vectors; the added columns are zero.
  int64_t width() const { return width_; }
  int64_t tile_floats() const { return kTile * width_; }
  int64_t per_group() const { return args_.heads / args_.groups; }

  /// Calls f(sequence, tile within it, tile among all) for a tile number among all.
  template <class F>
  void locate(int64_t tile, F&& f) const {
    int64_t s = 0, within = tile;
    while (within >= tiles(s)) within -= tiles(s++);
    f(s, within);
  }

 private:
  const AttentionArgs& args_;
  int64_t width_, tiles_ = 0;
};

/// Rows of a HeadsView as floats: [rows, width], zero beyond `rows` up to `all_rows` and beyond the head dim.
template <class T>
inline void load_rows(const T* from, int64_t stride, int64_t rows, int64_t all_rows, int64_t dim, int64_t width,
                      float factor, float* to) {
  for (int64_t r = 0; r < rows; ++r) {
    cast_row(SerialTeam{}, from + r * stride, to + r * width, dim, factor, false);
    for (int64_t d = dim; d < width; ++d) to[r * width + d] = 0;
  }
  std::memset(to + rows * width, 0, sizeof(float) * static_cast<size_t>((all_rows - rows) * width));
}

/// to[d * kTile + r] = from[r * width + d].
inline void transpose_tile(const float* from, int64_t width, float* to) {
  for (int64_t d0 = 0; d0 < width; d0 += 4)
    for (int64_t r0 = 0; r0 < kTile; r0 += 4)
      for (int64_t d = d0; d < d0 + 4; ++d)
        for (int64_t r = r0; r < r0 + 4; ++r) to[d * kTile + r] = from[r * width + d];
}

template <class T>
inline T* head_rows(const HeadsView& view, int64_t token, int64_t group, int64_t head_in_group, int64_t dim) {
  return static_cast<T*>(view.data) + token * view.row_stride + group * view.group_stride + head_in_group * dim;
}

}  // namespace mtrain::cpu::MT_ISA
