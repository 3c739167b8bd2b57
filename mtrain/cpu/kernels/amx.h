// AMX: products of bf16 pairs on tiles of 16 rows by 16 words (a word is a pair). Tile registers 0
// to 3 hold 32 by 32 sums, registers 4 to 7 the operands. The state is per thread.
#pragma once
#include "mtrain/cpu/kernels/vec.h"

#if defined(__AMX_BF16__)
namespace mtrain::cpu::MT_ISA {

constexpr int64_t kAmxRows = 32;     // rows of sums: two tiles
constexpr int64_t kAmxColumns = 32;  // columns of sums: two tiles
constexpr int64_t kAmxWords = 16;    // words along K in a row of a tile
constexpr int64_t kAmxTile = 16 * kAmxWords;

/// Configures the calling thread's tile registers as eight tiles of 16 rows of 64 bytes; releases
/// them when destroyed.
class AmxTiles {
 public:
  AmxTiles() {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } layout;
    static_assert(sizeof layout == 64);
    asm volatile(
        "ldtilecfg %0"
        :
        : "m"(layout));  // g++ 12's intrinsic does not declare that it reads the whole structure
  }
  ~AmxTiles() { _tile_release(); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
};

inline void zero_amx_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

/// Loads 32 by 32 sums; `ld` is the row stride in floats.
inline void load_amx_sums(const float* from, int64_t ld) {
  _tile_loadd(0, from, ld * 4);
  _tile_loadd(1, from + kLanes, ld * 4);
  _tile_loadd(2, from + 16 * ld, ld * 4);
  _tile_loadd(3, from + 16 * ld + kLanes, ld * 4);
}
inline void store_amx_sums(float* to, int64_t ld) {
  _tile_stored(0, to, ld * 4);
  _tile_stored(1, to + kLanes, ld * 4);
  _tile_stored(2, to + 16 * ld, ld * 4);
  _tile_stored(3, to + 16 * ld + kLanes, ld * 4);
}

/// The layout of 32 rows of A, strides in words: `row` between rows of a tile, `next` between tiles
/// along K (16 words), `below` between the two tiles of rows.
struct AmxRows {
  const uint32_t* data;
  int64_t row, next, below;
};

/// sums += A · B over `n` words along K (a multiple of 16). B has rows of 32 columns, `ldb` words
/// apart.
inline void add_amx_terms(const AmxRows& a, const uint32_t* b, int64_t ldb, int64_t n) {
  const uint32_t* left = a.data;
  for (int64_t p = 0; p < n; p += kAmxWords, left += a.next, b += kAmxWords * ldb) {
    _tile_loadd(6, b, ldb * 4);
    _tile_loadd(7, b + kLanes, ldb * 4);
    _tile_loadd(4, left, a.row * 4);
    _tile_loadd(5, left + a.below, a.row * 4);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

}  // namespace mtrain::cpu::MT_ISA
#endif
