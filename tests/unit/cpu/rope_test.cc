#include "kernel_harness.h"

namespace mtrain::testing {

TEST_CASE("rope turns each pair by its position's angle, and back") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    for (int64_t half : {1, 3, 16, 33})
      for (int64_t tokens : {0, 1, 65})
        for (int64_t groups : {1, 3}) {
          int64_t heads = 2, dim = 2 * half + 5, group_stride = heads * dim + 7,
                  row_stride = groups * group_stride + 2;
          int64_t positions = 40;
          Buffer<float> cos(positions * half), sin(positions * half);
          for (int64_t i = 0; i < positions * half; ++i) {
            cos.set(i, std::cos(0.1 * static_cast<double>(i)));
            sin.set(i, std::sin(0.1 * static_cast<double>(i)));
          }
          std::vector<int32_t> at;
          for (int64_t t = 0; t < tokens; ++t)
            at.push_back(static_cast<int32_t>(t * 7 % positions));
          auto x = Buffer<T>::random(tokens * row_stride, "x");
          Buffer<T> y(x);
          RopeArgs args{
              y.data(), at.data(), cos.data(), sin.data(),   tokens, groups,           heads,
              dim,      2 * half,  row_stride, group_stride, false,  DTypeOf<T>::value};
          level.kernels.rope(*level.stream, args);
          check_close(
              y,
              [&](int64_t i) {
                int64_t t = i / row_stride, in_row = i % row_stride,
                        in_group = in_row % group_stride, d = in_group % dim;
                bool rotated =
                    in_row < groups * group_stride && in_group < heads * dim && d < 2 * half;
                if (!rotated) return x[i];
                int64_t pair = d % half, k = at[static_cast<size_t>(t)] * half + pair;
                return d < half ? x[i] * cos[k] - x[i + half] * sin[k]
                                : x[i] * cos[k] + x[i - half] * sin[k];
              },
              "y");
          args.inverse = true;
          level.kernels.rope(*level.stream, args);
          check_close(
              y, [&](int64_t i) { return x[i]; }, "turned back", 1, 3);
        }
  });
}

TEST_CASE("rope turns interleaved pairs, heads at odd strides too, and leaves the rest") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    for (int64_t half : {1, 3, 16, 33}) {
      const int64_t tokens = 9, heads = 2, dim = 2 * half + 5, row_stride = heads * dim + 1;
      Buffer<float> cos(tokens * half), sin(tokens * half);
      for (int64_t i = 0; i < tokens * half; ++i) {
        cos.set(i, std::cos(0.1 * static_cast<double>(i)));
        sin.set(i, std::sin(0.1 * static_cast<double>(i)));
      }
      std::vector<int32_t> at;
      for (int64_t t = 0; t < tokens; ++t) at.push_back(static_cast<int32_t>(t * 7 % tokens));
      auto x = Buffer<T>::random(tokens * row_stride, "x");
      Buffer<T> y(x);
      RopeArgs args{
          y.data(),   at.data(), cos.data(), sin.data(),        tokens, 1, heads, dim, 2 * half,
          row_stride, 0,         false,      DTypeOf<T>::value, true};
      level.kernels.rope(*level.stream, args);
      check_close(
          y,
          [&](int64_t i) {
            int64_t t = i / row_stride, in_row = i % row_stride, d = in_row % dim;
            if (in_row >= heads * dim || d >= 2 * half) return x[i];
            int64_t k = at[static_cast<size_t>(t)] * half + d / 2;
            return d % 2 == 0 ? x[i] * cos[k] - x[i + 1] * sin[k]
                              : x[i] * cos[k] + x[i - 1] * sin[k];
          },
          "y");
    }
  });
}

}  // namespace mtrain::testing
