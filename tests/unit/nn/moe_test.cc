// A mixture of experts against a plain loop over experts in double, and over ranks against one
// rank.
#include "mtrain/nn/moe.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "contract/harness.h"
#include "contract/router_reference.h"
#include "mtrain/comm/thread_world.h"
#include "mtrain/nn/moe_settings.h"
#include "mtrain/nn/moe_step.h"

namespace mtrain {
namespace {

using namespace contract;

constexpr int64_t kTokens = 24, kWidth = 10, kFfn = 8, kExperts = 8;
const std::vector<int32_t> kBounds = {0, 6, 13, 24};
constexpr float kWeight = 0.125f;

MoeOptions options_of(RouterRule rule, int64_t shared = 6) {
  return {.experts = kExperts,
          .ffn = kFfn,
          .shared_ffn = shared,
          .rule = rule,
          .terms = {},
          .init_std = 0.4f,
          .out_init_std = 0.4f};
}

using Named = std::map<std::string, Values>;  // whole tensors

Values rows(const Values& v, int64_t begin, int64_t count, int64_t width) {
  return Values(v.begin() + begin * width, v.begin() + (begin + count) * width);
}

Values gated(const Values& x, const Values& gate, const Values& up, const Values& down,
             int64_t tokens, int64_t ffn) {
  Values a = reference::linear(x, gate, {}, tokens, kWidth, ffn),
         b = reference::linear(x, up, {}, tokens, kWidth, ffn);
  return reference::linear(reference::silu_mul(a, b), down, {}, tokens, ffn, kWidth);
}

/// One expert and one token.
Values expert(const Named& p, const Values& x, const MoeOptions& o, size_t e) {
  const auto i = static_cast<int64_t>(e);
  auto matrix = [&](const char* name) { return rows(p.at(name), i, 1, kFfn * kWidth); };
  const Values gate = matrix("experts.gate.weight"), up = matrix("experts.up.weight"),
               down = matrix("experts.down.weight");
  if (!o.expert_bias) return gated(x, gate, up, down, 1, kFfn);
  auto bias = [&](const char* name, int64_t width) { return rows(p.at(name), i, 1, width); };
  Values a = reference::linear(x, gate, bias("experts.gate.bias", kFfn), 1, kWidth, kFfn),
         b = reference::linear(x, up, bias("experts.up.bias", kFfn), 1, kWidth, kFfn);
  const double limit = o.swish.limit;
  for (size_t j = 0; j < a.size(); ++j) {
    const double g = std::min(a[j], limit), u = std::clamp(b[j], -limit, limit);
    a[j] = g / (1 + std::exp(-g * static_cast<double>(o.swish.factor))) *
           (u + static_cast<double>(o.swish.offset));
  }
  return reference::linear(a, down, bias("experts.down.bias", kWidth), 1, kFfn, kWidth);
}

struct Choice {
  int64_t token;
  size_t expert;
  double weight;
};

/// Those that find a place among `places` of each expert.
std::vector<Choice> kept(std::vector<Choice> all, int64_t places, ExpertCapacity::Keep keep) {
  if (keep == ExpertCapacity::Keep::best)
    std::stable_sort(all.begin(), all.end(),
                     [](const Choice& a, const Choice& b) { return a.weight > b.weight; });
  std::map<size_t, int64_t> taken;
  std::erase_if(all, [&](const Choice& c) { return ++taken[c.expert] > places; });
  return all;
}

std::vector<Choice> choices_of(const Values& z, const MoeOptions& o) {
  std::vector<Choice> all;
  each_token(z, kExperts, [&](size_t t, const Values& row) {
    auto chosen = router_choice(row, o.rule, true);
    Values weight = chosen_weights(row, o.rule, chosen);
    for (size_t j = 0; j < chosen.size(); ++j)
      all.push_back({static_cast<int64_t>(t), chosen[j], weight[j]});
  });
  if (!o.capacity.factor) return all;
  return kept(all, max_tokens_per_expert(*o.capacity.factor, kTokens, o.rule.top_k, kExperts),
              o.capacity.keep);
}

/// One expert and one token after another.
Values plain(const Named& p, const Values& x, const MoeOptions& o) {
  Values y = x;  // the residual
  if (o.shared_ffn > 0) {
    Values shared = gated(x, p.at("shared.gate.weight"), p.at("shared.up.weight"),
                          p.at("shared.down.weight"), kTokens, o.shared_ffn);
    Values gate = o.shared_gate
                      ? reference::linear(x, p.at("shared.scale.weight"), {}, kTokens, kWidth, 1)
                      : Values();
    for (size_t i = 0; i < shared.size(); ++i)
      y[i] += shared[i] * (o.shared_gate ? 1 / (1 + std::exp(-gate[i / kWidth])) : 1);
  }
  Values z = reference::linear(x, p.at("router.weight"),
                               o.logit_bias ? p.at("router.logit_bias") : Values(), kTokens, kWidth,
                               kExperts);
  for (const Choice& choice : choices_of(z, o)) {
    Values out = expert(p, rows(x, choice.token, 1, kWidth), o, choice.expert);
    for (int64_t c = 0; c < kWidth; ++c)
      y[static_cast<size_t>(choice.token * kWidth + c)] +=
          choice.weight * out[static_cast<size_t>(c)];
  }
  return y;
}

/// The layout of ranks. The stream's tokens are spread over all of them.
struct RankLayout {
  int64_t ep = 1, etp = 1, edp = 1;
  int64_t ranks() const { return ep * etp * edp; }
};

struct Outcome {
  Values y, dx;
  Named values, gradients;
  RouterRecord record;
  std::vector<double> figures;  // of the step's end, by rank and then by name
  std::map<std::string, std::vector<float>> buffers;
};

struct Worker {
  Worker(const MoeOptions& options, const ParallelContext& parallel)
      : settings{.ctx = lab.context(), .parameters = list} {
    settings.parallel = &parallel;
    moe.emplace(Scope(settings), Dim{"embed", kWidth}, options);
    for (const Parameter& p : list.all()) set_bias(p);
    list.allocate_gradients(lab.context());
    list.clear_gradients();
  }
  /// Biases start at 0: other values, the same on all ranks.
  void set_bias(const Parameter& p) {
    if (p.role != ParamRole::bias) return;
    const Values all = random_values(p.global.numel(), p.name, 0.5);
    std::vector<float> own(static_cast<size_t>(p.numel()));
    for (const ParamBox& box : p.boxes())
      for_each_run(box.global, p.global, box.local, p.local,
                   [&](int64_t global, int64_t local, int64_t count) {
                     for (int64_t i = 0; i < count; ++i)
                       own[static_cast<size_t>(local + i)] =
                           static_cast<float>(all[static_cast<size_t>(global + i)]);
                   });
    lab.context().upload(p.master, own.data());
  }
  Fixture lab{1};
  ParamList list;
  BuildSettings settings;
  std::optional<Moe> moe;
};

/// Adds what a rank has of each parameter to the whole; values are written instead.
void gather(const ParamList& list, Outcome& out) {
  for (const Parameter& p : list.all()) {
    Values value = values_of(p.master), gradient = values_of(p.main_grad);
    Values &all = out.values[p.name], &sum = out.gradients[p.name];
    all.resize(static_cast<size_t>(p.global.numel())), sum.resize(all.size());
    for (const ParamBox& box : p.boxes())
      for_each_run(box.global, p.global, box.local, p.local,
                   [&](int64_t global, int64_t local, int64_t count) {
                     for (int64_t i = 0; i < count; ++i) {
                       all[static_cast<size_t>(global + i)] = value[static_cast<size_t>(local + i)];
                       sum[static_cast<size_t>(global + i)] +=
                           gradient[static_cast<size_t>(local + i)];
                     }
                   });
  }
}

/// The sequences of the tokens, and for each token whether it is padding; empty: none is.
struct Sequences {
  std::vector<int32_t> bounds = kBounds, padding = {};
};

/// The last of `steps` steps on the same tokens.
Outcome play(const MoeOptions& options, const RankLayout& layout, const Values& x, const Values& dy,
             int steps = 1, const Sequences& sequences = {}) {
  Outcome out;
  const auto tokens = static_cast<int64_t>(x.size()) / kWidth;
  out.y.resize(x.size()), out.dx.resize(x.size());
  std::mutex mutex;
  run_ranks(static_cast<int>(layout.ranks()), [&](Communicator& world) {
    Mesh mesh(world, MeshLayout({{"edp", layout.edp}, {"ep", layout.ep}, {"etp", layout.etp}}));
    // All ranks share one micro-batch here, as those of cp do.
    const Axis& all = mesh.joint({"edp", "ep", "etp"});
    ParallelContext parallel{.cp = &all,
                             .ep = &mesh["ep"],
                             .etp = &mesh["etp"],
                             .edp = &mesh["edp"],
                             .expert_group = &mesh.joint({"ep", "etp"})};
    Worker worker(options, parallel);
    int64_t mine = tokens / layout.ranks(), first = mine * world.rank();
    std::vector<int32_t> bounds = sequences.bounds;
    for (int32_t& b : bounds) b = static_cast<int32_t>(std::clamp<int64_t>(b - first, 0, mine));
    ModelInput input{.bounds = std::make_shared<const std::vector<int32_t>>(bounds),
                     .loss_weight = kWeight};
    if (!sequences.padding.empty())
      input.padding = std::make_shared<const std::vector<int32_t>>(
          sequences.padding.begin() + first, sequences.padding.begin() + first + mine);
    worker.lab.context().own_tokens =
        std::make_shared<const std::vector<RowRange>>(std::vector<RowRange>{{first, mine}});
    std::shared_ptr<Catcher> target;
    Tensor y;
    RouterRecord record;
    std::vector<StepFigure> figures;
    for (int step = 0; step < steps; ++step) {
      target = std::make_shared<Catcher>();
      worker.list.clear_gradients();
      Tensor own =
          make(worker.lab.context(), rows(x, first, mine, kWidth), {mine, kWidth}, DType::f32);
      own.set_node(target);
      y = (*worker.moe)(own, input, own);
      backward(y, make(worker.lab.context(), rows(dy, first, mine, kWidth), y.shape(), DType::f32));
      record = worker.moe->record();
      Moe* block = &*worker.moe;
      figures = end_moe_step(std::span(&block, 1), parallel, true);
    }
    Values got = values_of(y), grad = values_of(target->grad);
    std::lock_guard lock(mutex);
    std::copy(got.begin(), got.end(), out.y.begin() + first * kWidth);
    std::copy(grad.begin(), grad.end(), out.dx.begin() + first * kWidth);
    gather(worker.list, out);
    for (const StepFigure& figure : figures) out.figures.push_back(figure.value);
    for (const StateBuffer& buffer : worker.list.buffers()) {
      auto& all_ranks = out.buffers[buffer.name];
      CHECK((all_ranks.empty() || all_ranks == buffer.values));
      all_ranks = buffer.values;
    }
    out.record.terms.resize(record.terms.size());
    out.record.choices.resize(kExperts);
    for (size_t i = 0; i < record.terms.size(); ++i) out.record.terms[i] += record.terms[i];
    for (size_t i = 0; i < kExperts; ++i) out.record.choices[i] += record.choices[i];
    out.record.z += record.z;
    out.record.tokens += record.tokens;
  });
  return out;
}

/// The experts of gpt-oss.
MoeOptions biased(RouterRule rule) {
  MoeOptions options = options_of(rule, 0);
  options.expert_bias = options.logit_bias = true;
  options.swish = {.factor = 1.702f, .offset = 1, .limit = 0.7f};
  return options;
}

const Values kX = random_values(kTokens * kWidth, "x"), kDy = random_values(kTokens * kWidth, "dy");

std::vector<RouterRule> rules() {
  using Score = RouterRule::Score;
  return {{.top_k = 2},
          {.top_k = 1, .pre_softmax = true},
          {.score = Score::sigmoid, .top_k = 3, .scaling = 2.5, .groups = 4, .group_top_k = 2},
          {.score = Score::sqrt_softplus, .top_k = 2}};
}

TEST_CASE(
    "moe: value and every gradient are those of a plain loop over experts, with and without a "
    "capacity") {
  for (const RouterRule& rule : rules())
    for (int variant : {0, 1, 2, 3, 4}) {
      MoeOptions options = variant == 4 ? biased(rule) : options_of(rule, variant == 0 ? 0 : 6);
      options.shared_gate = variant == 1;
      if (variant == 2 || variant == 3) options.capacity.factor = 0.75;
      if (variant == 3) options.capacity.keep = ExpertCapacity::Keep::first;
      Outcome got = play(options, {}, kX, kDy);
      check_close(got.y, plain(got.values, kX, options), DType::f32, {.sums = 64}, "value");
      auto objective = [&](const Named& p, const Values& x) {
        Values y = plain(p, x, options);
        double sum = 0;
        for (size_t i = 0; i < y.size(); ++i) sum += kDy[i] * y[i];
        return sum;
      };
      // Along a random direction of each parameter, and of the stream.
      constexpr double kStep = 1e-6;
      auto check = [&](const std::string& name, const Values& gradient, auto&& moved) {
        Values direction = random_values(static_cast<int64_t>(gradient.size()), name);
        double want = (moved(direction, kStep) - moved(direction, -kStep)) / (2 * kStep), have = 0,
               size = 0;
        for (size_t i = 0; i < gradient.size(); ++i)
          have += gradient[i] * direction[i], size += std::fabs(gradient[i] * direction[i]);
        CHECK_MESSAGE(std::fabs(have - want) <= 2e-6 * (size + 1), name, ": ", have,
                      ", finite differences ", want);
      };
      check("x", got.dx, [&](const Values& d, double h) {
        Values x = kX;
        for (size_t i = 0; i < x.size(); ++i) x[i] += h * d[i];
        return objective(got.values, x);
      });
      for (const auto& [name, gradient] : got.gradients)
        check(name, gradient, [&, name = name](const Values& d, double h) {
          Named p = got.values;
          for (size_t i = 0; i < d.size(); ++i) p[name][i] += h * d[i];
          return objective(p, kX);
        });
    }
}

const RankLayout kLayouts[] = {{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {4, 1, 1}, {2, 2, 1},
                               {2, 1, 2}, {1, 2, 2}, {2, 2, 2}, {8, 1, 1}, {4, 2, 1}};

void check_same(const Outcome& got, const Outcome& one, int64_t ranks) {
  CHECK(got.values == one.values);
  check_close(got.y, one.y, DType::f32, {.sums = 32}, "value");
  check_close(got.dx, one.dx, DType::f32, {.sums = 64}, "gradient of the stream");
  for (const auto& [name, want] : one.gradients)
    check_close(got.gradients.at(name), want, DType::f32, {.sums = 64}, name);
  CHECK(got.record.choices == one.record.choices);
  for (size_t i = 0; i < one.record.terms.size(); ++i)
    CHECK(got.record.terms[i] == doctest::Approx(one.record.terms[i]).epsilon(1e-6));
  CHECK(got.record.z == doctest::Approx(one.record.z).epsilon(1e-6));
  CHECK(got.buffers == one.buffers);
  REQUIRE(static_cast<int64_t>(got.figures.size()) ==
          ranks * static_cast<int64_t>(one.figures.size()));
  for (size_t i = 0; i < got.figures.size(); ++i)
    CHECK(got.figures[i] == doctest::Approx(one.figures[i % one.figures.size()]).epsilon(1e-6));
}

TEST_CASE("moe: over ranks, biases and limits are those of one rank") {
  const MoeOptions options = biased({.top_k = 2});
  const Outcome one = play(options, {}, kX, kDy);
  for (const RankLayout& layout : kLayouts) {
    INFO("ep ", layout.ep, ", etp ", layout.etp, ", edp ", layout.edp);
    check_same(play(options, layout, kX, kDy), one, layout.ranks());
  }
}

TEST_CASE(
    "moe: over ranks, value, gradients, balancing losses and biases are those of one rank, step "
    "after step") {
  std::vector<BalanceTerm> terms = {{BalanceTerm::Over::micro_batch, 0.3, {}},
                                    {BalanceTerm::Over::sequence, 0.2, {}},
                                    {BalanceTerm::Over::given, 0.1, {}}};
  for (RouterRule rule : rules()) {
    MoeOptions options = options_of(rule);
    options.terms = terms;
    options.z_coefficient = 0.05;
    options.bias = true;
    options.bias_update_rate = 0.2;
    options.shared_gate = true;
    Outcome first = play(options, {}, kX, kDy), one = play(options, {}, kX, kDy, 3);
    CHECK(one.buffers.at("router.bias") != first.buffers.at("router.bias"));
    CHECK(one.y != first.y);  // the bias has moved choices
    for (const RankLayout& layout : kLayouts) {
      INFO("ep ", layout.ep, ", etp ", layout.etp, ", edp ", layout.edp);
      check_same(play(options, layout, kX, kDy, 3), one, layout.ranks());
    }
  }
}

TEST_CASE("moe: over ranks, the same choices find no place") {
  for (auto keep : {ExpertCapacity::Keep::best, ExpertCapacity::Keep::first}) {
    MoeOptions options = options_of({.top_k = 2});
    options.capacity = {keep, 0.75};
    Outcome one = play(options, {}, kX, kDy);
    for (const RankLayout& layout : kLayouts) {
      INFO("ep ", layout.ep, ", etp ", layout.etp, ", edp ", layout.edp);
      check_same(play(options, layout, kX, kDy), one, layout.ranks());
    }
  }
}

// The ends of the first and the last sequence.
const std::vector<int32_t> kPadding = {0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0,
                                       0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1};

/// The rows of tokens that are padding, or those that are not.
Values part(const Values& all, bool padding) {
  Values out;
  for (size_t i = 0; i < all.size(); ++i)
    if (kPadding[i / kWidth] == (padding ? 1 : 0)) out.push_back(all[i]);
  return out;
}

TEST_CASE("moe: padding does not take part, on one rank and over ranks") {
  RankLayout layouts[std::size(kLayouts) + 2] = {{1, 1, 1}, {1, 1, 8}};  // of 8, two only pad
  std::copy(std::begin(kLayouts), std::end(kLayouts), layouts + 2);
  for (int variant : {0, 1, 2, 3, 4, 5}) {
    MoeOptions options = options_of(rules()[variant % 2 == 0 ? 0 : 2], 0);
    options.z_coefficient = 0.05;
    options.bias = variant % 2 == 1;
    options.bias_update_rate = 0.2;
    if (variant < 2)
      options.terms = {{BalanceTerm::Over::micro_batch, 0.3, {}},
                       {BalanceTerm::Over::sequence, 0.2, {}},
                       {BalanceTerm::Over::given, 0.1, {}}};
    else
      options.capacity = {variant < 4 ? ExpertCapacity::Keep::best : ExpertCapacity::Keep::first,
                          0.75};
    // The same tokens without any padding.
    Outcome bare = play(options, {}, part(kX, false), part(kDy, false), 3, {{0, 4, 11, 15}, {}});
    Outcome one = play(options, {}, kX, kDy, 3, {kBounds, kPadding});
    CHECK(bare.record.tokens == 15);
    for (const RankLayout& layout : layouts) {
      INFO("variant ", variant, ", ep ", layout.ep, ", etp ", layout.etp, ", edp ", layout.edp);
      Outcome got = play(options, layout, kX, kDy, 3, {kBounds, kPadding});
      check_same(got, one, layout.ranks());
      CHECK(got.record.tokens == 15);
      CHECK(got.record.choices == bare.record.choices);
      CHECK(got.buffers == bare.buffers);
      for (size_t i = 0; i < bare.figures.size(); ++i)
        CHECK(got.figures[i] == doctest::Approx(bare.figures[i]).epsilon(1e-6));
      check_close(part(got.y, false), bare.y, DType::f32, {.sums = 32}, "value");
      check_close(part(got.dx, false), bare.dx, DType::f32, {.sums = 64}, "gradient");
      CHECK(part(got.y, true) == part(one.y, true));
      check_close(part(got.y, true), part(kX, true), DType::f32, {}, "the residual");
      check_close(part(got.dx, true), part(kDy, true), DType::f32, {}, "its gradient");
      for (const auto& [name, want] : bare.gradients)
        check_close(got.gradients.at(name), want, DType::f32, {.sums = 64}, name);
    }
  }
}

TEST_CASE("moe: the bias goes towards equal load, and stays where the step was skipped") {
  ParallelContext alone;
  MoeOptions options = options_of({.score = RouterRule::Score::sigmoid, .top_k = 1});
  options.bias = true;
  options.bias_update_rate = 0.25;
  Worker worker(options, alone);
  std::vector<double> sums(static_cast<size_t>(worker.moe->num_record_values()));
  sums[0] = 5, sums[1] = 3, sums[2] = 2, sums[3] = 2, sums[4] = 2, sums[5] = 2;  // a share is 2
  worker.moe->end_step(sums, false);
  CHECK(worker.list.buffers().front().values == std::vector<float>(kExperts, 0));
  worker.moe->end_step(sums, true);
  CHECK(worker.list.buffers().front().name == "router.bias");
  CHECK(worker.list.buffers().front().values ==
        std::vector<float>{-0.25f, -0.25f, 0, 0, 0, 0, 0.25f, 0.25f});
}

TEST_CASE("moe: ranks without any row of theirs take part") {
  // All tokens alike: everything goes to the same two experts.
  MoeOptions options = options_of({.top_k = 2}, 0);
  Values x, row = random_values(kWidth, "row");
  for (int64_t t = 0; t < kTokens; ++t) x.insert(x.end(), row.begin(), row.end());
  Outcome one = play(options, {}, x, kDy), got = play(options, {.ep = 8}, x, kDy);
  CHECK(std::count(one.record.choices.begin(), one.record.choices.end(), 0) == kExperts - 2);
  check_close(got.y, one.y, DType::f32, {.sums = 32}, "value");
  for (const auto& [name, want] : one.gradients)
    check_close(got.gradients.at(name), want, DType::f32, {.sums = 64}, name);
}

TEST_CASE("moe: recomputed, losses and gradients are the same and counted once") {
  for (const std::vector<int32_t>& padding : {std::vector<int32_t>(), kPadding}) {
    MoeOptions options = options_of({.top_k = 2});
    options.terms = {{BalanceTerm::Over::micro_batch, 0.3, {}}};
    Outcome want = play(options, {}, kX, kDy, 1, {kBounds, padding});
    ParallelContext alone;
    Worker worker(options, alone);
    ModelInput input{.bounds = std::make_shared<const std::vector<int32_t>>(kBounds),
                     .loss_weight = kWeight};
    if (!padding.empty()) input.padding = std::make_shared<const std::vector<int32_t>>(padding);
    Tensor x = make(worker.lab.context(), kX, {kTokens, kWidth}, DType::f32);
    Tensor y = recompute([&](const Tensor& in) { return (*worker.moe)(in, input, in); }, x);
    CHECK(values_of(y) == want.y);
    backward(y, make(worker.lab.context(), kDy, y.shape(), DType::f32));
    Outcome got;
    gather(worker.list, got);
    CHECK(got.gradients == want.gradients);
    CHECK(worker.moe->record().choices == want.record.choices);
    CHECK(worker.moe->record().terms == want.record.terms);
  }
}

TEST_CASE("moe: layouts that cannot be are refused with what to set") {
  auto refused = [](const ParallelContext& parallel, int64_t experts) {
    ParamList list;
    Fixture lab;
    BuildSettings settings{.ctx = lab.context(), .parameters = list};
    settings.parallel = &parallel;
    MoeOptions options = options_of({});
    options.experts = experts;
    Moe moe(Scope(settings), {"embed", kWidth}, options);
  };
  run_ranks(2, [&](Communicator& world) {
    Mesh mesh(world, MeshLayout({{"two", 2}}));
    const Axis* two = &mesh["two"];
    CHECK_THROWS_WITH_AS(refused({.tp = two}, 8), doctest::Contains("dist.sp=true"), Error);
    CHECK_THROWS_WITH_AS(refused({.ep = two, .expert_group = two}, 7), doctest::Contains("dist.ep"),
                         Error);
  });
  MoeSettings settings;
  settings.top_k = 9;
  CHECK_THROWS_WITH_AS(settings.options(8), doctest::Contains("top_k"), Error);
}

}  // namespace
}  // namespace mtrain
