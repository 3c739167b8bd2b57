#include <atomic>
#include <cstring>
#include <initializer_list>

#include "arithmetic.h"
#include "execute.h"

namespace mtrain::emulation {
namespace {

constexpr int kTiles = 8, kRows = 16, kRowBytes = 64;  // palette 1
constexpr int kColumnsAt = 16, kRowsAt = 48;           // places in the 64 bytes of a configuration

/// The manual zeroes what lies outside rows and row_bytes; no instruction reads it, and a new
/// configuration zeroes all.
struct Tile {
  int rows = 0, row_bytes = 0;
  alignas(64) uint8_t data[kRows][kRowBytes] = {};

  void zero() { std::memset(data, 0, sizeof(data)); }
  uint32_t* words(int row) { return reinterpret_cast<uint32_t*>(data[row]); }
};

struct TileState {
  bool configured = false;
  int start_row = 0;  // where an interrupted transfer goes on
  Tile tiles[kTiles];

  void release() {
    configured = false;
    start_row = 0;
    for (Tile& tile : tiles) {
      tile.rows = tile.row_bytes = 0;
      tile.zero();
    }
  }
};

// Within the space that the loader gives every thread: a handler must not allocate.
__attribute__((tls_model("initial-exec"))) thread_local constinit TileState state;
std::atomic<bool> permitted{false};

uint16_t word_at(const uint8_t* at) {
  uint16_t value = 0;
  std::memcpy(&value, at, 2);
  return value;
}

bool all_zero(const uint8_t* config, int from, int to) {
  for (int i = from; i < to; ++i)
    if (config[i] != 0) return false;
  return true;
}

/// What LDTILECFG refuses, or nullptr.
const char* config_refusal(const uint8_t* config) {
  if (config[0] > 1) return "LDTILECFG: a palette other than 0 and 1";
  if (!all_zero(config, 2, 16) || !all_zero(config, 32, 48) || !all_zero(config, 56, 64))
    return "LDTILECFG: reserved bytes are not zero";
  for (int t = 0; t < kTiles; ++t) {
    int columns = word_at(config + kColumnsAt + 2 * t);
    int rows = config[kRowsAt + t];
    if (columns > kRowBytes) return "LDTILECFG: more than 64 bytes in a row";
    if (rows > kRows) return "LDTILECFG: more than 16 rows";
    if ((columns == 0) != (rows == 0))
      return "LDTILECFG: rows without bytes, or bytes without rows";
  }
  return nullptr;
}

Outcome load_config(const uint8_t* from) {
  uint8_t config[64];
  std::memcpy(config, from, sizeof(config));
  if (config[0] == 0) {
    state.release();
    return {};
  }
  if (const char* refusal = config_refusal(config)) return {nullptr, refusal};
  state.release();
  state.configured = true;
  state.start_row = config[1];
  for (int t = 0; t < kTiles; ++t) {
    state.tiles[t].row_bytes = word_at(config + kColumnsAt + 2 * t);
    state.tiles[t].rows = config[kRowsAt + t];
  }
  return {};
}

void store_config(uint8_t* to) {
  uint8_t config[64] = {};
  if (state.configured) {
    config[0] = 1;
    config[1] = static_cast<uint8_t>(state.start_row);
    for (int t = 0; t < kTiles; ++t) {
      auto columns = static_cast<uint16_t>(state.tiles[t].row_bytes);
      std::memcpy(config + kColumnsAt + 2 * t, &columns, 2);
      config[kRowsAt + t] = static_cast<uint8_t>(state.tiles[t].rows);
    }
  }
  std::memcpy(to, config, sizeof(config));
}

/// What every use of a tile's data asks for.
const char* tile_refusal(const Tile& tile) {
  if (tile.rows == 0) return "a tile that the configuration leaves empty";
  if (tile.row_bytes % 4 != 0) return "a tile whose rows are not a multiple of 4 bytes";
  return nullptr;
}

Outcome transfer(const Instruction& in, const Registers& registers) {
  Tile& tile = state.tiles[in.reg];
  if (const char* refusal = tile_refusal(tile)) return {refusal};
  if (state.start_row >= tile.rows) return {"start_row lies behind the tile's last row"};
  Instruction first = in;  // the index is a stride
  first.address.index = kNone;
  uint64_t start = registers.address(first);
  uint64_t stride =
      in.address.index == kNone ? 0 : registers.general(in.address.index) << in.address.shift;
  auto bytes = static_cast<size_t>(tile.row_bytes);
  bool load = in.op == Op::kLoadTile;
  for (; state.start_row < tile.rows; ++state.start_row) {
    auto* memory =
        reinterpret_cast<uint8_t*>(start + static_cast<uint64_t>(state.start_row) * stride);
    uint8_t* row = tile.data[state.start_row];
    if (load)
      std::memcpy(row, memory, bytes);
    else
      std::memcpy(memory, row, bytes);
  }
  state.start_row = 0;
  return {};
}

const char* product_refusal(const Tile& sum, const Tile& a, const Tile& b) {
  if (&sum == &a || &sum == &b || &a == &b) return "one tile twice in a product";
  for (const Tile* tile : {&sum, &a, &b})
    if (const char* refusal = tile_refusal(*tile)) return refusal;
  if (sum.row_bytes != b.row_bytes) return "a product whose columns are not those of src2";
  if (sum.rows != a.rows) return "a product whose rows are not those of src1";
  if (a.row_bytes / 4 != b.rows)
    return "a product whose src2 has not one row for each 4 bytes of src1's";
  return nullptr;
}

uint32_t dot_bytes(Op op, uint32_t a, uint32_t b) {
  bool a_signed = op == Op::kTileDotBytesSU || op == Op::kTileDotBytesSS;
  bool b_signed = op == Op::kTileDotBytesUS || op == Op::kTileDotBytesSS;
  int sum = 0;
  for (int shift = 0; shift < 32; shift += 8) {
    int x = a_signed ? static_cast<int8_t>(a >> shift) : static_cast<uint8_t>(a >> shift);
    int y = b_signed ? static_cast<int8_t>(b >> shift) : static_cast<uint8_t>(b >> shift);
    sum += x * y;
  }
  return static_cast<uint32_t>(sum);
}

Outcome product(const Instruction& in) {
  Tile& sum = state.tiles[in.reg];
  Tile& a = state.tiles[in.rm];
  Tile& b = state.tiles[in.vvvv];
  if (const char* refusal = product_refusal(sum, a, b)) return {refusal};
  int columns = sum.row_bytes / 4;
  for (int m = 0; m < sum.rows; ++m) {
    uint32_t* row = sum.words(m);
    if (in.op == Op::kTileDotPairs) {
      dot_row(a.words(m), b.rows, b.words(0), row);
    } else {
      for (int k = 0; k < b.rows; ++k)
        for (int n = 0; n < columns; ++n) row[n] += dot_bytes(in.op, a.words(m)[k], b.words(k)[n]);
    }
  }
  state.start_row = 0;
  return {};
}

Outcome zero(const Instruction& in) {
  if (state.tiles[in.reg].rows == 0) return {"a tile that the configuration leaves empty"};
  state.tiles[in.reg].zero();
  state.start_row = 0;
  return {};
}

}  // namespace

void permit_tiles() { permitted.store(true); }

Outcome execute_tile(const Instruction& in, Registers& registers) {
  if (in.op == Op::kRelease) {
    state.release();
    return {};
  }
  if (in.op == Op::kStoreConfig) {
    store_config(reinterpret_cast<uint8_t*>(registers.address(in)));
    return {};
  }
  if (!permitted.load()) return {"tiles without arch_prctl(ARCH_REQ_XCOMP_PERM, 18)"};
  if (in.op == Op::kLoadConfig)
    return load_config(reinterpret_cast<const uint8_t*>(registers.address(in)));
  if (!state.configured) return {"a tile before LDTILECFG"};
  if (in.op == Op::kZero) return zero(in);
  if (in.op == Op::kLoadTile || in.op == Op::kStoreTile) return transfer(in, registers);
  return product(in);
}

}  // namespace mtrain::emulation
