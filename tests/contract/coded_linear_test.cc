// Weights as codes: the kernel against its formulas bit by bit, on all backends and with all types;
// products against those of the decoded weight, and against their definition in double.
#include <doctest/doctest.h>

#include <array>
#include <cmath>

#include "contract/harness.h"
#include "contract/test_backends.h"
#include "mtrain/autograd/coded_weight.h"
#include "mtrain/base/rng.h"

namespace mtrain::contract {
namespace {

struct Form {
  WeightFormat format;
  bool nested;
  int64_t rows, cols;
};
const Form kForms[] = {{WeightFormat::nf4, false, 5, 64},  {WeightFormat::nf4, true, 7, 192},
                       {WeightFormat::nf4, true, 33, 640}, {WeightFormat::nf4, false, 1, 1024},
                       {WeightFormat::int8, false, 3, 37}, {WeightFormat::int8, false, 17, 256},
                       {WeightFormat::fp8, false, 3, 65},  {WeightFormat::fp8, false, 64, 129}};

template <class T>
Tensor put(ExecutionContext& ctx, const std::vector<T>& values, const Shape& shape) {
  Tensor out = ctx.empty(shape, DTypeOf<T>::value);
  ctx.upload(out, values.data());
  return out;
}

/// A weight of any codes, and its values as its formulas say.
struct Example {
  CodedWeight weight;
  std::vector<float> values;
};

Example example(ExecutionContext& ctx, const Form& f) {
  RngStream random(5, "codes", static_cast<uint64_t>(f.rows * 1000 + f.cols));
  const int64_t blocks = f.cols / kNf4Block, bytes = code_bytes(f.format, f.cols);
  uint64_t next = 0;
  auto byte = [&] { return static_cast<uint8_t>(random.uniform(next++) * 256); };
  std::vector<uint8_t> codes(static_cast<size_t>(f.rows * bytes)), scale_codes;
  for (uint8_t& code : codes) {
    code = byte();
    if (f.format == WeightFormat::fp8 && (code & 0x7F) == 0x7F) code = 0;  // NaN
  }
  const bool blocked = f.format == WeightFormat::nf4;
  std::vector<float> scales(static_cast<size_t>(blocked ? f.rows * blocks : f.rows)), groups;
  for (float& s : scales) s = 0.01f + random.uniform(next++);
  std::vector<int32_t> first;
  if (f.nested) {
    constexpr int32_t kBefore = 3 * 256 + 250;  // rows of which some cross a group
    for (int64_t r = 0; r < f.rows; ++r)
      first.push_back(kBefore + static_cast<int32_t>(r * (blocks + 1)));
    for (int64_t g = 0; g <= (first.back() + blocks) / kScaleGroup; ++g)
      for (float v : {0.1f + random.uniform(next++), 1.0f + random.uniform(next++)})
        groups.push_back(v);
    for (int64_t i = 0; i < f.rows * blocks; ++i) scale_codes.push_back(byte());
    for (int64_t i = 0; i < f.rows * blocks; ++i) {
      const float* group =
          groups.data() + 2 * ((first[static_cast<size_t>(i / blocks)] + i % blocks) / kScaleGroup);
      volatile float product =
          scale_code_value(kScaleCodeValues, scale_codes[static_cast<size_t>(i)]) * group[0];
      scales[static_cast<size_t>(i)] = product + group[1];
    }
  }
  Example out;
  for (int64_t r = 0; r < f.rows; ++r)
    for (int64_t c = 0; c < f.cols; ++c) {
      const uint8_t code = codes[static_cast<size_t>(r * bytes + (blocked ? c / 2 : c))];
      const float scale = scales[static_cast<size_t>(blocked ? r * blocks + c / kNf4Block : r)];
      const float value = f.format == WeightFormat::nf4
                              ? kNf4Values.of[c % 2 == 0 ? code >> 4 : code & 15] * scale
                          : f.format == WeightFormat::int8 ? int8_value(code, scale)
                                                           : fp8_value(code, scale);
      out.values.push_back(value);
    }
  CodedWeight& w = out.weight;
  w.format = f.format, w.rows = f.rows, w.cols = f.cols;
  w.codes = put(ctx, codes, {f.rows, bytes});
  if (!f.nested) {
    w.scales = put(ctx, scales, blocked ? Shape{f.rows, blocks} : Shape{f.rows});
    return out;
  }
  w.scale_codes = put(ctx, scale_codes, {f.rows, blocks});
  w.groups = put(ctx, groups, {static_cast<int64_t>(groups.size() / 2), 2});
  w.first_block = put(ctx, first, {f.rows});
  return out;
}

struct Products {
  Values y, dx, db, dr;
};

/// linear() with its gradients, of a weight as codes or of its values.
Products products(ExecutionContext& ctx, const CodedWeight& w, int64_t tokens, DType dtype,
                  bool coded) {
  Tensor x = make(ctx, random_values(tokens * w.cols, "coded x"), {tokens, w.cols}, dtype),
         b = make(ctx, random_values(w.rows, "coded b"), {w.rows}, dtype),
         r = make(ctx, random_values(tokens * w.rows, "coded r"), {tokens, w.rows}, dtype);
  auto x_end = std::make_shared<Catcher>(), r_end = std::make_shared<Catcher>();
  auto b_end = std::make_shared<Leaf>();
  b_end->grad = ctx.zeros({w.rows}, DType::f32);
  x.set_node(x_end), b.set_node(b_end), r.set_node(r_end);
  Tensor y = coded ? linear(x, w, w.codes, b, r) : linear(x, w.decode(ctx, dtype), b, r);
  Products out{.y = values_of(y), .dx = {}, .db = {}, .dr = {}};
  backward(y, make(ctx, random_values(tokens * w.rows, "coded dy"), {tokens, w.rows}, dtype));
  out.dx = values_of(x_end->grad), out.db = values_of(b_end->grad);
  out.dr = values_of(r_end->grad);
  return out;
}

TEST_CASE("decode_weight: the values of the formulas, bit by bit, on every backend") {
  int seen = 0;
  for (const TestBackend& backend : test_backends())
    for (const Form& form : kForms) {
      CAPTURE(backend.name);
      CAPTURE(std::string(name(form.format)));
      Fixture lab(backend.make(2));
      ExecutionContext& ctx = lab.context();
      const Example e = example(ctx, form);
      const Values exact(e.values.begin(), e.values.end());
      for (DType dtype : kDTypes) {
        CAPTURE(std::string(name(dtype)));
        CHECK(values_of(e.weight.decode(ctx, dtype)) == round_to(exact, dtype));
        ++seen;
      }
    }
  CHECK(seen >= 24);
}

TEST_CASE("linear with codes: the products of the decoded weight") {
  for (const TestBackend& backend : test_backends())
    for (const Form& form : kForms)
      for (DType dtype : kDTypes) {
        CAPTURE(backend.name);
        CAPTURE(std::string(name(form.format)));
        CAPTURE(std::string(name(dtype)));
        Fixture lab(backend.make(2));
        const Example e = example(lab.context(), form);
        for (int64_t tokens : {1, 40}) {
          const Products got = products(lab.context(), e.weight, tokens, dtype, true),
                         want = products(lab.context(), e.weight, tokens, dtype, false);
          CHECK(got.y == want.y);
          CHECK(got.dx == want.dx);
          CHECK(got.db == want.db);
          CHECK(got.dr == want.dr);
        }
      }
}

TEST_CASE("linear with codes: its definition in double") {
  constexpr int64_t kTokens = 9;
  for (const Form& form : kForms) {
    CAPTURE(std::string(name(form.format)));
    Fixture lab;
    const Example e = example(lab.context(), form);
    const Products got = products(lab.context(), e.weight, kTokens, DType::f32, true);
    auto rounded = [](Values v) { return round_to(std::move(v), DType::f32); };
    const Values w(e.values.begin(), e.values.end()),
        x = rounded(random_values(kTokens * form.cols, "coded x")),
        b = rounded(random_values(form.rows, "coded b")),
        dy = rounded(random_values(kTokens * form.rows, "coded dy")),
        r = rounded(random_values(kTokens * form.rows, "coded r"));
    Values y = reference::linear(x, w, b, kTokens, form.cols, form.rows);
    for (size_t i = 0; i < y.size(); ++i) y[i] += r[i];
    const auto grads = reference::linear_backward(dy, x, w, kTokens, form.cols, form.rows);
    check_close(got.y, y, DType::f32, {}, "y");
    check_close(got.dx, grads[0], DType::f32, {}, "dx");
    check_close(got.db, grads[2], DType::f32, {}, "db");
  }
}

TEST_CASE("linear with codes: the values of the weight have memory only during a product") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  const Example e = example(ctx, {WeightFormat::nf4, true, 256, 512});
  const Tensor x = ctx.zeros({8, 512}, DType::bf16);
  const size_t before = ctx.memory().in_use();
  const Tensor y = linear(x, e.weight, e.weight.codes);
  CHECK(ctx.memory().in_use() - before < 256 * 512);
}

TEST_CASE("linear with codes: mismatched shapes are refused") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  const Example e = example(ctx, {WeightFormat::int8, false, 4, 6});
  const Tensor x = ctx.zeros({3, 5}, DType::f32), fits = ctx.zeros({3, 6}, DType::f32);
  CHECK_THROWS_WITH_AS(linear(x, e.weight, e.weight.codes), doctest::Contains("[3, 5]"), Error);
  CHECK_THROWS_AS(linear(fits, e.weight, e.weight.codes, ctx.zeros({3}, DType::f32)), Error);
  CHECK_THROWS_AS(linear(fits, e.weight, e.weight.codes, {}, ctx.zeros({3, 5}, DType::f32)), Error);
}

}  // namespace
}  // namespace mtrain::contract
