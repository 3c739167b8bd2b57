#include "kernel_harness.h"

namespace mtrain::testing {

TEST_CASE("cross entropy and its gradient match the formula, with padding and ignored rows") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    for (int64_t rows : {0, 1, 3, 65})
      for (int64_t cols : {1, 3, 17, 65, 129, 320, 1000})
        for (int64_t valid : {cols, std::max<int64_t>(1, cols - 7)}) {
          INFO(rows, " x ", cols, " valid ", valid);
          auto logits = Buffer<T>::random(rows * cols, "logits", 4);
          for (int64_t i = 0; i < rows * cols; ++i)
            if (i % cols >= valid)
              logits.set(i, 1000);  // padding must not count, whatever it holds
          std::vector<int32_t> targets;
          for (int64_t r = 0; r < rows; ++r)
            targets.push_back(r % 5 == 3 ? -100 : static_cast<int32_t>(r * 11 % valid));
          Buffer<float> loss(rows, 99), lse(rows, 99),
              d_loss = Buffer<float>::random(rows, "d_loss");
          level.kernels.cross_entropy(
              *level.stream, {logits.data(), targets.data(), loss.data(), lse.data(), rows, cols,
                              valid, DTypeOf<T>::value});
          std::vector<double> lse_of_row;
          for (int64_t r = 0; r < rows; ++r) {
            double sum = 0;
            for (int64_t c = 0; c < valid; ++c) sum += std::exp(logits[r * cols + c]);
            lse_of_row.push_back(std::log(sum));
          }
          auto want_lse = [&](int64_t r) { return lse_of_row[static_cast<size_t>(r)]; };
          check_close(lse, want_lse, "lse", 1);
          check_close(
              loss,
              [&](int64_t r) {
                int32_t t = targets[static_cast<size_t>(r)];
                return t < 0 ? 0 : want_lse(r) - logits[r * cols + t];
              },
              "loss", 4);
          Buffer<T> d_logits(rows * cols, 99), in_place(logits);
          CrossEntropyBackwardArgs back{d_loss.data(), logits.data(),   targets.data(),
                                        lse.data(),    d_logits.data(), rows,
                                        cols,          valid,           DTypeOf<T>::value};
          level.kernels.cross_entropy_backward(*level.stream, back);
          check_close(
              d_logits,
              [&](int64_t i) {
                int64_t r = i / cols, c = i % cols;
                int32_t t = targets[static_cast<size_t>(r)];
                if (t < 0 || c >= valid) return 0.0;
                return (std::exp(logits[i] - want_lse(r)) - (c == t)) * d_loss[r];
              },
              "d_logits", 0.05, 2);
          back.logits = back.d_logits = in_place.data();
          level.kernels.cross_entropy_backward(*level.stream, back);
          CHECK(in_place.same_bits(d_logits));
        }
  });
}

TEST_CASE("cross entropy: NaN, infinite logits and a target in the padding") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    int64_t rows = 4, cols = 40, valid = 37;
    auto logits = Buffer<T>::random(rows * cols, "logits");
    logits.set(5, std::nan(""));
    logits.set(cols + 6, -HUGE_VAL);
    logits.set(2 * cols + 7, 6e4);
    std::vector<int32_t> targets = {1, 1, 7, 38};
    Buffer<float> loss(rows), lse(rows);
    level.kernels.cross_entropy(*level.stream, {logits.data(), targets.data(), loss.data(),
                                                lse.data(), rows, cols, valid, DTypeOf<T>::value});
    CHECK(std::isnan(loss[0]));
    CHECK(std::isfinite(loss[1]));
    CHECK(loss[2] == 0);
    CHECK(loss[3] == HUGE_VAL);
  });
}

}  // namespace mtrain::testing
