// The loss and gradient of distillation against trl's, of two batches (distillation_generate.py).
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "mtrain/autograd/ops.h"
#include "mtrain/cpu/cpu_backend.h"
#include "roots.h"

using namespace mtrain;

namespace {

class Logits final : public GradTarget {};

struct GoldenBatch {
  int64_t vocab, tokens, learnt;
  std::vector<float> student, teacher;
  std::vector<int32_t> targets;
};

GoldenBatch read_batch(const nlohmann::json& json) {
  GoldenBatch out{.vocab = json.at("vocab"), .tokens = 0, .learnt = 0};
  json.at("student").get_to(out.student);
  json.at("teacher").get_to(out.teacher);
  json.at("targets").get_to(out.targets);
  out.tokens = std::ssize(out.targets);
  for (int32_t target : out.targets) out.learnt += target >= 0;
  return out;
}

std::vector<float> on_host(const Tensor& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.numel()));
  tensor.context().download(tensor, out.data());
  return out;
}

double mean_of(const Tensor& values, int64_t count) {
  double sum = 0;
  for (float value : on_host(values)) sum += static_cast<double>(value);
  return sum / static_cast<double>(count);
}

struct Measured {
  double kl, cross_entropy, loss;
  std::vector<float> gradient;
};

/// `fused`: through linear_cross_entropy with the identity as matrix. `padding`: columns that both
/// matrices of logits have after those of the vocabulary, of another number.
Measured measure(const GoldenBatch& b, const nlohmann::json& c, bool fused, int64_t padding) {
  const auto backend = make_cpu_backend(2);
  ExecutionContext ctx(*backend, {}, 1);
  auto padded = [&](const std::vector<float>& values, int64_t more) {
    std::vector<float> out;
    for (int64_t t = 0; t < b.tokens; ++t) {
      out.insert(out.end(), values.begin() + t * b.vocab, values.begin() + (t + 1) * b.vocab);
      out.insert(out.end(), static_cast<size_t>(more), 500.0f);
    }
    return ctx.from_host<float>(out, {b.tokens, b.vocab + more});
  };
  const int64_t columns = b.vocab + padding;
  Tensor logits = padded(b.student, padding);
  auto end = std::make_shared<Logits>();
  logits.set_node(end);
  const Distillation distillation{.teacher_TV = padded(b.teacher, 2 * padding),
                                  .shared = b.vocab,
                                  .temperature = c.at("temperature"),
                                  .beta = c.at("beta"),
                                  .alpha = c.at("alpha"),
                                  .divergence_T = ctx.empty({b.tokens}, DType::f32),
                                  .cross_entropy_T = ctx.empty({b.tokens}, DType::f32)};
  const Tensor targets = ctx.from_host<int32_t>(b.targets, {b.tokens});
  const float weight = 1 / static_cast<float>(b.learnt);
  std::vector<float> identity(static_cast<size_t>(columns * columns), 0);
  for (int64_t i = 0; i < columns; ++i) identity[static_cast<size_t>(i * columns + i)] = 1;
  const Tensor w = ctx.from_host<float>(identity, {columns, columns});
  const Tensor loss =
      fused ? linear_cross_entropy(logits, w, targets, b.vocab, weight, {}, nullptr, nullptr, {},
                                   {}, &distillation)
            : cross_entropy(linear(logits, w, {}), targets, b.vocab, {}, {}, &distillation);
  backward(loss, ctx.from_host<float>(std::vector<float>(static_cast<size_t>(b.tokens), weight),
                                      {b.tokens}));
  Measured out{mean_of(distillation.divergence_T, b.learnt),
               mean_of(distillation.cross_entropy_T, b.learnt),
               mean_of(loss, b.learnt),
               {}};
  const std::vector<float> all = on_host(end->grad);
  for (int64_t t = 0; t < b.tokens; ++t)
    out.gradient.insert(out.gradient.end(), all.begin() + t * columns,
                        all.begin() + t * columns + b.vocab);
  return out;
}

void compare_case(const GoldenBatch& batch, const nlohmann::json& c, const Measured& found) {
  CHECK(found.kl == doctest::Approx(c.at("kl").get<double>()).epsilon(2e-6));
  CHECK(found.cross_entropy == doctest::Approx(c.at("ce_loss").get<double>()).epsilon(2e-6));
  CHECK(found.loss == doctest::Approx(c.at("loss").get<double>()).epsilon(2e-6));
  const auto want = c.at("gradient").get<std::vector<double>>();
  REQUIRE(want.size() == found.gradient.size());
  double largest = 0, difference = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::abs(want[i]));
    difference = std::max(difference, std::abs(want[i] - static_cast<double>(found.gradient[i])));
  }
  // A log-probability of -150 / temperature in fp32 is off by up to 2e-5.
  CHECK(difference < 1e-4 * largest);
  CHECK(largest > 1e-3);
  for (int64_t t = 0; t < batch.tokens; ++t)
    for (int64_t i = 0; i < batch.vocab && batch.targets[static_cast<size_t>(t)] < 0; ++i)
      CHECK(found.gradient[static_cast<size_t>(t * batch.vocab + i)] == 0);
}

}  // namespace

TEST_CASE("distillation: losses and gradients are those of trl's GKDTrainer") {
  const auto golden = nlohmann::json::parse(
      std::ifstream(testing::source_root() / "tests/golden/distillation/golden.json"));
  for (const nlohmann::json& one : golden.at("batches"))
    for (const nlohmann::json& c : one.at("cases"))
      for (bool fused : {true, false})
        for (int64_t padding : {0, 3}) {
          INFO("beta ", c.at("beta"), ", temperature ", c.at("temperature"), ", alpha ",
               c.at("alpha"), fused ? ", fused" : "", ", padding ", padding);
          const GoldenBatch batch = read_batch(one);
          compare_case(batch, c, measure(batch, c, fused, padding));
        }
}
