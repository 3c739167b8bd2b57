// Parts of mixtures of experts that few models have: latent experts, sinkhorn balancing, jitter of
// the router's input, a router in bf16 or fp64, tokens sent by all-gather.
#include <string>

#include "moe_lab.h"
#include "mtrain/nn/moe_sinkhorn.h"

namespace mtrain {
namespace {

using namespace moe_lab;
using Score = RouterRule::Score;

struct MoeVariant {
  const char* name;
  MoeOptions options;
};

std::vector<MoeVariant> moe_variants() {
  const RouterRule two{.top_k = 2}, all{.top_k = 2, .pre_softmax = true},
      one{.score = Score::sigmoid, .top_k = 1};
  std::vector<MoeVariant> out = {{"latent", options_of(two)},
                                 {"latent, alone", options_of(one, 0)},
                                 {"latent, with biases", biased(two)},
                                 {"sinkhorn", options_of(all)},
                                 {"sinkhorn, one expert", options_of(one, 0)},
                                 {"jitter", options_of(two)},
                                 {"router in fp64", biased(two)},
                                 {"all of them", options_of(all)}};
  for (MoeVariant& v : out) {
    const std::string name = v.name;
    const bool whole = name == "all of them";
    if (name.starts_with("latent") || whole) v.options.latent = 6;
    v.options.sinkhorn = name.starts_with("sinkhorn") || whole;
    if (name == "jitter" || whole) v.options.jitter = 0.3f;
    if (name == "router in fp64" || whole) v.options.router_dtype = DType::f64;
    v.options.shared_overlap = whole;
    if (name == "latent") v.options.capacity.factor = 0.75;
  }
  return out;
}

TEST_CASE("moe parts: value and every gradient are those of a plain loop over experts") {
  for (const MoeVariant& v : moe_variants()) {
    INFO(v.name);
    check_against_plain(v.options);
  }
}

TEST_CASE("moe parts: each of them changes the result") {
  const Outcome plain_one = play(options_of({.top_k = 2, .pre_softmax = true}), {}, kX, kDy);
  for (int part : {0, 1, 2, 3, 4}) {
    MoeOptions options = options_of({.top_k = 2, .pre_softmax = true});
    if (part == 0) options.latent = kWidth;
    if (part == 1) options.sinkhorn = true;
    if (part == 2) options.jitter = 0.3f;
    if (part == 3) options.router_dtype = DType::bf16;
    if (part == 4) options.router_dtype = DType::f64;
    CHECK(play(options, {}, kX, kDy).y != plain_one.y);
  }
}

TEST_CASE("moe parts: over ranks, they are those of one rank, by all-to-all and by all-gather") {
  std::vector<MoeVariant> all = moe_variants();
  all.push_back({"plain", options_of({.top_k = 2})});
  all.push_back({"router in bf16", options_of({.top_k = 2})});
  all.back().options.router_dtype = DType::bf16;
  all.push_back({"losses", options_of({.top_k = 2})});
  all.back().options.terms = {{BalanceTerm::Over::micro_batch, 0.3, {}},
                              {BalanceTerm::Over::sequence, 0.2, {}}};
  all.back().options.z_coefficient = 0.05;
  for (MoeVariant& v : all) {
    const Outcome one = play(v.options, {}, kX, kDy);
    for (bool gather : {false, true}) {
      v.options.gather_tokens = gather;
      for (const RankLayout& layout : kLayouts) {
        INFO(v.name, ", gather ", gather, ", ep ", layout.ep, ", etp ", layout.etp, ", edp ",
             layout.edp);
        check_same(play(v.options, layout, kX, kDy), one, layout.ranks());
      }
    }
  }
}

const std::vector<int32_t> kPadded = {0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0,
                                      0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1};

TEST_CASE("moe parts: padding takes no part in sinkhorn's assignment, nor in an all-gather") {
  auto part = [](const Values& all) {
    Values out;
    for (size_t i = 0; i < all.size(); ++i)
      if (kPadded[i / kWidth] == 0) out.push_back(all[i]);
    return out;
  };
  for (bool sinkhorn : {true, false}) {
    MoeOptions options = options_of({.top_k = 2, .pre_softmax = true}, 0);
    options.sinkhorn = sinkhorn;
    const Outcome bare = play(options, {}, part(kX), part(kDy), 1, {{0, 4, 11, 15}, {}});
    options.gather_tokens = true;
    for (const RankLayout& layout : {RankLayout{1, 1, 1}, {8, 1, 1}, {2, 2, 2}, {1, 1, 8}}) {
      INFO("ep ", layout.ep, ", etp ", layout.etp, ", edp ", layout.edp);
      const Outcome got = play(options, layout, kX, kDy, 1, {kBounds, kPadded});
      check_close(part(got.y), bare.y, DType::f32, {.sums = 32}, "value");
      check_close(part(got.dx), bare.dx, DType::f32, {.sums = 64}, "gradient");
      CHECK(got.record.choices == bare.record.choices);
      for (const auto& [name, want] : bare.gradients)
        check_close(got.gradients.at(name), want, DType::f32, {.sums = 64}, name);
    }
  }
}

TEST_CASE("moe parts: padded to their capacity, experts give the same result in one product") {
  const Outcome all_tokens = play(options_of({.top_k = 2}), {}, kX, kDy);
  for (double factor : {0.75, 4.0})
    for (bool gather : {false, true}) {
      MoeOptions options = options_of({.top_k = 2});
      options.capacity.factor = factor;
      const Outcome bare = play(options, {}, kX, kDy);
      CHECK((bare.y == all_tokens.y) == (factor == 4));
      options.capacity.pad = true;
      options.gather_tokens = gather;
      check_against_plain(options);
      check_same(play(options, {}, kX, kDy), bare, 1);
      for (const RankLayout& layout : kLayouts) {
        INFO("factor ", factor, ", gather ", gather, ", ep ", layout.ep, ", etp ", layout.etp,
             ", edp ", layout.edp);
        check_same(play(options, layout, kX, kDy), bare, layout.ranks());
        const Outcome padded = play(options, layout, kX, kDy, 1, {kBounds, kPadded});
        options.capacity.pad = false;
        check_same(padded, play(options, {}, kX, kDy, 1, {kBounds, kPadded}), layout.ranks());
        options.capacity.pad = true;
      }
    }
}

TEST_CASE("moe parts: recomputed, they give the same bits") {
  for (const MoeVariant& v : moe_variants()) {
    INFO(v.name);
    const Outcome want = play(v.options, {}, kX, kDy);
    ParallelContext alone;
    Worker worker(v.options, alone);
    ModelInput input{.bounds = std::make_shared<const std::vector<int32_t>>(kBounds),
                     .loss_weight = kWeight};
    Tensor x = make(worker.lab.context(), kX, {kTokens, kWidth}, DType::f32);
    Tensor y = recompute([&](const Tensor& in) { return (*worker.moe)(in, input, in); }, x);
    CHECK(values_of(y) == want.y);
    backward(y, make(worker.lab.context(), kDy, y.shape(), DType::f32));
    Outcome got;
    gather(worker.list, got);
    CHECK(got.gradients == want.gradients);
  }
}

TEST_CASE("moe parts: in evaluation, experts are selected by score, and nothing is random") {
  MoeOptions options = options_of({.top_k = 2, .pre_softmax = true});
  ParallelContext alone;
  auto evaluated = [&] {
    Worker worker(options, alone);
    worker.lab.context().training = false;
    GradMode off(worker.lab.context(), false);
    Tensor x = make(worker.lab.context(), kX, {kTokens, kWidth}, DType::f32);
    return values_of((*worker.moe)(x, {}, x));
  };
  const Values want = evaluated();
  options.sinkhorn = true;
  options.jitter = 0.3f;
  CHECK(evaluated() == want);
}

TEST_CASE("sinkhorn: the assignment is the published one and gives every expert the same mass") {
  constexpr size_t kMany = 96, kFew = 6;
  // Two experts are preferred by all tokens.
  Values z = random_values(kMany * kFew, "z");
  for (size_t i = 0; i < z.size(); ++i) z[i] += i % kFew < 2 ? 3 : 0;
  const std::vector<double> got = sinkhorn(z, kFew);
  const Values want = published_sinkhorn(z, kFew);
  double worst = 0;
  Values mass(kFew), chosen(kFew), before(kFew);
  for (size_t i = 0; i < got.size(); ++i) {
    worst = std::max(worst, std::fabs(got[i] - want[i]) * kMany * kFew);
    mass[i % kFew] += got[i];
  }
  CHECK(worst < 1e-5);
  for (double m : mass) CHECK(m == doctest::Approx(1.0 / kFew).epsilon(1e-6));
  each_token(got, kFew, [&](size_t, const Values& row) { chosen[largest(row, 1)[0]] += 1; });
  each_token(z, kFew, [&](size_t, const Values& row) { before[largest(row, 1)[0]] += 1; });
  CHECK(*std::max_element(before.begin(), before.end()) > kMany / 3.0);
  CHECK(*std::max_element(chosen.begin(), chosen.end()) < 2 * kMany / 6.0);
}

TEST_CASE("sinkhorn: large logits stay finite, and it ends where it cannot settle") {
  std::vector<double> logits = {500, -500, 400, 0, -300, 300};
  for (double p : sinkhorn(logits, 3)) CHECK(std::isfinite(p));
  logits[1] = std::numeric_limits<double>::quiet_NaN();
  CHECK(sinkhorn(logits, 3).size() == logits.size());
  CHECK(sinkhorn({}, 3).empty());
}

TEST_CASE("moe settings: parts reach the options") {
  MoeSettings settings;
  settings.latent_size = 48;
  settings.dispatcher = "allgather";
  settings.router.balancing = {"sinkhorn"};
  settings.router.jitter = 0.125;
  settings.router.dtype = "bf16";
  settings.capacity_factor = 1.5;
  settings.pad_to_capacity = true;
  const MoeOptions options = settings.options(64);
  CHECK(options.latent == 48);
  CHECK(options.gather_tokens);
  CHECK(options.sinkhorn);
  CHECK(options.terms.empty());
  CHECK(options.jitter == 0.125f);
  CHECK(options.router_dtype == DType::bf16);
  CHECK(options.capacity.pad);
  const MoeOptions plain_one = MoeSettings().options(64);
  CHECK(!plain_one.sinkhorn);
  CHECK(!plain_one.gather_tokens);
  CHECK(plain_one.router_dtype == DType::f32);
  settings.router.dtype = "fp64";
  CHECK(settings.options(64).router_dtype == DType::f64);
}

}  // namespace
}  // namespace mtrain
