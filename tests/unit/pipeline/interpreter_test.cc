// The step path with a small language model: losses and gradients do not depend on how the batch is
// split, and failures say where they happened.
#include "mtrain/pipeline/interpreter.h"

#include <doctest/doctest.h>

#include <cmath>

#include "contract/harness.h"
#include "mtrain/base/rng.h"
#include "mtrain/nn/attention.h"
#include "mtrain/nn/layers.h"
#include "mtrain/nn/mlp.h"
#include "mtrain/nn/rope_table.h"
#include "mtrain/pipeline/schedule_text.h"

namespace mtrain {
namespace {

using namespace contract;

constexpr int64_t kVocab = 40, kWidth = 16, kLength = 9, kRows = 6;

class TinyModel final : public Model {
 public:
  TinyModel(const Scope& s, float drop, bool recompute)
      : table_(make_rope_table(s.context(), {}, kLength, 8)),
        embed_(s / "embed", {"vocab", kVocab}, {"embed", kWidth}, 0.5f),
        norm_(s / "norm", Norm::Kind::rms, {"embed", kWidth}, 1e-5f),
        attention_(s / "attn", {"embed", kWidth},
                   {.layout = {2, 1, 8}, .init_std = 0.3f, .out_init_std = 0.3f, .rope = &table_}),
        mlp_(s / "mlp", {"embed", kWidth}, {"mlp", 24}, 0.3f, 0.3f),
        head_(s / "head", {"vocab", kVocab}, {"embed", kWidth}, kVocab, &embed_.weight, 0.5f),
        drop_(drop),
        recompute_(recompute) {}

  Tensor forward(const ModelInput& input, Tensor) override {
    if (fail) throw Error(failure, "it broke");
    auto block = [this, input](const Tensor& x) {
      Tensor h = add(x, dropout(attention_(norm_(x), input), drop_, name_key("drop1")));
      return add(h, dropout(mlp_(h), drop_, name_key("drop2")));
    };
    Tensor x = embed_(input.tokens_T);
    if (look) head_(x, input);
    return head_(recompute_ ? recompute(block, x) : block(x), input);
  }
  double flops_per_token(int64_t) const override { return 0; }
  bool fail = false;
  bool look = false;  // computes losses halfway and does nothing with them
  ErrorClass failure = ErrorClass::bug;

 private:
  RopeTable table_;
  Embedding embed_;
  Norm norm_;
  Attention attention_;
  GatedMlp mlp_;
  LmHead head_;
  float drop_;
  bool recompute_;
};

struct Trial {
  explicit Trial(DType dtype = DType::f32, float drop = 0, bool recompute = false)
      : settings{.ctx = lab.context(), .parameters = list, .dtype = dtype},
        model(Scope(settings), drop, recompute),
        interpreter(lab.context(), model, list) {
    list.allocate_gradients(lab.context());
  }
  // Rows [first, first + rows) of a fixed batch; some targets are ignored, unevenly over the rows.
  ModelInput input(int64_t first, int64_t rows) {
    std::vector<int32_t> tokens, positions, targets, bounds = {0};
    for (int64_t r = first; r < first + rows; ++r) {
      for (int64_t t = 0; t < kLength; ++t) {
        tokens.push_back(static_cast<int32_t>((r * 31 + t * 7) % kVocab));
        positions.push_back(static_cast<int32_t>(t));
        targets.push_back(
            (r + t) % (r + 2) == 0 ? -1 : static_cast<int32_t>((r * 13 + t * 5 + 1) % kVocab));
      }
      bounds.push_back(static_cast<int32_t>(tokens.size()));
    }
    lab.context().first_token = first * kLength;
    return {make_ids(lab.context(), tokens), make_ids(lab.context(), positions),
            make_ids(lab.context(), targets), std::make_shared<const std::vector<int32_t>>(bounds)};
  }
  static int64_t targets() {
    int64_t n = 0;
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t t = 0; t < kLength; ++t) n += (r + t) % (r + 2) != 0;
    return n;
  }
  StepLoss run(int64_t rows_per_micro, double loss_scale = 1) {
    Program program = one_f_one_b({1, kRows / rows_per_micro})[0];
    return interpreter.run(
        program, [&](int64_t m) { return input(m * rows_per_micro, rows_per_micro); }, targets(),
        loss_scale);
  }
  Values gradients() { return values_of(list.gradient_buffer()); }

  Fixture lab;
  ParamList list;
  BuildSettings settings;
  TinyModel model;
  Interpreter interpreter;
};

double norm(const Values& v) {
  double sum = 0;
  for (double x : v) sum += x * x;
  return std::sqrt(sum);
}
double distance(const Values& a, const Values& b) {
  Values d = a;
  for (size_t i = 0; i < d.size(); ++i) d[i] -= b[i];
  return norm(d) / norm(b);
}

TEST_CASE(
    "interpreter: loss and gradients do not depend on the micro-batch, dropout and recompute "
    "included") {
  for (float drop : {0.0f, 0.3f}) {
    Trial whole(DType::f32, drop);
    StepLoss loss = whole.run(kRows);
    Values want = whole.gradients();
    CHECK(loss.num_targets == Trial::targets());
    CHECK(loss.mean() > 1);
    CHECK(norm(want) > 0.01);
    for (int64_t rows : {1, 2, 3})
      for (bool recompute : {false, true}) {
        INFO("dropout ", drop, ", ", rows, " rows a micro-batch", recompute ? ", recomputed" : "");
        Trial split(DType::f32, drop, recompute);
        CHECK(std::fabs(split.run(rows).mean() / loss.mean() - 1) < 1e-6);
        CHECK(distance(split.gradients(), want) < 2e-6);
      }
  }
}

TEST_CASE("interpreter: in bf16 and fp16 splitting the batch costs rounding only") {
  for (auto [dtype, most] : {std::pair{DType::bf16, 0.02}, {DType::f16, 0.003}}) {
    Trial whole(dtype, 0.3f), split(dtype, 0.3f);
    CHECK(std::fabs(split.run(1).mean() / whole.run(kRows).mean() - 1) < most);
    CHECK(distance(split.gradients(), whole.gradients()) < most);
  }
}

TEST_CASE("interpreter: steps repeat to the bit and do not leak into each other") {
  Trial trial(DType::f32, 0.3f);
  double first = trial.run(2).loss_sum;
  Values gradients = trial.gradients();
  trial.lab.context().step = 1;
  CHECK(trial.run(3).loss_sum != first);
  trial.lab.context().step = 0;
  CHECK(trial.run(2).loss_sum == first);
  CHECK(trial.gradients() == gradients);
}

TEST_CASE("interpreter: the loss scale multiplies gradients and not the loss") {
  Trial plain, scaled;
  double loss = plain.run(2).loss_sum;
  CHECK(scaled.run(2, 1024).loss_sum == loss);
  Values want = plain.gradients();
  for (double& v : want) v *= 1024;
  CHECK(scaled.gradients() == want);
}

TEST_CASE("interpreter: evaluation has neither tape nor dropout and touches no gradient") {
  Trial trial(DType::f32, 0.5f), plain;
  trial.run(kRows);
  Values before = trial.gradients();
  size_t resting = trial.lab.context().memory().in_use();
  double loss = trial.interpreter.evaluate(trial.input(0, kRows)).loss_sum;
  CHECK(loss == doctest::Approx(plain.run(kRows).loss_sum).epsilon(1e-6));
  CHECK(trial.gradients() == before);
  CHECK(trial.lab.context().memory().in_use() == resting);
  CHECK(trial.lab.context().training);
  CHECK(trial.lab.context().grad_enabled);
}

TEST_CASE("interpreter: parameters that no micro-batch used get zero gradients") {
  Trial trial;
  Parameter unused = *trial.list.find("norm.weight");
  trial.run(2);
  CHECK(norm(values_of(unused.main_grad)) > 0);
  trial.interpreter.run(
      {{ActionKind::reduce, 0, 0}}, [&](int64_t) { return trial.input(0, 1); }, 1, 1);
  CHECK(norm(trial.gradients()) == 0);
}

TEST_CASE(
    "interpreter: losses of the head that backward never sees are refused, since their gradients "
    "were added up") {
  Trial trial, fresh;
  trial.model.look = true;
  CHECK_THROWS_WITH_AS(trial.run(2), doctest::Contains("were not used in backward"), Error);
  trial.model.look = false;
  CHECK(trial.run(2).loss_sum == fresh.run(2).loss_sum);
  CHECK(trial.gradients() == fresh.gradients());
}

TEST_CASE(
    "interpreter: an internal error names the action in which it happened; a user's error is "
    "unchanged") {
  Trial trial;
  trial.model.fail = true;
  CHECK_THROWS_WITH_AS(trial.run(2),
                       doctest::Contains("in action 0 (0F0) of 7 of pipeline rank 0:\n  0F0 0B0"),
                       Error);
  trial.model.failure = ErrorClass::data;
  CHECK_THROWS_WITH_AS(trial.run(2), "it broke", Error);
  CHECK_THROWS_AS(trial.interpreter.evaluate(trial.input(0, 1)), Error);
  CHECK(trial.lab.context().training);
  CHECK(trial.lab.context().grad_enabled);
  trial.model.fail = false;
  Trial fresh;
  CHECK(trial.run(2).loss_sum == fresh.run(2).loss_sum);
  CHECK(trial.gradients() == fresh.gradients());
}

TEST_CASE("interpreter: Gather, Release and Scatter call their hooks where the program has them") {
  Trial trial, plain;
  std::vector<std::string> calls;
  trial.interpreter.set_gradient_hooks({[&] { calls.push_back("done"); },
                                        [&] { calls.push_back("scatter"); },
                                        [&] {
                                          calls.push_back("reduce");
                                          trial.list.zero_unwritten_gradients(trial.lab.context());
                                        }});
  trial.interpreter.set_param_hooks(
      {[&](int64_t stage) { calls.push_back(cat("gather ", stage)); },
       [&](int64_t stage) { calls.push_back(cat("release ", stage)); }});
  auto input_of = [&](int64_t m) { return trial.input(3 * m, 3); };
  auto program = [](const char* text) { return parse_schedule(text, "test")[0]; };
  trial.interpreter.run(program("0Gather 0F0 0B0 0Scatter0 0F1 0B1 0Release 0Scatter1 0R"),
                        input_of, Trial::targets(), 1);
  CHECK(calls == std::vector<std::string>{"gather 0", "done", "scatter", "done", "release 0",
                                          "scatter", "reduce"});
  plain.run(3);
  CHECK(trial.gradients() == plain.gradients());
  CHECK_THROWS_WITH_AS(
      trial.interpreter.run(program("0F0 0Scatter0 0B0 0R"), input_of, Trial::targets(), 1),
      doctest::Contains("0Scatter0 before its last backward"), Error);
}

TEST_CASE("interpreter: what cannot be there on a single rank, or not yet, is refused by name") {
  Trial trial;
  auto run = [&](const Program& program) {
    trial.interpreter.run(
        program, [&](int64_t) { return trial.input(0, 2); }, 1, 1);
  };
  for (ActionKind what : {ActionKind::recv_forward, ActionKind::send_forward,
                          ActionKind::recv_backward, ActionKind::send_backward}) {
    Action transfer{what, 0, 0};
    std::string fault =
        cat(to_text(transfer), ", but stage ",
            what == ActionKind::send_forward || what == ActionKind::recv_backward ? 1 : -1);
    CHECK_THROWS_WITH_AS(run({{ActionKind::forward, 0, 0}, transfer}),
                         doctest::Contains(fault.c_str()), Error);
  }
  CHECK_THROWS_WITH_AS(run({{ActionKind::forward, 0, 0}, {ActionKind::weight_grad, 0, 0}}),
                       doctest::Contains("0W0 before its backward"), Error);
  CHECK_THROWS_WITH_AS(run({{ActionKind::backward, 0, 0}}),
                       doctest::Contains("0B0 before its forward"), Error);
  CHECK_THROWS_WITH_AS(run({{ActionKind::forward, 1, 0}}),
                       doctest::Contains("1F0: its stage is not on rank 0"), Error);
}

}  // namespace
}  // namespace mtrain
