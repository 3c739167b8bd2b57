#include "mtrain/nn/rope_table.h"

#include <cmath>
#include <numbers>
#include <vector>

namespace mtrain {

void RopeConfig::bind(Fields& f) {
  f("theta", theta, "base of the rotary frequencies")
      .exclusive_min(0)
      .renamed_from({"rope_theta", "rotary_base"});
  f("scaling", scaling, "how rotary frequencies are scaled for long context")
      .one_of({"none", "llama3", "yarn", "linear"})
      .needs("RoPE scaling other than llama3", {"yarn", "linear"});
  f("factor", factor, "scaling divides low frequencies by this").min(1);
  f("low_freq_factor", low_freq_factor,
    "scaling=llama3: wavelengths above original_max_positions / low_freq_factor are scaled by the "
    "full factor")
      .exclusive_min(0);
  f("high_freq_factor", high_freq_factor,
    "scaling=llama3: wavelengths below original_max_positions / high_freq_factor are not scaled")
      .exclusive_min(0);
  f("original_max_positions", original_max_positions,
    "context length of the original model, before scaling")
      .min(1)
      .unit("tokens");
  const std::string yarn = "RoPE scaling other than llama3";
  f("beta_fast", beta_fast,
    "scaling=yarn: frequencies with more than this number of rotations within "
    "original_max_positions are not scaled")
      .exclusive_min(0)
      .needs(yarn);
  f("beta_slow", beta_slow,
    "scaling=yarn: frequencies with fewer than this number of rotations are scaled by the full "
    "factor")
      .exclusive_min(0)
      .needs(yarn);
  f("mscale", mscale, "scaling=yarn: coefficient of the attention temperature").min(0).needs(yarn);
  f("mscale_all_dim", mscale_all_dim,
    "scaling=yarn: coefficient of the attention temperature that applies to all dimensions, "
    "through the softmax scale")
      .min(0)
      .needs(yarn);
  f("percent", percent, "fraction of each head's dimensions that are rotated")
      .exclusive_min(0)
      .max(1)
      .needs("partial rotary embeddings")
      .renamed_from({"rotary_percent", "partial_rotary_factor"});
  f("interleaved", interleaved,
    "rotate adjacent dimensions as a pair, instead of dimension i with i + head_dim / 2")
      .needs("interleaved rotary embeddings")
      .renamed_from({"rotary_interleaved"});
}

namespace {

double stretched(double frequency, const RopeConfig& c) {
  if (c.scaling != "llama3") return frequency;
  double wavelength = 2 * std::numbers::pi / frequency;
  auto original = static_cast<double>(c.original_max_positions);
  if (wavelength < original / c.high_freq_factor) return frequency;
  if (wavelength > original / c.low_freq_factor) return frequency / c.factor;
  double smooth =
      (original / wavelength - c.low_freq_factor) / (c.high_freq_factor - c.low_freq_factor);
  return (1 - smooth) * frequency / c.factor + smooth * frequency;
}

}  // namespace

RopeTable make_rope_table(ExecutionContext& ctx, const RopeConfig& config, int64_t max_positions,
                          int64_t head_dim) {
  int64_t half = head_dim / 2;
  const Shape shape{max_positions, half};
  if (!ctx.backend().computes())
    return {Tensor(ctx, shape, DType::f32), Tensor(ctx, shape, DType::f32)};  // planning: no values
  std::vector<float> cos, sin;
  cos.reserve(static_cast<size_t>(shape.numel()));
  sin.reserve(cos.capacity());
  std::vector<double> frequencies;
  for (int64_t i = 0; i < half; ++i) {
    double exponent = static_cast<double>(2 * i) / static_cast<double>(head_dim);
    frequencies.push_back(stretched(std::pow(config.theta, -exponent), config));
  }
  for (int64_t position = 0; position < max_positions; ++position) {
    for (double frequency : frequencies) {
      double angle = static_cast<double>(position) * frequency;
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return {ctx.from_host<float>(cos, shape), ctx.from_host<float>(sin, shape)};
}

}  // namespace mtrain
