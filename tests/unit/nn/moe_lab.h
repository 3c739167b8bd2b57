// A mixture of experts as a plain loop over experts in double, and a lab that runs one over ranks.
// Stateless.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "contract/harness.h"
#include "contract/router_reference.h"
#include "mtrain/autograd/noise_ops.h"
#include "mtrain/base/rng.h"
#include "mtrain/comm/thread_world.h"
#include "mtrain/nn/moe_settings.h"
#include "mtrain/nn/moe_step.h"

namespace mtrain::moe_lab {

using namespace contract;

inline constexpr int64_t kTokens = 24, kWidth = 10, kFfn = 8, kExperts = 8;
inline const std::vector<int32_t> kBounds = {0, 6, 13, 24};
inline constexpr uint64_t kSeed = 11;
inline constexpr float kWeight = 0.125f;

inline MoeOptions options_of(RouterRule rule, int64_t shared = 6) {
  return {.experts = kExperts,
          .ffn = kFfn,
          .shared_ffn = shared,
          .rule = rule,
          .terms = {},
          .init_std = 0.4f,
          .out_init_std = 0.4f};
}

using Named = std::map<std::string, Values>;  // whole tensors

inline Values rows(const Values& v, int64_t begin, int64_t count, int64_t width) {
  return Values(v.begin() + begin * width, v.begin() + (begin + count) * width);
}

inline Values gated(const Values& x, const Values& gate, const Values& up, const Values& down,
                    int64_t tokens, int64_t ffn) {
  Values a = reference::linear(x, gate, {}, tokens, kWidth, ffn),
         b = reference::linear(x, up, {}, tokens, kWidth, ffn);
  return reference::linear(reference::silu_mul(a, b), down, {}, tokens, ffn, kWidth);
}

/// The width of what experts read and write.
inline int64_t space_of(const MoeOptions& o) { return o.latent > 0 ? o.latent : kWidth; }

/// One expert and one token.
inline Values expert(const Named& p, const Values& x, const MoeOptions& o, size_t e) {
  const auto i = static_cast<int64_t>(e), space = space_of(o);
  auto matrix = [&](const char* name) { return rows(p.at(name), i, 1, kFfn * space); };
  auto bias = [&](const char* name, int64_t width) {
    return o.expert_bias ? rows(p.at(name), i, 1, width) : Values();
  };
  Values a = reference::linear(x, matrix("experts.gate.weight"), bias("experts.gate.bias", kFfn), 1,
                               space, kFfn),
         b = reference::linear(x, matrix("experts.up.weight"), bias("experts.up.bias", kFfn), 1,
                               space, kFfn);
  const double limit = o.swish.limit > 0 ? static_cast<double>(o.swish.limit) : 1e300;
  for (size_t j = 0; j < a.size(); ++j) {
    const double g = std::min(a[j], limit), u = std::clamp(b[j], -limit, limit);
    a[j] = g / (1 + std::exp(-g * static_cast<double>(o.swish.factor))) *
           (u + static_cast<double>(o.swish.offset));
  }
  return reference::linear(a, matrix("experts.down.weight"), bias("experts.down.bias", space), 1,
                           kFfn, space);
}

struct Choice {
  int64_t token;
  size_t expert;
  double weight;
};

/// Those that find a place among `places` of each expert.
inline std::vector<Choice> kept(std::vector<Choice> all, int64_t places,
                                ExpertCapacity::Keep keep) {
  if (keep == ExpertCapacity::Keep::best)
    std::stable_sort(all.begin(), all.end(),
                     [](const Choice& a, const Choice& b) { return a.weight > b.weight; });
  std::map<size_t, int64_t> taken;
  std::erase_if(all, [&](const Choice& c) { return ++taken[c.expert] > places; });
  return all;
}

/// The assignment of sinkhorn balancing as Megatron-LM publishes it, with its tolerances.
inline Values published_sinkhorn(const Values& z, size_t experts) {
  const size_t tokens = z.size() / experts;
  Values cost = z, d0(tokens, 1), d1(experts, 1);
  for (double& c : cost) c = std::exp(c);
  for (double error = 1e9; error > 1e-4;) {
    const Values before = d1;
    for (size_t t = 0; t < tokens; ++t) {
      double sum = 0;
      for (size_t e = 0; e < experts; ++e) sum += d1[e] * cost[t * experts + e];
      d0[t] = 1 / static_cast<double>(tokens) / (sum + 1e-8);
    }
    error = 0;
    for (size_t e = 0; e < experts; ++e) {
      double sum = 0;
      for (size_t t = 0; t < tokens; ++t) sum += d0[t] * cost[t * experts + e];
      d1[e] = 1 / static_cast<double>(experts) / (sum + 1e-8);
      error += std::fabs(before[e] - d1[e]) / static_cast<double>(experts);
    }
  }
  for (size_t i = 0; i < cost.size(); ++i) cost[i] *= d0[i / experts] * d1[i % experts];
  return cost;
}

inline std::vector<Choice> choices_of(const Values& z, const MoeOptions& o) {
  std::vector<Choice> all;
  const Values ranks = o.sinkhorn ? published_sinkhorn(z, kExperts) : Values();
  each_token(z, kExperts, [&](size_t t, const Values& row) {
    auto chosen = o.sinkhorn
                      ? largest(rows(ranks, static_cast<int64_t>(t), 1, kExperts), o.rule.top_k)
                      : router_choice(row, o.rule, true);
    Values weight = chosen_weights(row, o.rule, chosen);
    for (size_t j = 0; j < chosen.size(); ++j)
      all.push_back({static_cast<int64_t>(t), chosen[j], weight[j]});
  });
  if (!o.capacity.factor) return all;
  return kept(all, max_tokens_per_expert(*o.capacity.factor, kTokens, o.rule.top_k, kExperts),
              o.capacity.keep);
}

/// x, each element times its random factor.
inline Values jittered(const Values& x, double eps) {
  Values out = x;
  for (size_t i = 0; i < x.size(); ++i) {
    double u = std::ldexp(0.5, -kUniformBits);
    for (int bit = 1; bit <= kUniformBits; ++bit) {
      RngStream stream(kSeed, name_key("router.jitter") + static_cast<uint64_t>(bit));
      if (stream.uniform(i) >= 0.5f) u += std::ldexp(1, -bit);
    }
    out[i] *= 1 - eps + 2 * eps * u;
  }
  return out;
}

/// One expert and one token after another.
inline Values plain(const Named& p, const Values& x, const MoeOptions& o) {
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
  const int64_t space = space_of(o);
  const Values sent =
      o.latent > 0 ? reference::linear(x, p.at("latent_in.weight"), {}, kTokens, kWidth, space) : x;
  Values z = reference::linear(
      o.jitter > 0 ? jittered(x, static_cast<double>(o.jitter)) : x, p.at("router.weight"),
      o.logit_bias ? p.at("router.logit_bias") : Values(), kTokens, kWidth, kExperts);
  Values sum(static_cast<size_t>(kTokens * space));
  for (const Choice& choice : choices_of(z, o)) {
    Values out = expert(p, rows(sent, choice.token, 1, space), o, choice.expert);
    for (int64_t c = 0; c < space; ++c)
      sum[static_cast<size_t>(choice.token * space + c)] +=
          choice.weight * out[static_cast<size_t>(c)];
  }
  if (o.latent > 0)
    sum = reference::linear(sum, p.at("latent_out.weight"), {}, kTokens, space, kWidth);
  for (size_t i = 0; i < y.size(); ++i) y[i] += sum[i];
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
  Fixture lab{1, kSeed};
  ParamList list;
  BuildSettings settings;
  std::optional<Moe> moe;
};

/// Adds what a rank has of each parameter to the whole; values are written instead.
inline void gather(const ParamList& list, Outcome& out) {
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
inline Outcome play(const MoeOptions& options, const RankLayout& layout, const Values& x,
                    const Values& dy, int steps = 1, const Sequences& sequences = {}) {
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
inline MoeOptions biased(RouterRule rule) {
  MoeOptions options = options_of(rule, 0);
  options.expert_bias = options.logit_bias = true;
  options.swish = {.factor = 1.702f, .offset = 1, .limit = 0.7f};
  return options;
}

inline const Values kX = random_values(kTokens * kWidth, "x"),
                    kDy = random_values(kTokens * kWidth, "dy");

inline std::vector<RouterRule> rules() {
  using Score = RouterRule::Score;
  return {{.top_k = 2},
          {.top_k = 1, .pre_softmax = true},
          {.score = Score::sigmoid, .top_k = 3, .scaling = 2.5, .groups = 4, .group_top_k = 2},
          {.score = Score::sqrt_softplus, .top_k = 2}};
}

inline const RankLayout kLayouts[] = {{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {4, 1, 1}, {2, 2, 1},
                                      {2, 1, 2}, {1, 2, 2}, {2, 2, 2}, {8, 1, 1}, {4, 2, 1}};

inline void check_same(const Outcome& got, const Outcome& one, int64_t ranks) {
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

/// Compares value and every gradient with the plain loop over experts and its finite differences.
inline void check_against_plain(const MoeOptions& options) {
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

}  // namespace mtrain::moe_lab
