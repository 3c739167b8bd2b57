#include "attention_reference.h"

namespace mtrain::testing {
namespace {

const std::vector<AttentionCase> kCases = {
    {{0, 1}, 1, 1, 1},
    {{0, 3}, 2, 1, 3},
    {{0, 17}, 3, 3, 17},
    {{0, 1, 34}, 4, 2, 33},
    {{0, 0, 65, 65, 66}, 4, 1, 64},
    {{0, 129}, 2, 2, 65},
    {{0, 5, 70, 199}, 2, 1, 32},
    {{0, 130}, 1, 1, 129},
    {{0, 40}, 2, 1, 256},
    {{0, 0}, 2, 1, 16},
    {{0, 300}, 2, 1, 128},
};

}  // namespace

TEST_CASE(
    "attention matches softmax(scale q k') v at odd shapes, packed sequences and shared key "
    "heads") {
  AttentionWants wants;
  each_level_and_dtype([&]<class T>(T, Level& level) {
    for (const AttentionCase& shape : kCases)
      for (bool causal : {true, false}) {
        AttentionData<T> d(shape, causal);
        INFO(shape.text(), causal ? " causal" : "");
        level.kernels.attention(*level.stream, d.args());
        const AttentionWant& want = wants.get<T>(d, [&] { return reference_attention(d); });
        // Scores are products of rounded numbers, but a bf16 kernel may round probabilities to bf16
        // as well.
        check_close(
            d.o, [&](int64_t i) { return want.o[static_cast<size_t>(i)]; }, "o", 0.5, 2);
        check_close(
            d.lse, [&](int64_t i) { return want.lse[static_cast<size_t>(i)]; }, "lse", 1);
      }
  });
}

TEST_CASE("attention's gradients match the analytic ones and touch nothing else") {
  AttentionWants wants;
  each_level_and_dtype([&]<class T>(T, Level& level) {
    for (const AttentionCase& shape : kCases)
      for (bool causal : {true, false}) {
        AttentionData<T> d(shape, causal);
        INFO(shape.text(), causal ? " causal" : "");
        level.kernels.attention(*level.stream, d.args());
        AttentionGrads<T> got(d);
        level.kernels.attention_backward(*level.stream, got.args(d));
        const AttentionWant& want =
            wants.get<T>(d, [&] { return reference_attention_backward(d, got.d_o); });
        double factor = std::is_same_v<T, float> ? 4 : 3;
        check_close(
            got.d_qkv,
            [&](int64_t i) {
              double w = want.d_qkv[static_cast<size_t>(i)];
              return std::isnan(w) ? d.kUntouched : w;
            },
            "d_qkv", 1, factor);
      }
  });
}

TEST_CASE("the reference's attention gradients agree with finite differences") {
  AttentionData<float> d({{0, 3, 8}, 4, 2, 3}, true);
  AttentionGrads<float> g(d);
  AttentionWant want = reference_attention_backward(d, g.d_o);
  auto loss = [&] {
    AttentionWant at = reference_attention(d);
    double total = 0;
    for (int64_t i = 0; i < d.o.count(); ++i) total += at.o[static_cast<size_t>(i)] * g.d_o[i];
    return total;
  };
  for (int64_t i = 0; i < d.qkv.count(); ++i) {
    if (std::isnan(want.d_qkv[static_cast<size_t>(i)])) continue;
    double at = d.qkv[i], h = 0x1p-8;
    d.qkv.set(i, at + h);
    double up = loss(), step = d.qkv[i];
    d.qkv.set(i, at - h);
    step -= d.qkv[i];
    double slope = (up - loss()) / step;
    d.qkv.set(i, at);
    CHECK(want.d_qkv[static_cast<size_t>(i)] == doctest::Approx(slope).epsilon(1e-3).scale(0.1));
  }
}

TEST_CASE("attention: a NaN reaches the rows that see it and no other") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    AttentionData<T> d({{0, 70, 100}, 2, 1, 16}, true);
    d.qkv.set(d.index_k(40, 0, 5), std::nan(""));
    level.kernels.attention(*level.stream, d.args());
    for (int64_t t = 0; t < 100; ++t) CHECK(std::isnan(d.o[t * 2 * 16 + 3]) == (t >= 40 && t < 70));
  });
}

TEST_CASE("attention with large scores stays finite") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    AttentionData<T> d({{0, 65}, 2, 2, 64}, true);
    for (int64_t i = 0; i < d.qkv.count(); ++i) d.qkv.set(i, 30 * d.qkv[i]);
    d.qkv.set(d.index_k(64, 0, 0), 1000);
    level.kernels.attention(*level.stream, d.args());
    AttentionGrads<T> g(d);
    level.kernels.attention_backward(*level.stream, g.args(d));
    for (int64_t i = 0; i < d.o.count(); ++i) CHECK(std::isfinite(d.o[i]));
    for (int64_t i = 0; i < g.d_qkv.count(); ++i) CHECK(std::isfinite(g.d_qkv[i]));
  });
}

}  // namespace mtrain::testing
