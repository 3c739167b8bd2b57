// The results of the instructions, one number at a time, written from Intel's manual independently
// of the emulator.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>

namespace mtrain::emulation::reference {

inline float as_float(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline uint32_t as_bits(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, 4);
  return bits;
}

inline bool is_nan(uint32_t x) { return (x & 0x7f800000) == 0x7f800000 && (x & 0x007fffff) != 0; }
inline bool is_denormal(uint32_t x) { return (x & 0x7f800000) == 0; }  // or zero
inline uint32_t quiet(uint32_t x) { return x | 0x00400000; }
inline uint32_t without_denormal(uint32_t x) { return is_denormal(x) ? x & 0x80000000 : x; }

/// a * b + c, one rounding. A result is flushed where it would be denormal with an exponent of any
/// size (tiny after rounding).
inline uint32_t fused(uint32_t a, uint32_t b, uint32_t c) {
  for (uint32_t x : {a, b, c})
    if (is_nan(x)) return quiet(x);
  a = without_denormal(a);
  b = without_denormal(b);
  c = without_denormal(c);
  uint32_t result = as_bits(std::fma(as_float(a), as_float(b), as_float(c)));
  if (is_nan(result)) return 0xffc00000;
  constexpr uint32_t kSmallestNormal = 0x00800000;
  if ((result & 0x7fffffff) > kSmallestNormal) return result;
  // A hundred binary places higher nothing is denormal. Operands large enough to overflow there do
  // not sum to so little.
  double exact = std::fma(double{as_float(a)}, double{as_float(b)}, double{as_float(c)});
  if (exact == 0) return result & 0x80000000;
  float scaled = std::fma(std::ldexp(as_float(a), 50), std::ldexp(as_float(b), 50),
                          std::ldexp(as_float(c), 100));
  bool tiny = std::fabs(scaled) < std::ldexp(1.0f, -126 + 100);
  return tiny ? result & 0x80000000 : result;
}

inline uint32_t plus(uint32_t a, uint32_t b) {
  for (uint32_t x : {a, b})
    if (is_nan(x)) return quiet(x);
  float sum = as_float(without_denormal(a)) +
              as_float(without_denormal(b));  // of normals: a denormal sum is exact
  return std::isnan(sum) ? 0xffc00000 : without_denormal(as_bits(sum));
}

inline uint32_t low(uint32_t pair) { return pair << 16; }
inline uint32_t high(uint32_t pair) { return pair & 0xffff0000; }

inline uint32_t dot_pair(uint32_t sum, uint32_t a, uint32_t b) {
  sum = fused(high(a), high(b), sum);
  return fused(low(a), low(b), sum);
}

inline uint16_t to_bf16(uint32_t x) {
  if (is_nan(x)) return static_cast<uint16_t>(quiet(x) >> 16);
  x = without_denormal(x);
  uint32_t dropped = x & 0xffff;
  uint32_t kept = x >> 16;
  bool up = dropped > 0x8000 || (dropped == 0x8000 && (kept & 1) != 0);
  return static_cast<uint16_t>(kept + (up ? 1 : 0));
}

/// Bits of floats: any, and often those where rules differ.
class Bits {
 public:
  explicit Bits(uint32_t seed) : random_(seed) {}
  uint64_t any() { return random_(); }
  uint32_t word() {
    switch (random_() % 8) {
      case 0:
        return special();
      case 1:
        return high(special()) | special() >> 16;  // a pair of bf16
      case 2:
        return sized(1, 3);  // near the smallest normal
      case 3:
        return high(sized(0x35, 12)) | sized(0x38, 12) >> 16;
      default:
        return high(sized(0x78, 16)) | sized(0x78, 16) >> 16;
    }
  }

 private:
  uint32_t sized(uint32_t exponent, uint32_t range) {
    uint64_t r = random_();
    return static_cast<uint32_t>(r & 0x807fffff) |
           (exponent + static_cast<uint32_t>(r >> 32) % range) << 23;
  }
  uint32_t special() {
    static constexpr uint32_t kValues[] = {
        0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x7f800000, 0xff800000, 0x7fc12345,
        0xffa54321, 0x7f80beef, 0x00000001, 0x807fffff, 0x00010000, 0x00800000, 0x80800001,
        0x7f7fffff, 0xff7fffff, 0x3f808000, 0x3f818000, 0x7f7f8000, 0x00ffffff, 0x20000000};
    return kValues[random_() % (sizeof(kValues) / sizeof(kValues[0]))];
  }
  std::mt19937_64 random_;
};

}  // namespace mtrain::emulation::reference
