#include "kernel_harness.h"

namespace mtrain::testing {

TEST_CASE("embedding copies rows and adds gradients in token order") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    for (int64_t cols : kOddSizes)
      for (int64_t tokens : {0, 1, 33, 300}) {
        int64_t rows = 7;
        auto table = Buffer<T>::random(rows * cols, "table"),
             dy = Buffer<T>::random(tokens * cols, "dy");
        std::vector<int32_t> ids;
        for (int64_t t = 0; t < tokens; ++t) ids.push_back(static_cast<int32_t>(t * t % rows));
        Buffer<T> y(tokens * cols, 99);
        level.kernels.embedding(*level.stream, {table.data(), ids.data(), y.data(), tokens, rows,
                                                cols, DTypeOf<T>::value});
        bool equal = true;
        for (int64_t i = 0; i < tokens * cols; ++i)
          equal = equal && y[i] == table[ids[static_cast<size_t>(i / cols)] * cols + i % cols];
        CHECK(equal);
        auto d_table = Buffer<float>::random(rows * cols, "d_table");
        std::vector<float> want(d_table.data(), d_table.data() + rows * cols);
        for (int64_t i = 0; i < tokens * cols; ++i)
          want[static_cast<size_t>(ids[static_cast<size_t>(i / cols)] * cols + i % cols)] +=
              to_float(dy.data()[i]);
        level.kernels.embedding_backward(*level.stream, {dy.data(), ids.data(), d_table.data(),
                                                         tokens, rows, cols, DTypeOf<T>::value});
        CHECK(std::memcmp(want.data(), d_table.data(), sizeof(float) * want.size()) == 0);
      }
  });
}

}  // namespace mtrain::testing
