#include <doctest/doctest.h>

#include "gemm.h"
#include "table.h"

using namespace mtrain;
using cuda::plan_steps;

namespace {
alignas(16) const float kRow[32] = {};
alignas(16) float result[64 * 32];

GemmArgs product(DType dtype, DType c_dtype) {
  return {.c = result,
          .m = 64,
          .n = 32,
          .k = 16,
          .lda = 16,
          .ldb = 32,
          .ldc = 32,
          .dtype = dtype,
          .c_dtype = c_dtype};
}
}  // namespace

TEST_CASE("what the library's epilogue takes is not done again, and nothing is rounded twice") {
  GemmArgs g = product(DType::bf16, DType::bf16);
  auto plain = plan_steps(g);
  CHECK((plain.library && !plain.widened && !plain.fused_bias && !plain.fused_addend));

  g.bias = kRow, g.bias_dtype = DType::bf16;
  CHECK(plan_steps(g).fused_bias);
  g.addend = kRow;
  auto both = plan_steps(g);
  CHECK((both.library && both.fused_bias && both.fused_addend));

  g.bias_dtype = DType::f32;  // the library wants the result's type: in float memory, rounded once
  auto in_float = plan_steps(g);
  CHECK((in_float.library && in_float.widened && !in_float.fused_bias && !in_float.fused_addend));
  g.batch = 2;
  CHECK_FALSE(plan_steps(g).library);
}

TEST_CASE("a bias or a row that the epilogue does not read or write in vectors is added in float") {
  GemmArgs g = product(DType::bf16, DType::bf16);
  g.bias = kRow + 1, g.bias_dtype = DType::bf16;
  CHECK((plan_steps(g).widened && !plan_steps(g).fused_bias));
  g.bias = kRow;
  CHECK(plan_steps(g).fused_bias);
  g.n = g.ldc = 31;
  CHECK((plan_steps(g).widened && !plan_steps(g).fused_bias));
  g.bias = nullptr;
  CHECK_FALSE(plan_steps(g).widened);
  g = product(DType::f32, DType::f32);
  g.bias = kRow, g.n = g.ldc = 31;
  CHECK(plan_steps(g).fused_bias);
}

TEST_CASE("main gradients take float sums of 16-bit products directly") {
  GemmArgs g = product(DType::bf16, DType::f32);
  g.beta = 1;
  auto steps = plan_steps(g);
  CHECK((steps.library && !steps.widened));
}

TEST_CASE(
    "a float product for a 16-bit result goes through float memory; an empty sum is no product") {
  CHECK(plan_steps(product(DType::f32, DType::bf16)).widened);
  GemmArgs g = product(DType::bf16, DType::bf16);
  g.k = 0;
  CHECK_FALSE(plan_steps(g).library);
}

TEST_CASE("each generation multiplies by the scales that its unit knows") {
  auto takes = [](int architecture, QuantScale scale) {
    return (cuda::quant_scales_of(architecture) >> static_cast<int>(scale) & 1u) != 0;
  };
  struct Case {
    int architecture;
    bool tensor, power_of_two, e8m0, nvfp4;
  };
  for (Case c : {Case{80, false, false, false, false},
                 {86, false, false, false, false},
                 {89, true, false, false, false},
                 {90, true, true, false, false},
                 {100, true, false, true, true},
                 {120, true, false, true, true}}) {
    CAPTURE(c.architecture);
    CHECK(takes(c.architecture, QuantScale::tensor) == c.tensor);
    CHECK(takes(c.architecture, QuantScale::power_of_two) == c.power_of_two);
    CHECK(takes(c.architecture, QuantScale::e8m0) == c.e8m0);
    CHECK(takes(c.architecture, QuantScale::nvfp4) == c.nvfp4);
  }
}
