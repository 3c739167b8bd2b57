#include "mtrain/base/hash.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <arm_neon.h>
#include <sys/auxv.h>
#endif

namespace mtrain {
namespace {

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = (c >> 1) ^ (c & 1 ? 0x82F63B78u : 0u);
    table[i] = c;
  }
  return table;
}
constexpr auto kCrcTable = crc_table();

uint32_t crc_bytewise(const uint8_t* p, size_t n, uint32_t crc) {
  for (; n; --n) crc = (crc >> 8) ^ kCrcTable[(crc ^ *p++) & 0xFF];
  return crc;
}

#if defined(__x86_64__)
bool has_crc_instructions() { return __builtin_cpu_supports("sse4.2"); }
__attribute__((target("sse4.2"))) uint32_t crc_by_instructions(const uint8_t* p, size_t n,
                                                               uint32_t crc) {
  uint64_t wide = crc;
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  auto narrow = static_cast<uint32_t>(wide);
  for (; n; --n) narrow = _mm_crc32_u8(narrow, *p++);
  return narrow;
}
#elif defined(__aarch64__)
bool has_crc_instructions() {
  static const bool kHas = ::getauxval(AT_HWCAP) & HWCAP_CRC32;
  return kHas;
}
__attribute__((target("+crc"))) uint32_t crc_by_instructions(const uint8_t* p, size_t n,
                                                             uint32_t crc) {
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    crc = __crc32cd(crc, word);
  }
  for (; n; --n) crc = __crc32cb(crc, *p++);
  return crc;
}
#else
bool has_crc_instructions() { return false; }
uint32_t crc_by_instructions(const uint8_t* p, size_t n, uint32_t crc) {
  return crc_bytewise(p, n, crc);
}
#endif

constexpr std::array<uint32_t, 64> kSha = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

#if defined(__x86_64__)
bool has_sha_instructions() {
  static const bool kHas = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __builtin_cpu_supports("sse4.1") && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
           (b >> 29 & 1);
  }();
  return kHas;
}

/// SHA-256 rounds by the CPU's instructions, four at a time. They need the state as the halves (a,
/// b, e, f) and (c, d, g, h).
__attribute__((target("sha,sse4.1"))) void sha_blocks(uint32_t* state, const uint8_t* data,
                                                      size_t blocks) {
  auto* words = reinterpret_cast<__m128i*>(state);
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128(words), 0xB1),
          efgh = _mm_shuffle_epi32(_mm_loadu_si128(words + 1), 0x1B);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
  for (; blocks; --blocks, data += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; ++i)
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(data) + i), swap);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      if (i >= 4) {
        __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w[i % 4], w[(i + 1) % 4]),
                                    _mm_alignr_epi8(w[(i + 3) % 4], w[(i + 2) % 4], 4));
        w[i % 4] = _mm_sha256msg2_epu32(sum, w[(i + 3) % 4]);
      }
      __m128i wk = _mm_add_epi32(
          w[i % 4], _mm_loadu_si128(reinterpret_cast<const __m128i*>(kSha.data()) + i));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(wk, 0x0E));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  __m128i feba = _mm_shuffle_epi32(abef, 0x1B), dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128(words, _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(words + 1, _mm_alignr_epi8(dchg, feba, 8));
}
#elif defined(__aarch64__)
bool has_sha_instructions() {
  static const bool kHas = ::getauxval(AT_HWCAP) & HWCAP_SHA2;
  return kHas;
}

/// SHA-256 rounds by the CPU's instructions, four at a time.
__attribute__((target("+crypto"))) void sha_blocks(uint32_t* state, const uint8_t* data,
                                                   size_t blocks) {
  uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4);
  for (; blocks; --blocks, data += 64) {
    const uint32x4_t abcd_before = abcd, efgh_before = efgh;
    uint32x4_t w[4];
    for (int i = 0; i < 4; ++i) w[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(data + 16 * i)));
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      if (i >= 4)
        w[i % 4] = vsha256su1q_u32(vsha256su0q_u32(w[i % 4], w[(i + 1) % 4]), w[(i + 2) % 4],
                                   w[(i + 3) % 4]);
      const uint32x4_t wk = vaddq_u32(w[i % 4], vld1q_u32(kSha.data() + 4 * i)), abcd_now = abcd;
      abcd = vsha256hq_u32(abcd, efgh, wk);
      efgh = vsha256h2q_u32(efgh, abcd_now, wk);
    }
    abcd = vaddq_u32(abcd, abcd_before);
    efgh = vaddq_u32(efgh, efgh_before);
  }
  vst1q_u32(state, abcd);
  vst1q_u32(state + 4, efgh);
}
#else
bool has_sha_instructions() { return false; }
void sha_blocks(uint32_t*, const uint8_t*, size_t) {}
#endif

}  // namespace

uint32_t crc32c(std::span<const std::byte> data, uint32_t crc) {
  auto* p = reinterpret_cast<const uint8_t*>(data.data());
  if (has_crc_instructions()) return ~crc_by_instructions(p, data.size(), ~crc);
  return ~crc_bytewise(p, data.size(), ~crc);
}

Sha256::Sha256(bool use_instructions)
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
             0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19},
      use_instructions_(use_instructions) {}

void Sha256::blocks(const uint8_t* data, size_t count) {
  if (use_instructions_ && has_sha_instructions()) return sha_blocks(state_.data(), data, count);
  for (; count; --count, data += 64) block(data);
}

void Sha256::block(const uint8_t* data) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i)
    w[i] = uint32_t{data[4 * i]} << 24 | uint32_t{data[4 * i + 1]} << 16 |
           uint32_t{data[4 * i + 2]} << 8 | data[4 * i + 3];
  for (size_t i = 16; i < 64; ++i) {
    uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < 64; ++i) {
    uint32_t t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                  ((e & f) ^ (~e & g)) + kSha[i] + w[i];
    uint32_t t2 =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<uint32_t, 8> add = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += add[i];
}

void Sha256::update(std::span<const std::byte> data) {
  auto* p = reinterpret_cast<const uint8_t*>(data.data());
  size_t n = data.size(), held = length_ % 64;
  length_ += n;
  if (held) {
    size_t take = std::min(n, 64 - held);
    std::memcpy(buffer_.data() + held, p, take);
    p += take, n -= take;
    if (held + take < 64) return;
    blocks(buffer_.data(), 1);
  }
  blocks(p, n / 64);
  p += n / 64 * 64, n %= 64;
  if (n) std::memcpy(buffer_.data(), p, n);
}

std::array<std::byte, 32> Sha256::digest() {
  uint64_t bits = length_ * 8;
  std::array<std::byte, 72> pad{};
  pad[0] = std::byte{0x80};
  size_t zeros = (119 - length_ % 64) % 64;  // so that 1 + zeros + 8 completes a block
  for (size_t i = 0; i < 8; ++i) pad[1 + zeros + i] = static_cast<std::byte>(bits >> (56 - 8 * i));
  update(std::span(pad).first(1 + zeros + 8));
  std::array<std::byte, 32> out;
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::byte>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return out;
}

std::string Sha256::hex() {
  std::string out;
  for (std::byte b : digest())
    for (int shift : {4, 0}) out += "0123456789abcdef"[(std::to_integer<int>(b) >> shift) & 15];
  return out;
}

std::string sha256(std::span<const std::byte> data) {
  Sha256 hash;
  hash.update(data);
  return hash.hex();
}

}  // namespace mtrain
