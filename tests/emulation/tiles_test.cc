#include <cpuid.h>
#include <doctest/doctest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "reference.h"

#define MT_TILES __attribute__((target("amx-tile,amx-bf16,amx-int8")))

namespace mtrain::emulation {
namespace {

struct alignas(64) Config {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int rows_of_it, int bytes) {
    rows[tile] = static_cast<uint8_t>(rows_of_it);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};
static_assert(sizeof(Config) == 64);

struct TileData {
  uint32_t words[16][16] = {};
  void fill(reference::Bits& bits) {
    for (auto& row : words)
      for (uint32_t& word : row) word = bits.word();
  }
};

MT_TILES void load_config(const Config& config) { asm volatile("ldtilecfg %0" ::"m"(config)); }
MT_TILES void store_config(Config& config) { asm volatile("sttilecfg %0" : "=m"(config)); }
MT_TILES void release() { asm volatile("tilerelease"); }

/// What a kernel calls before it uses tiles.
bool ask_for_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

enum class Product { kPairs, kUU, kUS, kSU, kSS };

/// tmm0 += tmm1 * tmm2, tiles in memory with these distances between rows.
MT_TILES void multiply(Product op, TileData& sum, const void* a, int64_t a_stride, const void* b,
                       int64_t b_stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm0" ::"r"(sum.words), "r"(int64_t{64}) : "memory");
  asm volatile("tileloadd (%0,%1,1), %%tmm1" ::"r"(a), "r"(a_stride) : "memory");
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm2" ::"r"(b), "r"(b_stride) : "memory");
  switch (op) {
    case Product::kPairs:
      asm volatile("tdpbf16ps %tmm2, %tmm1, %tmm0");
      break;
    case Product::kUU:
      asm volatile("tdpbuud %tmm2, %tmm1, %tmm0");
      break;
    case Product::kUS:
      asm volatile("tdpbusd %tmm2, %tmm1, %tmm0");
      break;
    case Product::kSU:
      asm volatile("tdpbsud %tmm2, %tmm1, %tmm0");
      break;
    case Product::kSS:
      asm volatile("tdpbssd %tmm2, %tmm1, %tmm0");
      break;
  }
  asm volatile("tilestored %%tmm0, (%0,%1,1)" ::"r"(sum.words), "r"(int64_t{64}) : "memory");
}

/// Byte `i` of a word, with or without its sign.
int byte_of(uint32_t word, int i, bool sign) {
  int value = static_cast<int>(word >> (8 * i) & 255);
  return sign && value > 127 ? value - 256 : value;
}

/// C[m, n] of the manual's pseudocode; `k` words.
uint32_t expected(Product op, uint32_t sum, const TileData& a, const TileData& b, int m, int n,
                  int k) {
  if (op == Product::kPairs) {
    uint32_t even = 0, odd = 0;
    for (int p = 0; p < k; ++p) {
      even = reference::fused(reference::low(a.words[m][p]), reference::low(b.words[p][n]), even);
      odd = reference::fused(reference::high(a.words[m][p]), reference::high(b.words[p][n]), odd);
    }
    return reference::plus(sum, reference::plus(even, odd));
  }
  bool a_sign = op == Product::kSU || op == Product::kSS;
  bool b_sign = op == Product::kUS || op == Product::kSS;
  for (int p = 0; p < k; ++p)
    for (int i = 0; i < 4; ++i)
      sum += static_cast<uint32_t>(byte_of(a.words[m][p], i, a_sign) *
                                   byte_of(b.words[p][n], i, b_sign));
  return sum;
}

/// The number of wrong results of one product of m x k words by k x n.
int wrong_products(Product op, int m, int n, int k, reference::Bits& bits) {
  Config config;
  config.set(0, m, 4 * n);
  config.set(1, m, 4 * k);
  config.set(2, k, 4 * n);
  load_config(config);
  TileData sum, a, b;
  sum.fill(bits);
  a.fill(bits);
  b.fill(bits);
  TileData before = sum;
  multiply(op, sum, a.words, 64, b.words, 64);
  int wrong = 0;
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) {
      bool inside = i < m && j < n;  // the rest of memory is not written
      wrong += sum.words[i][j] !=
               (inside ? expected(op, before.words[i][j], a, b, i, j, k) : before.words[i][j]);
    }
  return wrong;
}

/// Whether the CPU has AMX itself.
bool has_tiles() {
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & (1u << 24)) != 0;
}

bool usable() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f");
}

TEST_CASE("tile products compute what the manual says, in every size") {
  if (!usable()) {
    MESSAGE("not run: this CPU has no AVX-512");
    return;
  }
  REQUIRE(ask_for_tiles());
  reference::Bits bits(7);
  for (Product op : {Product::kPairs, Product::kUU, Product::kUS, Product::kSU, Product::kSS})
    for (const auto& size : {std::array{16, 16, 16},
                             {1, 1, 1},
                             {16, 1, 3},
                             {5, 16, 16},
                             {7, 9, 11},
                             {16, 16, 1},
                             {2, 15, 16}})
      for (int round = 0; round < 10; ++round) {
        CAPTURE(static_cast<int>(op));
        CAPTURE(size[0]);
        CAPTURE(size[1]);
        CAPTURE(size[2]);
        REQUIRE(wrong_products(op, size[0], size[1], size[2], bits) == 0);
      }
  release();
}

MT_TILES void load_and_store(const uint8_t* from, uint8_t* to) {
  int64_t stride = 24, twice = 48;
  asm volatile("tileloadd 100(%0,%1,2), %%tmm3" ::"r"(from), "r"(stride) : "memory");
  asm volatile("tilestored %%tmm3, -7(%0,%1,1)" ::"r"(to), "r"(twice) : "memory");
}

MT_TILES void load_one_row_often(const uint8_t* from, uint8_t* to) {
  asm volatile("tileloadd (%0), %%tmm3" ::"r"(from) : "memory");  // no index: the stride is zero
  asm volatile("tilestored %%tmm3, (%0,%1,1)" ::"r"(to), "r"(int64_t{64}) : "memory");
}

TEST_CASE("rows are loaded and stored with strides, scales and displacements") {
  if (!usable()) return;
  REQUIRE(ask_for_tiles());
  Config config;
  config.set(3, 6, 44);
  load_config(config);
  std::vector<uint8_t> from(1024), to(1024, 0xee);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 7 + i / 256);
  load_and_store(from.data(), to.data() + 7);
  std::vector<uint8_t> want(1024, 0xee);
  for (size_t row = 0; row < 6; ++row) std::memcpy(&want[48 * row], &from[100 + 48 * row], 44);
  CHECK(to == want);
  load_one_row_often(from.data(), to.data());
  for (size_t row = 0; row < 6; ++row) CHECK(std::memcmp(&to[64 * row], from.data(), 44) == 0);
  release();
}

TEST_CASE("an interrupted load goes on where the configuration says, once") {
  if (!usable()) return;
  REQUIRE(ask_for_tiles());
  Config config;
  config.start_row = 4;
  config.set(3, 6, 44);
  load_config(config);
  std::vector<uint8_t> from(1024, 0x55), to(1024, 0xee);
  load_one_row_often(from.data(), to.data());
  for (size_t row = 0; row < 6; ++row) CHECK(to[64 * row] == (row < 4 ? 0 : 0x55));
  load_one_row_often(from.data(), to.data());
  for (size_t row = 0; row < 6; ++row) CHECK(to[64 * row] == 0x55);
  release();
}

MT_TILES void zero_six(TileData& first, TileData& second) {
  asm volatile("tileloadd (%0,%1,1), %%tmm6" ::"r"(first.words), "r"(int64_t{64}) : "memory");
  asm volatile("tileloadd (%0,%1,1), %%tmm7" ::"r"(second.words), "r"(int64_t{64}) : "memory");
  asm volatile("tilezero %tmm6");
  asm volatile("tilestored %%tmm6, (%0,%1,1)" ::"r"(first.words), "r"(int64_t{64}) : "memory");
  asm volatile("tilestored %%tmm7, (%0,%1,1)" ::"r"(second.words), "r"(int64_t{64}) : "memory");
}

TEST_CASE("a tile is set to zero, its neighbour is not") {
  if (!usable()) return;
  REQUIRE(ask_for_tiles());
  Config config;
  config.set(6, 16, 64);
  config.set(7, 16, 64);
  load_config(config);
  reference::Bits bits(8);
  TileData first, second;
  first.fill(bits);
  second.fill(bits);
  TileData before = second;
  zero_six(first, second);
  CHECK(std::memcmp(&first, std::make_unique<TileData>().get(), sizeof(first)) == 0);
  CHECK(std::memcmp(&second, &before, sizeof(second)) == 0);
  release();
}

TEST_CASE("the configuration is kept per thread, and given back") {
  if (!usable()) return;
  REQUIRE(ask_for_tiles());
  Config config;
  for (int t = 0; t < 8; ++t) config.set(t, t + 1, 4 * (t + 2));
  load_config(config);
  Config back;
  store_config(back);
  CHECK(std::memcmp(&back, &config, sizeof(config)) == 0);
  if (has_tiles())
    MESSAGE(
        "not looked at: whether a new thread has a configuration. On this CPU the kernel gives it "
        "that of its parent");
  else
    std::thread([&] {
      Config other;
      store_config(other);
      Config none;
      none.palette = 0;
      CHECK(std::memcmp(&other, &none, sizeof(none)) == 0);
    }).join();
  store_config(back);
  CHECK(std::memcmp(&back, &config, sizeof(config)) == 0);
  release();
  store_config(back);
  CHECK(back.palette == 0);
  CHECK(back.rows[3] == 0);
}

TEST_CASE("threads multiply tiles at once") {
  if (!usable()) return;
  REQUIRE(ask_for_tiles());
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, -1);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t, &wrong] {
      reference::Bits bits(static_cast<uint32_t>(50 + t));
      int count = 0;
      for (int round = 0; round < 20; ++round)
        count += wrong_products(Product::kPairs, 16 - t, 16, 16, bits);
      wrong[static_cast<size_t>(t)] = count;
      release();
    });
  for (std::thread& thread : threads) thread.join();
  for (int count : wrong) CHECK(count == 0);
}

}  // namespace
}  // namespace mtrain::emulation
