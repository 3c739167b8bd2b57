// Reductions give the same bits at every set of vector instructions, for every value of the small
// types.
#include "mtrain/comm/reduce.h"

#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <vector>

namespace mtrain {
namespace {

std::vector<ReduceLevel> levels() {
  std::vector<ReduceLevel> out = {ReduceLevel::base};
  if (best_reduce_level() == ReduceLevel::neon) out.push_back(ReduceLevel::neon);
  if (best_reduce_level() >= ReduceLevel::avx2) out.push_back(ReduceLevel::avx2);
  if (best_reduce_level() >= ReduceLevel::avx512) out.push_back(ReduceLevel::avx512);
  return out;
}

/// Every bit pattern as input 0, each paired with random patterns; NaN, infinities and subnormals
/// are among them.
void check_all_levels(DType dtype, size_t ranks, int64_t count, uint64_t seed) {
  size_t bytes = static_cast<size_t>(count) * size_of(dtype);
  std::mt19937_64 random(seed);
  std::vector<std::vector<uint8_t>> inputs(ranks, std::vector<uint8_t>(bytes));
  for (auto& input : inputs)
    for (auto& byte : input) byte = static_cast<uint8_t>(random());
  if (size_of(dtype) == 2)
    for (int64_t i = 0; i < count; ++i) {
      auto pattern = static_cast<uint16_t>(i);
      std::memcpy(inputs[0].data() + 2 * i, &pattern, 2);
    }
  std::vector<const void*> in;
  for (const auto& input : inputs) in.push_back(input.data());
  for (ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
    std::vector<uint8_t> expected(bytes), result(bytes);
    void* out = expected.data();
    reduce_in_order_at(ReduceLevel::base, in, {&out, 1}, count, dtype, op);
    out = result.data();
    for (ReduceLevel level : levels()) {
      std::memset(result.data(), 0, bytes);
      reduce_in_order_at(level, in, {&out, 1}, count, dtype, op);
      CAPTURE(static_cast<int>(level));
      CAPTURE(std::string(name(op)));
      CHECK(result == expected);
    }
  }
}

TEST_CASE("reduce: the bits do not depend on the CPU") {
  for (DType dtype : {DType::bf16, DType::f16}) {
    CAPTURE(std::string(name(dtype)));
    for (uint64_t seed = 1; seed <= 8; ++seed) check_all_levels(dtype, 2 + seed % 3, 65536, seed);
    check_all_levels(dtype, 2, 77, 9);
  }
  for (DType dtype : {DType::f32, DType::f64, DType::i32, DType::i64}) {
    CAPTURE(std::string(name(dtype)));
    check_all_levels(dtype, 3, 10007, 5);
  }
}

TEST_CASE("reduce: bf16 and fp16 are combined in float and rounded once") {
  std::vector<bf16> a = {bf16(256.0f), bf16(1.0f)}, b = {bf16(1.0f), bf16(2.0f)},
                    c = {bf16(1.0f), bf16(3.0f)}, sum(2);
  std::vector<const void*> in = {a.data(), b.data(), c.data()};
  void* out = sum.data();
  reduce_in_order(in, {&out, 1}, 2, DType::bf16, ReduceOp::sum);
  CHECK(static_cast<float>(sum[0]) == 258.0f);  // 256 + 1 alone would round to 256, twice
  CHECK(static_cast<float>(sum[1]) == 6.0f);
}

}  // namespace
}  // namespace mtrain
