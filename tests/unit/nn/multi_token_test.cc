// Multi-token prediction: the losses of the depths are those of the composition in the paper, the
// gradients those of the objective, on one rank and on several.
#include "mtrain/nn/multi_token.h"

#include <doctest/doctest.h>

#include <cmath>
#include <mutex>

#include "contract/harness.h"
#include "mtrain/autograd/multi_token_ops.h"
#include "mtrain/comm/thread_world.h"
#include "mtrain/nn/transformer_block.h"
#include "whole_gradients.h"

namespace mtrain {
namespace {

using namespace contract;

constexpr int64_t kPredictedVocab = 12, kPredictedWidth = 12;
const std::vector<int32_t> kIds = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3},
                           kTargets = {1, 4, -1, 5, 9, 2, 6, 5, 3, 7}, kDocuments = {0, 6, 7, 10};

DecoderSettings settings(int64_t depths, bool tied = false) {
  DecoderSettings c;
  c.layers = 2, c.hidden_size = kPredictedWidth, c.heads = 4, c.kv_heads = 2,
  c.ffn_hidden_size = 10;
  c.head_dim = 6, c.init_std = 0.4, c.tie_embeddings = tied;
  c.block.embedding_multiplier = 1.5;
  c.mtp.layers = depths, c.mtp.loss_coeff = 0.6;
  return c;
}

class Tiny final : public Decoder {
 public:
  Tiny(const DecoderSettings& c, const ModelContext& context)
      : Decoder(c, context, [&](const Scope& s, int64_t i, const RopeTable& rope) {
          return std::make_unique<TransformerBlock>(c, s, i, rope);
        }) {}
  double flops_per_token(int64_t) const override { return 0; }
};

/// The value `depth` places later in its sequence, or `none`.
std::vector<int32_t> later(const std::vector<int32_t>& values, int32_t depth, int32_t none) {
  std::vector<int32_t> out;
  for (size_t s = 0; s + 1 < kDocuments.size(); ++s)
    for (int32_t t = kDocuments[s]; t < kDocuments[s + 1]; ++t)
      out.push_back(t + depth < kDocuments[s + 1] ? values[static_cast<size_t>(t + depth)] : none);
  return out;
}

struct Rank {
  explicit Rank(const DecoderSettings& c, const Axis* tensor = nullptr, bool sequence = false,
                const BlockPlan& kept = {})
      : config(c), plan(kept) {
    parallel.tp = tensor, parallel.sequence_parallel = sequence;
  }
  void build() {
    model.emplace(config, ModelContext{.scope = Scope(build_settings),
                                       .stage = {},
                                       .vocab_size = kPredictedVocab,
                                       .valid_vocab = kPredictedVocab,
                                       .max_positions = 16});
    start();
  }
  void start() {
    list.allocate_gradients(lab.context());
    list.clear_gradients();
  }
  ModelInput input(int32_t depths, float weight = 0) {
    ExecutionContext& ctx = lab.context();
    std::vector<int32_t> positions;
    for (size_t s = 0; s + 1 < kDocuments.size(); ++s)
      for (int32_t t = kDocuments[s]; t < kDocuments[s + 1]; ++t)
        positions.push_back(t - kDocuments[s]);
    ModelInput in;
    in.tokens_T = make_ids(ctx, kIds), in.positions_T = make_ids(ctx, positions);
    in.targets_T = make_ids(ctx, kTargets), in.loss_weight = weight;
    in.bounds = std::make_shared<const std::vector<int32_t>>(kDocuments);
    for (int32_t k = 1; k <= depths; ++k) {
      const std::vector<int32_t> wanted = later(kTargets, k, -1);
      in.ahead.push_back({.tokens_T = make_ids(ctx, later(kIds, k, 0)),
                          .targets_T = make_ids(ctx, wanted),
                          .num_targets = std::count_if(wanted.begin(), wanted.end(),
                                                       [](int32_t t) { return t >= 0; })});
    }
    return in;
  }
  /// The losses of the next tokens. Leaves the gradients of the objective in the parameters.
  Values step(float weight, bool known = true) {
    Tensor losses =
        model->forward(input(static_cast<int32_t>(config.mtp.layers), known ? weight : 0), {});
    Values out = values_of(losses);
    backward(losses, make(lab.context(), Values(kIds.size(), static_cast<double>(weight)),
                          losses.shape(), DType::f32));
    return out;
  }
  Values figures() {
    Values out;
    for (const StepFigure& figure : model->end_step(true)) out.push_back(figure.value);
    return out;
  }

  DecoderSettings config;
  Fixture lab{1};
  ParallelContext parallel;
  BlockPlan plan;
  ParamList list;
  BuildSettings build_settings{
      .ctx = lab.context(), .parameters = list, .parallel = &parallel, .blocks = &plan};
  std::optional<Tiny> model;
};

double sum(const Values& values) {
  double out = 0;
  for (double value : values) out += value;
  return out;
}

/// The losses by the paper's equations, layer by layer, with parameters of the same names.
std::vector<Values> predictions_by_definition(Rank& rank, int32_t depths) {
  const DecoderSettings& c = rank.config;
  const Scope s(rank.build_settings);
  const Dim vocab{"vocab", kPredictedVocab};
  const NormOptions norm = c.block.norm_options(c.eps());
  ExecutionContext& ctx = rank.lab.context();
  const RopeTable rope = make_rope_table(ctx, c.rope, 16, 6);
  const ModelInput input = rank.input(depths);
  Embedding embed(s / "embed", vocab, c.embed(), c.std());
  auto embedded = [&](const Tensor& ids) { return scale(embed(ids), 1.5f); };
  Tensor x = embedded(input.tokens_T);
  for (int64_t i = 0; i < c.layers; ++i)
    x = TransformerBlock(c, s / "layers" / i, i, rope)(x, input);
  x = Norm(s / "norm", norm, c.embed())(x);
  const LmHead head(s / "head", vocab, c.embed(), kPredictedVocab, nullptr, c.std());
  std::vector<Values> out = {values_of(head(x, input))};
  for (int32_t k = 0; k < depths; ++k) {
    const TokensAhead& ahead = input.ahead[static_cast<size_t>(k)];
    const Scope d = s / "mtp" / k;
    Tensor e = Norm(d / "enorm", norm, c.embed())(embedded(ahead.tokens_T)),
           h = Norm(d / "hnorm", norm, c.embed())(x);
    const Linear project(d / "eh_proj", c.embed(), {"pair", 2 * kPredictedWidth}, {c.std()});
    x = TransformerBlock(c, d / "block", 1, rope)(project(join_columns(e, h)), input);
    x = Norm(d / "norm", norm, c.embed())(x);
    ModelInput own = input;
    own.targets_T = ahead.targets_T;
    out.push_back(values_of(head(x, own)));
  }
  return out;
}

TEST_CASE("multi-token prediction: the losses are those of the composition") {
  Rank rank(settings(2)), plain(settings(2));
  rank.build();
  const Values losses = rank.step(0.1f), figures = rank.figures();
  GradMode off(plain.lab.context(), false);
  const std::vector<Values> want = predictions_by_definition(plain, 2);
  check_close(losses, want[0], DType::f32, {.sums = 64}, "the next token");
  REQUIRE(figures.size() == 2);
  const double targets[] = {6, 4};  // of two sequences; the one of a single token has none
  for (size_t k = 0; k < 2; ++k)
    CHECK(figures[k] == doctest::Approx(sum(want[k + 1]) / targets[k]).epsilon(1e-5));
  CHECK(sum(rank.figures()) == 0);  // the next step begins with nothing
}

TEST_CASE("multi-token prediction: parameters have the names of the checkpoint") {
  Rank with(settings(1)), without(settings(0));
  with.build(), without.build();
  std::string names;
  for (const auto& p : with.list.all())
    if (!without.list.find(p.name)) names += p.name + " ";
  CHECK(names ==
        "mtp.0.enorm.weight mtp.0.hnorm.weight mtp.0.eh_proj.weight mtp.0.block.norm1.weight "
        "mtp.0.block.attn.qkv.weight mtp.0.block.attn.out.weight mtp.0.block.norm2.weight "
        "mtp.0.block.mlp.gate.weight mtp.0.block.mlp.up.weight mtp.0.block.mlp.down.weight "
        "mtp.0.norm.weight ");
}

TEST_CASE("multi-token prediction: without gradients the blocks do not run") {
  Rank with(settings(2)), without(settings(0));
  with.build(), without.build();
  auto evaluated = [](Rank& rank) {
    GradMode off(rank.lab.context(), false);
    return values_of(rank.model->forward(rank.input(0), {}));
  };
  CHECK(evaluated(with) == evaluated(without));
  CHECK(with.step(0.1f) == without.step(0.1f));
}

/// The objective, without recording anything of it.
double objective(Rank& rank, float weight) {
  rank.list.clear_gradients();
  const double own = sum(rank.step(weight));
  const Values figures = rank.figures();
  const double targets[] = {6, 4};
  double further = 0;
  for (size_t k = 0; k < figures.size(); ++k) further += figures[k] * targets[k];
  return static_cast<double>(weight) *
         (own + rank.config.mtp.loss_coeff / static_cast<double>(figures.size()) * further);
}

TEST_CASE("multi-token prediction: gradients are those of the objective") {
  for (bool tied : {false, true})
    for (bool known : {true, false}) {
      Rank rank(settings(2, tied));
      rank.build();
      rank.step(0.1f, known), rank.figures();
      std::vector<Values> gradients;
      for (const auto& p : rank.list.all()) gradients.push_back(values_of(p.main_grad));
      size_t i = 0;
      for (auto& p : rank.list.all()) {
        INFO(p.name);
        const Values& g = gradients[i++];
        double norm = 0;
        for (double v : g) norm += v * v;
        norm = std::sqrt(norm);
        REQUIRE(norm > 0);
        // Along the gradient of one parameter, the objective rises by its norm.
        const Values value = values_of(p.value);
        auto at = [&](double step) {
          std::vector<float> moved;
          for (size_t j = 0; j < value.size(); ++j)
            moved.push_back(static_cast<float>(value[j] + step * g[j] / norm));
          rank.lab.context().upload(p.value, moved.data());
          return objective(rank, 0.1f);
        };
        const double step = 2e-2, slope = (at(step) - at(-step)) / (2 * step);
        at(0);
        CHECK(slope == doctest::Approx(norm).epsilon(2e-2));
      }
    }
}

TEST_CASE("multi-token prediction: recomputation changes no bit") {
  Rank kept(settings(2)), again(settings(2), nullptr, false, {.full = true, .recompute_layers = 2}),
      first(settings(2), nullptr, false, {.full = true, .first_only = true, .recompute_layers = 9});
  for (Rank* rank : {&kept, &again, &first}) rank->build();
  const Values want = kept.step(0.1f);
  for (Rank* rank : {&again, &first}) {
    CHECK(rank->step(0.1f) == want);
    for (const auto& p : kept.list.all())
      CHECK(values_of(rank->list.find(p.name)->main_grad) == values_of(p.main_grad));
  }
}

/// A model in stages on one rank.
struct Stages {
  struct Stage {
    int64_t first_layer, num_layers;
  };
  Stages(const DecoderSettings& c, const std::vector<Stage>& stages, int64_t mtp_stage) : rank(c) {
    const auto count = static_cast<int64_t>(stages.size());
    for (int64_t s = 0; s < count; ++s) {
      const auto [first_layer, num_layers] = stages[static_cast<size_t>(s)];
      rank.list.begin_stage(s);
      models.push_back(std::make_unique<Tiny>(c, ModelContext{.scope = Scope(rank.build_settings),
                                                              .stage = {.first = s == 0,
                                                                        .last = s + 1 == count,
                                                                        .stage = s,
                                                                        .stages = count,
                                                                        .first_layer = first_layer,
                                                                        .num_layers = num_layers,
                                                                        .mtp_stage = mtp_stage},
                                                              .vocab_size = kPredictedVocab,
                                                              .valid_vocab = kPredictedVocab,
                                                              .max_positions = 16}));
    }
    rank.start();
  }
  Values step(float weight) {
    const ModelInput input = rank.input(static_cast<int32_t>(rank.config.mtp.layers), weight);
    std::vector<std::shared_ptr<Catcher>> borders;
    std::vector<Tensor> results;
    for (auto& model : models) {
      Tensor x = results.empty() ? Tensor() : results.back().detach();
      if (x.defined()) x.set_node(borders.emplace_back(std::make_shared<Catcher>()));
      results.push_back(model->forward(input, x));
    }
    const Values out = values_of(results.back());
    Tensor dy = make(rank.lab.context(), Values(kIds.size(), static_cast<double>(weight)),
                     results.back().shape(), DType::f32);
    for (size_t s = results.size(); s-- > 0;) {
      backward(results[s], dy);
      if (s > 0) dy = borders[s - 1]->grad;
    }
    return out;
  }
  Values evaluated() {
    GradMode off(rank.lab.context(), false);
    Tensor x;
    for (auto& model : models) x = model->forward(rank.input(0), x);
    return values_of(x);
  }
  Rank rank;
  std::vector<std::unique_ptr<Tiny>> models;
};

TEST_CASE("multi-token prediction: in another stage than the head, it computes the same") {
  const std::vector<std::vector<Stages::Stage>> divisions = {
      {{0, 2}, {2, 0}}, {{0, 1}, {1, 1}, {2, 0}}, {{0, 1}, {1, 1}, {2, 0}, {2, 0}}};
  for (int64_t depths : {1, 2})
    for (bool tied : {false, true})
      for (const auto& division : divisions) {
        INFO(depths, " depths, ", division.size(), " stages, tied: ", tied);
        Rank whole(settings(depths, tied));
        whole.build();
        const Values losses = whole.step(0.1f), means = whole.figures();
        std::map<std::string, Values> want, got;
        add_gradients(whole.list, want);
        const auto count = static_cast<int64_t>(division.size());
        Stages stages(settings(depths, tied), division, count - 2);
        CHECK(stages.step(0.1f) == losses);
        Values own(static_cast<size_t>(depths));
        for (auto& model : stages.models) {
          const auto figures = model->end_step(true);
          REQUIRE(figures.size() == own.size());
          for (size_t k = 0; k < own.size(); ++k) own[k] += figures[k].value;
        }
        CHECK(own == means);
        add_gradients(stages.rank.list, got);
        CHECK(got.size() == want.size());
        for (const auto& [name, gradient] : want)
          check_close(got[name], gradient, DType::f32, {.sums = 64}, name);
        GradMode off(whole.lab.context(), false);
        CHECK(stages.evaluated() == values_of(whole.model->forward(whole.input(0), {})));
      }
}

TEST_CASE("multi-token prediction: the parts of its own stage are norm and blocks") {
  Stages stages(settings(2, true), {{0, 1}, {1, 1}, {2, 0}}, 1);
  auto text = [&](size_t stage) {
    std::string out;
    for (const ComputedPart& part : stages.models[stage]->parts())
      out += cat(part.scope, "(", join(part.reads, " "), ") ");
    return out;
  };
  CHECK(text(0).empty());
  CHECK(text(1) == "layers.1() norm() mtp.0(embed) mtp.1(embed) ");
  CHECK(text(2) == "head(embed) ");
}

TEST_CASE("multi-token prediction: two ranks compute what one computes") {
  for (bool tied : {false, true}) {
    Rank one(settings(2, tied));
    one.build();
    const Values losses = one.step(0.1f), figures = one.figures();
    std::map<std::string, Values> want;
    add_gradients(one.list, want);
    for (bool sequence : {false, true}) {
      std::map<std::string, Values> got;
      std::mutex mutex;
      run_ranks(2, [&](Communicator& world) {
        Mesh mesh(world, MeshLayout({{"tp", 2}}));
        Rank rank(settings(2, tied), &mesh["tp"], sequence);
        rank.build();
        const Values own = rank.step(0.1f), means = rank.figures();
        const std::lock_guard lock(mutex);
        check_close(own, losses, DType::f32, {.sums = 64}, "losses");
        check_close(means, figures, DType::f32, {.sums = 64}, "figures");
        add_gradients(rank.list, got);
      });
      for (auto& [name, gradient] : want)
        check_close(got[name], gradient, DType::f32, {.sums = 512}, name);
    }
  }
}

}  // namespace
}  // namespace mtrain
