// Scales of low-precision matrices: from the largest absolute value (amax) to the factors that
// elements are multiplied by before rounding (encode) and after it (decode). Everything is in
// float, with one rounded division and one rounded product, as in hardware. Stateless; thread-safe.
#pragma once
#include "mtrain/base/quant_format.h"

namespace mtrain {

/// code = round(x * encode), x ≈ code * decode.
struct QuantScaling {
  float encode, decode;
};

namespace detail {
MT_HD bool is_finite(float x) { return (bits_of(x) & 0x7F800000u) != 0x7F800000u; }
constexpr float kFloatMax = 3.402823466e38f;
/// Scaling of a tile that contains infinity or NaN: the whole tile becomes NaN.
MT_HD QuantScaling not_a_number() { return {float_of(0x7FC00000u), float_of(0x7FC00000u)}; }
}  // namespace detail

/// encode = largest / headroom / amax. A tensor with amax 0 gets 1.
MT_HD QuantScaling tensor_scaling(float amax, float largest, float headroom) {
  if (!detail::is_finite(amax)) return detail::not_a_number();
  if (amax == 0) return {1.0f, 1.0f};
  float encode = largest / amax / headroom;
  encode = detail::is_finite(encode) ? encode : detail::kFloatMax;
  return {encode, 1.0f / encode};
}

/// The same without headroom, with encode rounded down to a power of two, so that scaling itself is
/// exact (DeepSeek-AI 2024, arXiv:2412.19437, 3.3, with the power-of-two scales of its successors).
MT_HD QuantScaling power_of_two_scaling(float amax, float largest) {
  QuantScaling s = tensor_scaling(amax, largest, 1.0f);
  if (!detail::is_finite(amax)) return s;
  uint32_t bits = detail::bits_of(s.encode) & 0x7F800000u;
  constexpr uint32_t kMost = 253u << 23;  // the inverse is still a normal number
  float encode = detail::float_of(bits > kMost ? kMost : bits);
  return {encode, 1.0f / encode};
}

/// decode = the smallest power of two at which no element saturates, stored as e8m0 (OCP
/// Microscaling Formats 1.0; rounded up: Mishra et al. 2025, arXiv:2506.08027). A tile of zeros
/// gets 1.
MT_HD QuantScaling e8m0_scaling(float amax, float largest) {
  if (!detail::is_finite(amax)) return detail::not_a_number();
  if (amax == 0) return {1.0f, 1.0f};
  uint8_t code = encode_e8m0_up(amax / largest);
  // 2^127 has no normal inverse, so code 254 uses the subnormal 2^-127.
  float decode = decode_e8m0(code);
  return {code == 254 ? detail::float_of(0x00400000u)
          : code == 0 ? detail::float_of(254u << 23)
                      : 1.0f / decode,
          decode};
}

/// NVFP4: the scale of a tile is e4m3(amax / 6 * global) with global = 6 * 448 / amax of the
/// tensor. Codes are e2m1(x * global / scale), so x ≈ code * scale / global (NVIDIA 2025,
/// arXiv:2509.25149). `decode` does not include global.
MT_HD QuantScaling nvfp4_global(float tensor_amax) {
  return tensor_scaling(tensor_amax, E2M1::kMax * E4M3::kMax, 1.0f);
}
MT_HD QuantScaling nvfp4_scaling(float amax, float global) {
  if (!detail::is_finite(amax) || !detail::is_finite(global)) return detail::not_a_number();
  float scale = round_to_format<E4M3>(amax / E2M1::kMax * global);
  if (scale == 0) return {0.0f, 0.0f};
  float encode = global / scale;
  return {detail::is_finite(encode) ? encode : detail::kFloatMax, scale};
}

}  // namespace mtrain
