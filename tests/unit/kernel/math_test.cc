#include "mtrain/kernel/math.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "mtrain/kernel/attention_dropout.h"
#include "mtrain/kernel/gelu.h"
#include "mtrain/kernel/silu_mul.h"

namespace mtrain {
namespace {

double ulps(float got, double want) {
  float nearest = static_cast<float>(want);
  double ulp = std::nextafter(std::fabs(nearest), std::numeric_limits<float>::infinity()) -
               std::fabs(nearest);
  return std::fabs(got - want) / ulp;
}

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("tanh_fast is within 3 ulp, odd, and exact at its ends") {
  double worst = 0;
  for (float x = 1e-6f; x < 12; x *= 1.00037f)
    worst = std::max(worst, ulps(tanh_fast(x), std::tanh(static_cast<double>(x))));
  MESSAGE("worst ", worst, " ulp");
  CHECK(worst < 3);
  for (float x : {0.0f, 1e-20f, 0.1f, 0.7f, 20.0f}) CHECK(tanh_fast(-x) == -tanh_fast(x));
  CHECK(tanh_fast(0) == 0);
  CHECK(tanh_fast(1e-30f) == 1e-30f);
  CHECK(tanh_fast(50) == 1);
  CHECK(tanh_fast(kInf) == 1);
  CHECK(tanh_fast(-kInf) == -1);
  CHECK(std::isnan(tanh_fast(kNan)));
}

TEST_CASE("exp_fast is within 2 ulp over its whole range") {
  double worst = 0, worst_nonpositive = 0;
  for (float x = -87.3f; x < 88.7228f; x += 1.9e-4f) {
    worst = std::max(worst, ulps(exp_fast(x), std::exp(static_cast<double>(x))));
    if (x <= 0)
      worst_nonpositive =
          std::max(worst_nonpositive, ulps(exp_nonpositive(x), std::exp(static_cast<double>(x))));
  }
  MESSAGE("worst ", worst, " ulp, ", worst_nonpositive, " ulp below zero");
  CHECK(worst < 2);
  CHECK(worst_nonpositive < 2);
  CHECK(exp_fast(0) == 1);
  CHECK(exp_fast(88.722f) == doctest::Approx(std::exp(88.722)));
}

TEST_CASE("exp_fast at the edges") {
  CHECK(exp_fast(89) == kInf);
  CHECK(exp_fast(kInf) == kInf);
  CHECK(exp_fast(1e30f) == kInf);
  CHECK(exp_fast(-88) == 0);
  CHECK(exp_fast(-kInf) == 0);
  CHECK(std::isnan(exp_fast(kNan)));
  CHECK(exp_nonpositive(-kInf) == 0);
  CHECK(exp_nonpositive(-1e30f) == 0);
  CHECK(std::isnan(exp_nonpositive(kNan)));
}

TEST_CASE("sigmoid and the normal distribution keep relative accuracy in their tails") {
  double worst_sigmoid = 0, worst_cdf = 0, worst_pdf = 0;
  for (double at = -12; at < 12; at += 1e-4) {
    float x = static_cast<float>(at);
    double xd = x;
    worst_sigmoid = std::max(worst_sigmoid, std::fabs(sigmoid(x) * (1 + std::exp(-xd)) - 1));
    if (std::fabs(x) > 5) continue;
    Normal n = normal(x);
    worst_cdf = std::max(worst_cdf, std::fabs(n.cdf / (0.5 * std::erfc(-xd / std::sqrt(2.0))) - 1));
    worst_pdf = std::max(worst_pdf,
                         std::fabs(n.pdf / (std::exp(-0.5 * xd * xd) / std::sqrt(2 * M_PI)) - 1));
  }
  MESSAGE("relative errors: sigmoid ", worst_sigmoid, ", cdf ", worst_cdf, ", pdf ", worst_pdf);
  CHECK(worst_sigmoid < 4e-7);
  CHECK(worst_cdf < 1.5e-6);
  CHECK(worst_pdf < 1e-6);
  CHECK(sigmoid(-200) == 0);
  CHECK(sigmoid(200) == 1);
  CHECK(normal(-kInf).cdf == 0);
  CHECK(normal(kInf).cdf == 1);
  CHECK(std::isnan(normal(kNan).cdf));
  CHECK(std::isnan(sigmoid(kNan)));
}

TEST_CASE("tanh_fast keeps relative accuracy near zero and in its tails") {
  double worst = 0;
  for (double at = -12; at < 12; at += 1.3e-4) {
    float x = static_cast<float>(at);
    if (x == 0) continue;
    double want = std::tanh(static_cast<double>(x));
    worst = std::max(worst, std::fabs(tanh_fast(x) / want - 1));
  }
  MESSAGE("relative error ", worst);
  CHECK(worst < 3e-7);
  CHECK(tanh_fast(1e-30f) == 1e-30f);
  CHECK(tanh_fast(0) == 0);
  CHECK(tanh_fast(100) == 1);
  CHECK(tanh_fast(-kInf) == -1);
  CHECK(std::isnan(tanh_fast(kNan)));
}

TEST_CASE("dropped attention weights: their share, and what a mask depends on") {
  AttentionDropout d{.p = 0.3f, .seed = 1, .name_key = 2, .step = 3};
  auto mask = [](const AttentionDropout& from, int64_t head, int64_t query, int64_t first) {
    std::vector<float> row(1000);
    AttentionKeep(from, head).row(query, first, std::ssize(row), row.data());
    return row;
  };
  std::vector<float> one = mask(d, 0, 7, 0);
  int64_t kept = 0;
  for (float factor : one) {
    CHECK((factor == 0 || factor == 1 / (1 - 0.3f)));
    kept += factor > 0;
  }
  CHECK(std::abs(kept - 700) < 60);
  for (int64_t first : {1, 2, 3, 500}) {  // a row may begin at any key
    std::vector<float> part = mask(d, 0, 7, first);
    for (int64_t i = 0; first + i < 1000; ++i)
      CHECK(part[static_cast<size_t>(i)] == one[static_cast<size_t>(first + i)]);
    CHECK(part[0] == AttentionKeep(d, 0).factor(7, first));
  }
  AttentionDropout other = d;
  other.first_head = 1;
  CHECK(mask(other, 0, 7, 0) == mask(d, 1, 7, 0));
  CHECK(mask(d, 1, 7, 0) != one);
  CHECK(mask(d, 0, 8, 0) != one);
  for (uint64_t AttentionDropout::*part :
       {&AttentionDropout::seed, &AttentionDropout::name_key, &AttentionDropout::step}) {
    AttentionDropout changed = d;
    ++(changed.*part);
    CHECK(mask(changed, 0, 7, 0) != one);
  }
}

TEST_CASE("activations' gradients agree with finite differences") {
  for (double x = -8; x < 8; x += 0.0625) {
    float h = 0.0078125f, at = static_cast<float>(x);
    auto slope = [&](auto f) { return (f(at + h) - f(at - h)) / (2 * h); };
    CHECK(gelu_erf_grad(at) ==
          doctest::Approx(slope([](float v) { return gelu_erf(v); })).epsilon(1e-3).scale(0.1));
    CHECK(gelu_tanh_grad(at) ==
          doctest::Approx(slope([](float v) { return gelu_tanh(v); })).epsilon(1e-3).scale(0.1));
    CHECK(silu_mul_backward(1, at, 1).gate ==
          doctest::Approx(slope([](float v) { return silu_mul(v, 1); })).epsilon(1e-3).scale(0.1));
  }
}

}  // namespace mtrain
