#include "mtrain/nn/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace mtrain {

void RopeConfig::bind(Fields& f) {
  f("theta", theta, "base of the rotary frequencies")
      .exclusive_min(0)
      .renamed_from({"rope_theta", "rotary_base"});
  f("local_theta", local_theta,
    "base of the rotary frequencies of blocks with model.attention.window, where rope.scaling then "
    "does not apply; 0: the same frequencies as in other blocks")
      .min(0)
      .renamed_from({"rope_local_base_freq"});
  f("scaling", scaling,
    "how rotary frequencies are scaled for long context, as transformers' rope_type of that name")
      .one_of({"none", "linear", "dynamic", "yarn", "longrope", "llama3"});
  f("factor", factor,
    "scaling divides frequencies by this; dynamic: how fast theta grows; longrope: ratio of the "
    "maximum to the original context length, from which the attention factor follows")
      .min(1)
      .renamed_from({"rotary_scaling_factor"});
  f("original_max_positions", original_max_positions,
    "context length of the original model, before scaling; dynamic: the longest sequence for which "
    "theta is unchanged")
      .min(1)
      .unit("tokens");
  f("low_freq_factor", low_freq_factor,
    "scaling=llama3: wavelengths above original_max_positions / low_freq_factor are scaled by the "
    "full factor")
      .exclusive_min(0);
  f("high_freq_factor", high_freq_factor,
    "scaling=llama3: wavelengths below original_max_positions / high_freq_factor are not scaled")
      .exclusive_min(0);
  bind_yarn(f);
  f("short_factor", short_factor,
    "scaling=longrope: divisors of the frequencies for sequences up to original_max_positions, one "
    "for each pair of rotated dimensions");
  f("long_factor", long_factor, "scaling=longrope: the same for longer sequences");
  f("percent", percent, "fraction of each head's dimensions that are rotated")
      .exclusive_min(0)
      .max(1)
      .renamed_from(
          {"rotary_percent", "partial_rotary_factor", "rope.partial_rotary_factor", "rotary_pct"});
  f("interleaved", interleaved,
    "rotate adjacent dimensions as a pair, instead of dimension i with i + half of the rotated "
    "ones")
      .renamed_from({"rotary_interleaved"});
}

void RopeConfig::bind_yarn(Fields& f) {
  f("beta_fast", beta_fast,
    "scaling=yarn: frequencies with more than this number of rotations within "
    "original_max_positions are not scaled")
      .exclusive_min(0);
  f("beta_slow", beta_slow,
    "scaling=yarn: frequencies with fewer than this number of rotations are scaled by the full "
    "factor")
      .exclusive_min(0);
  f("truncate", truncate,
    "scaling=yarn: the range of blended frequencies ends at whole indices of frequencies");
  f("mscale", mscale,
    "scaling=yarn: coefficient of the attention factor, if mscale_all_dim is set too")
      .min(0);
  f("mscale_all_dim", mscale_all_dim,
    "scaling=yarn, as in DeepSeek: coefficient of the factor that is applied to the softmax scale, "
    "and by which the attention factor is divided; 0: none")
      .min(0);
  f("attention_factor", attention_factor,
    "scaling=yarn and longrope: factor of rotated queries and keys; null: from factor")
      .min(0);
}

double RopeConfig::softmax_factor() const {
  if (scaling != "yarn" || mscale_all_dim == 0 || factor <= 1) return 1;
  const double temperature = 0.1 * mscale_all_dim * std::log(factor) + 1;
  return temperature * temperature;
}

int64_t RopeConfig::rotary_dim(int64_t head_dim) const {
  return static_cast<int64_t>(static_cast<double>(head_dim) * percent);
}

RopeConfig RopeConfig::local() const {
  if (local_theta == 0) return *this;
  RopeConfig out = *this;
  out.theta = local_theta;
  out.scaling = "none";
  return out;
}

void RopeConfig::check(int64_t head_dim) const {
  const int64_t rotated = rotary_dim(head_dim);
  MT_USER_CHECK(rotated > 0 && rotated % 2 == 0, ErrorClass::config,
                percent == 1 ? cat("head dim ", head_dim, " is odd")
                             : cat("model.rope.percent=", percent, " rotates ", rotated,
                                   " of a head's ", head_dim, " dimensions"),
                percent == 1
                    ? "rotary embeddings rotate pairs of dimensions: choose an even head dim"
                    : "choose a fraction that gives an even number of dimensions");
  if (scaling != "longrope") return;
  for (const auto* list : {&short_factor, &long_factor}) {
    const char* name = list == &short_factor ? "short_factor" : "long_factor";
    MT_USER_CHECK(static_cast<int64_t>(list->size()) == rotated / 2, ErrorClass::config,
                  cat("model.rope.", name, " has ", list->size(), " factors for ", rotated / 2,
                      " pairs of rotated dimensions"),
                  "give one factor for each pair");
    MT_USER_CHECK(std::all_of(list->begin(), list->end(), [](double v) { return v > 0; }),
                  ErrorClass::config, cat("a factor in model.rope.", name, " is not positive"),
                  "frequencies are divided by these factors");
  }
}

namespace {

double llama3_scaled(double frequency, const RopeConfig& c) {
  double wavelength = 2 * std::numbers::pi / frequency;
  auto original = static_cast<double>(c.original_max_positions);
  if (wavelength < original / c.high_freq_factor) return frequency;
  if (wavelength > original / c.low_freq_factor) return frequency / c.factor;
  double smooth =
      (original / wavelength - c.low_freq_factor) / (c.high_freq_factor - c.low_freq_factor);
  return (1 - smooth) * frequency / c.factor + smooth * frequency;
}

/// 0 for frequencies with many rotations within the original context, 1 for those with few.
std::vector<double> yarn_ramp(const RopeConfig& c, int64_t dim) {
  auto d = static_cast<double>(dim), original = static_cast<double>(c.original_max_positions);
  auto index_of = [&](double rotations) {  // of the frequency with this number of rotations
    return d * std::log(original / (rotations * 2 * std::numbers::pi)) / (2 * std::log(c.theta));
  };
  double low = index_of(c.beta_fast), high = index_of(c.beta_slow);
  if (c.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, d - 1);
  if (low == high) high += 0.001;
  std::vector<double> ramp;
  for (int64_t i = 0; i < dim / 2; ++i)
    ramp.push_back(std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0));
  return ramp;
}

/// How far each pair turns per position.
std::vector<double> frequencies(const RopeConfig& c, int64_t length, int64_t dim) {
  auto d = static_cast<double>(dim), original = static_cast<double>(c.original_max_positions);
  double theta = c.theta;
  if (c.scaling == "dynamic" && length > c.original_max_positions && dim > 2)
    theta *=
        std::pow(c.factor * static_cast<double>(length) / original - (c.factor - 1), d / (d - 2));
  std::vector<double> out;
  for (int64_t i = 0; i < dim / 2; ++i)
    out.push_back(std::pow(theta, -static_cast<double>(2 * i) / d));
  if (c.scaling == "llama3")
    for (double& f : out) f = llama3_scaled(f, c);
  if (c.scaling == "linear")
    for (double& f : out) f /= c.factor;
  if (c.scaling == "yarn") {
    const std::vector<double> ramp = yarn_ramp(c, dim);
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = out[i] / c.factor * ramp[i] + out[i] * (1 - ramp[i]);
  }
  if (c.scaling == "longrope") {
    const auto& divisors = length > c.original_max_positions ? c.long_factor : c.short_factor;
    for (size_t i = 0; i < out.size(); ++i) out[i] /= divisors.at(i);
  }
  return out;
}

/// The factor of rotated queries and keys.
double attention_factor_of(const RopeConfig& c) {
  if (c.scaling != "yarn" && c.scaling != "longrope") return 1;
  if (c.attention_factor) return *c.attention_factor;
  if (c.factor <= 1) return 1;
  if (c.scaling == "longrope")
    return std::sqrt(1 +
                     std::log(c.factor) / std::log(static_cast<double>(c.original_max_positions)));
  auto temperature = [&](double coefficient) { return 0.1 * coefficient * std::log(c.factor) + 1; };
  if (c.mscale == 0 || c.mscale_all_dim == 0) return temperature(1);
  return temperature(c.mscale) / temperature(c.mscale_all_dim);
}

}  // namespace

RopeTable make_rope_table(ExecutionContext& ctx, const RopeConfig& config, int64_t max_positions,
                          int64_t head_dim) {
  config.check(head_dim);
  const int64_t dim = config.rotary_dim(head_dim);
  const Shape shape{max_positions, dim / 2};
  if (!ctx.backend().computes())  // planning: no values
    return {Tensor(ctx, shape, DType::f32), Tensor(ctx, shape, DType::f32), config.interleaved};
  std::vector<float> cos, sin;
  cos.reserve(static_cast<size_t>(shape.numel()));
  sin.reserve(cos.capacity());
  const std::vector<double> turns = frequencies(config, max_positions, dim);
  const double factor = attention_factor_of(config);
  for (int64_t position = 0; position < max_positions; ++position) {
    for (double frequency : turns) {
      double angle = static_cast<double>(position) * frequency;
      cos.push_back(static_cast<float>(factor * std::cos(angle)));
      sin.push_back(static_cast<float>(factor * std::sin(angle)));
    }
  }
  return {ctx.from_host<float>(cos, shape), ctx.from_host<float>(sin, shape), config.interleaved};
}

}  // namespace mtrain
