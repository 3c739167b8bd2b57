// A mixture of experts against a plain loop over experts in double, and over ranks against one
// rank.
#include "mtrain/nn/moe.h"

#include "moe_lab.h"

namespace mtrain {
namespace {

using namespace moe_lab;

TEST_CASE(
    "moe: value and every gradient are those of a plain loop over experts, with and without a "
    "capacity") {
  for (const RouterRule& rule : rules())
    for (int variant : {0, 1, 2, 3, 4}) {
      MoeOptions options = variant == 4 ? biased(rule) : options_of(rule, variant == 0 ? 0 : 6);
      options.shared_gate = variant == 1;
      if (variant == 2 || variant == 3) options.capacity.factor = 0.75;
      if (variant == 3) options.capacity.keep = ExpertCapacity::Keep::first;
      check_against_plain(options);
    }
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
