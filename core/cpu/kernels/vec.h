// A vector register of floats at this instruction-set level, for the tiled kernels that the compiler would not vectorise
// well by itself.
#pragma once
#include <cstdint>
#include <cstring>

#include "mtrain/base/export.h"
#include "mtrain/cpu/kernels/isa_kernels.h"
#include "mtrain/kernel/math.h"

namespace mtrain::cpu::MT_ISA {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef int32_t IntVec __attribute__((vector_size(kLanes * 4)));

MT_HD Vec load(const float* from) {
  Vec v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
MT_HD void store(float* to, Vec v) { std::memcpy(to, &v, sizeof v); }
MT_HD Vec splat(float x) { return x - Vec{}; }

MT_HD Vec max(Vec a, Vec b) { return a > b ? a : b; }
MT_HD float max_lane(Vec v) {
  float lane[kLanes], top;
  store(lane, v);
  for (int step = kLanes / 2; step > 0; step /= 2)
    for (int i = 0; i < step; ++i) lane[i] = lane[i] > lane[i + step] ? lane[i] : lane[i + step];
  top = lane[0];
  return top;
}
MT_HD float sum_lanes(Vec v) {
  float lane[kLanes];
  store(lane, v);
  for (int step = kLanes / 2; step > 0; step /= 2)
    for (int i = 0; i < step; ++i) lane[i] += lane[i + step];
  return lane[0];
}

/// exp_nonpositive of every lane.
MT_HD Vec exp_nonpositive(Vec x) {
  using namespace mtrain::detail;
  Vec low = splat(-87.3f);
  Vec clamped = x < low ? low : x;
  Vec shifted = clamped * kLog2e + kRoundingMagic;
  Vec n = shifted - kRoundingMagic;
  Vec r = (clamped - n * kLn2High) - n * kLn2Low;
  Vec p = splat(0.0013168239545140988f);
  p = p * r + 0.008353546060117675f;
  p = p * r + 0.041676355795351804f;
  p = p * r + 0.1666670973633497f;
  p = p * r + 0.4999999192456575f;
  p = p * (r * r) + r + 1.0f;
  IntVec exponent;
  std::memcpy(&exponent, &shifted, sizeof exponent);
  exponent = (exponent - (0x4B400000 - 127)) << 23;
  Vec scale;
  std::memcpy(&scale, &exponent, sizeof scale);
  return x < low ? Vec{} : p * scale;
}

}  // namespace mtrain::cpu::MT_ISA
