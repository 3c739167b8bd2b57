// Arithmetic on bf16 as Intel's manual defines it: round to nearest even, denormals in and out are
// zero, MXCSR is not consulted.
#pragma once
#include <cstdint>

namespace mtrain::emulation {

constexpr int kLanes = 16;

/// Sets MXCSR for the functions below. A signal handler need not restore it: the kernel does.
void prepare_arithmetic();

/// sum[i] += a[i].high * b[i].high, then sum[i] += a[i].low * b[i].low; each a fused multiply-add.
void dot_pairs(const uint32_t* a, const uint32_t* b, uint32_t* sum);

/// One row of TDPBF16PS: sums of low and of high products from zero over `pairs` words of `a`, then
/// low + high, then to `sum`. `b`: row p of the second tile is at b[p * kLanes].
void dot_row(const uint32_t* a, int pairs, const uint32_t* b, uint32_t* sum);

uint16_t to_bf16(uint32_t single);

}  // namespace mtrain::emulation
