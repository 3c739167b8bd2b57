// Attention with windows, capped scores, sinks and dropout, alone and together: values and
// gradients at every level, and what windows leave out.
#include "attention_reference.h"

namespace mtrain::testing {
namespace {

struct VariedCase {
  AttentionCase shape;
  AttentionVariation variation;
  std::string text() const { return shape.text() + variation.text(); }
};

std::vector<VariedCase> varied_cases() {
  const AttentionCase kOne = {{0, 1}, 1, 1, 1}, kPacked = {{0, 0, 65, 65, 66, 199}, 4, 2, 33},
                      kLong = {{0, 300}, 2, 1, 64}, kWide = {{0, 5, 140}, 2, 2, 128};
  std::vector<VariedCase> all;
  for (int64_t window : {1, 2, 17, 63, 64, 65, 129, 1000})
    for (const AttentionCase& shape : {kOne, kPacked, kLong}) all.push_back({shape, {window}});
  // More keys than backward keeps at a time, and windows shorter and longer than these.
  for (int64_t window : {130, 520, 700}) all.push_back({{{0, 1100}, 1, 1, 8}, {window}});
  for (const AttentionCase& shape : {kOne, kPacked, kWide}) {
    all.push_back({shape, {.cap = 0.7f}});
    all.push_back({shape, {.cap = 50}});
    all.push_back({shape, {.sinks = true}});
    all.push_back({shape, {.dropout = 0.3f}});
    all.push_back({shape, {.window = 40, .cap = 1.5f, .sinks = true, .dropout = 0.5f}});
  }
  return all;
}

template <class T>
void check_case(const VariedCase& c, bool causal, Level& level, AttentionWants& wants) {
  AttentionData<T> d(c.shape, causal, c.variation);
  AttentionGrads<T> got(d);
  INFO(c.text(), causal ? ", causal" : "");
  level.kernels.attention(*level.stream, d.args());
  level.kernels.attention_backward(*level.stream, got.args(d));
  const AttentionWant& want =
      wants.get<T>(d, [&] { return reference_attention_backward(d, got.d_o); });
  // A bf16 kernel rounds probabilities, which dropout magnifies.
  double magnified = 1 / (1 - static_cast<double>(c.variation.dropout));
  check_close(
      d.o, [&](int64_t i) { return want.o[static_cast<size_t>(i)]; }, "o", 0.5, 2 * magnified);
  check_close(
      d.lse, [&](int64_t i) { return want.lse[static_cast<size_t>(i)]; }, "lse", 1);
  double factor = std::is_same_v<T, float> ? 4 : 5;  // o is rounded: more with fewer keys
  check_close(
      got.d_qkv,
      [&](int64_t i) {
        double w = want.d_qkv[static_cast<size_t>(i)];
        return std::isnan(w) ? d.kUntouched : w;
      },
      "d_qkv", 1, factor * magnified);
  if (!c.variation.sinks) return;
  Buffer<float> d_sinks(d.shape.heads, 0.25);
  level.kernels.attention_sink_backward(
      *level.stream, {d.sinks.data(), d.o.data(), got.d_o.data(), d.lse.data(), d_sinks.data(),
                      d.tokens, d.shape.heads, d.shape.head_dim, DTypeOf<T>::value});
  // o is rounded, and each token adds its rounding.
  check_close(
      d_sinks, [&](int64_t i) { return 0.25 + want.d_sinks[static_cast<size_t>(i)]; }, "d_sinks", 1,
      kRounding<T> / kRounding<float> * 16);
}

}  // namespace

TEST_CASE("attention with windows, caps, sinks and dropout matches its definition") {
  AttentionWants wants;
  for (int threads : {1, 3})
    each_level_and_dtype(
        [&]<class T>(T, Level& level) {
          for (const VariedCase& c : varied_cases())
            for (bool causal : {true, false})
              if (causal || c.variation.window == 0) check_case<T>(c, causal, level, wants);
        },
        threads);
}

TEST_CASE("the reference's gradients of varied attention agree with finite differences") {
  AttentionData<float> d({{0, 3, 9}, 4, 2, 3}, true, {3, 0.8f, true, 0.3f});
  AttentionGrads<float> g(d);
  AttentionWant want = reference_attention_backward(d, g.d_o);
  auto slope = [&](Buffer<float>& x, int64_t i) {
    auto loss = [&] {
      AttentionWant at = reference_attention(d);
      double total = 0;
      for (int64_t k = 0; k < d.o.count(); ++k) total += at.o[static_cast<size_t>(k)] * g.d_o[k];
      return total;
    };
    double at = x[i], h = 0x1p-8;
    x.set(i, at + h);
    double up = loss(), step = x[i];
    x.set(i, at - h);
    step -= x[i];
    double result = (up - loss()) / step;
    x.set(i, at);
    return result;
  };
  for (int64_t i = 0; i < d.qkv.count(); ++i)
    if (double w = want.d_qkv[static_cast<size_t>(i)]; !std::isnan(w))
      CHECK(w == doctest::Approx(slope(d.qkv, i)).epsilon(1e-3).scale(0.1));
  for (int64_t h = 0; h < d.shape.heads; ++h)
    CHECK(want.d_sinks[static_cast<size_t>(h)] ==
          doctest::Approx(slope(d.sinks, h)).epsilon(1e-3).scale(0.1));
}

TEST_CASE("a window as long as the sequence, or longer, gives the bits of attention without one") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    const AttentionCase shape = {{0, 5, 70, 270}, 2, 1, 32};
    AttentionData<T> plain(shape, true), windowed(shape, true, {200});
    AttentionGrads<T> g(plain), w(windowed);
    level.kernels.attention(*level.stream, plain.args());
    level.kernels.attention(*level.stream, windowed.args());
    level.kernels.attention_backward(*level.stream, g.args(plain));
    level.kernels.attention_backward(*level.stream, w.args(windowed));
    CHECK(plain.o.same_bits(windowed.o));
    CHECK(plain.lse.same_bits(windowed.lse));
    CHECK(g.d_qkv.same_bits(w.d_qkv));
  });
}

TEST_CASE("attention: a NaN reaches only the rows whose window it is in") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    AttentionData<T> d({{0, 200}, 2, 1, 16}, true, {20});
    d.qkv.set(d.index_k(40, 0, 5), std::nan(""));
    level.kernels.attention(*level.stream, d.args());
    for (int64_t t = 0; t < 200; ++t) CHECK(std::isnan(d.o[t * 2 * 16 + 3]) == (t >= 40 && t < 60));
  });
}

// A product with a weight of 0 would turn the NaN of a masked key or value into a NaN.
TEST_CASE("attention: tiles of keys before a window are not multiplied, forward and backward") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    AttentionData<T> d({{0, 1000}, 2, 1, 16}, true, {20});
    AttentionGrads<T> g(d);
    level.kernels.attention(*level.stream, d.args());
    d.qkv.set(d.index_k(40, 0, 5), std::nan(""));
    d.qkv.set(d.index_v(40, 0, 5), std::nan(""));
    level.kernels.attention_backward(*level.stream, g.args(d));
    level.kernels.attention(*level.stream, d.args());
    for (int64_t t : {128, 300, 999})
      for (int64_t e = 0; e < 16; ++e) {
        CHECK(std::isfinite(d.o[t * 2 * 16 + e]));
        CHECK(std::isfinite(g.d_qkv[d.index_q(t, 0, e)]));
        CHECK(std::isfinite(g.d_qkv[d.index_k(t, 0, e)]));
      }
    CHECK(std::isnan(d.o[50 * 2 * 16 + 5]));
    CHECK(std::isnan(g.d_qkv[d.index_q(50, 0, 5)]));
  });
}

}  // namespace mtrain::testing
