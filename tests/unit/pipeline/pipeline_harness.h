// A small language model that can be split into stages, and a pipeline of it on ranks that are
// threads. For the tests of the interpreter.
#pragma once
#include <map>
#include <mutex>
#include <string>

#include "contract/harness.h"
#include "mtrain/base/rng.h"
#include "mtrain/comm/thread_world.h"
#include "mtrain/nn/attention.h"
#include "mtrain/nn/layers.h"
#include "mtrain/nn/mlp.h"
#include "mtrain/nn/rope_table.h"
#include "mtrain/pipeline/interpreter.h"
#include "mtrain/pipeline/lower.h"
#include "mtrain/pipeline/split.h"

namespace mtrain::pipetest {

using contract::Fixture;
using contract::Values;

inline constexpr int64_t kVocab = 40, kWidth = 16, kLength = 9;

/// What is trained, and how it is split.
struct Setup {
  int64_t layers = 4, micro_batches = 4, rows = 1;
  std::string schedule = "1f1b";
  int64_t ranks = 1, virtual_stages = 1;
  int64_t first_stage_layers = 0;
  std::string layout;
  float drop = 0;
  bool recompute = false;
  DType dtype = DType::f32;
  StageLink::Options transfers = {};
  int64_t longer_rows_at = -1;  // this micro-batch has one row more
  Costs costs = {};             // of lower()
  bool adds_weight_actions = false, defer_head_wgrad = false, overlapped = false;
  int64_t deferred_head_limit = 0;

  Plan plan() const {
    return {.stages = ranks * virtual_stages,
            .micro_batches = micro_batches,
            .virtual_stages = virtual_stages};
  }
  StageMap map() const { return stage_map(schedule, plan()); }
};

/// y = x, with a pause either way.
struct Pause {
  std::shared_ptr<std::function<void()>> pause;
  void now() const {
    if (*pause) (*pause)();
  }
  Tensor forward(ExecutionContext&, const Tensor& x) {
    now();
    return x;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    now();
    g[0].give(ctx, dy);
  }
};

class StagedModel final : public Model {
 public:
  StagedModel(const Scope& s, const Setup& setup, StageRange stage)
      : drop_(setup.drop),
        recompute_(setup.recompute),
        table_(make_rope_table(s.context(), {}, kLength, 8)) {
    if (stage.first) embed_.emplace(s / "embed", Dim{"vocab", kVocab}, Dim{"embed", kWidth}, 0.5f);
    auto [begin, end] = stage.layers(setup.layers);
    for (int64_t i = begin; i < end; ++i)
      blocks_.push_back(std::make_unique<Block>(s / "layers" / i, &table_));
    if (stage.last)
      head_.emplace(s / "head", Dim{"vocab", kVocab}, Dim{"embed", kWidth}, kVocab, nullptr, 0.5f);
  }
  Tensor forward(const ModelInput& input, Tensor x) override {
    if (fail_at >= 0 && calls_++ == fail_at) throw Error(ErrorClass::bug, "it broke");
    if (embed_) x = (*embed_)(input.tokens_T);
    for (auto& block : blocks_) {
      auto forward_block = [this, &block, input](const Tensor& y) {
        return block->run(y, input, drop_);
      };
      x = recompute_ ? recompute(forward_block, x) : forward_block(x);
      if (pause) x = apply(Pause{pause}, x);
    }
    return head_ ? (*head_)(x, input) : x;
  }
  double flops_per_token(int64_t) const override { return 0; }
  int fail_at = -1;
  std::shared_ptr<std::function<void()>>
      pause;  // called between blocks, forwards and backwards, as during an exchange of tokens

 private:
  struct Block {
    Block(const Scope& s, const RopeTable* table)
        : norm(s / "norm", Norm::Kind::layer, {"embed", kWidth}, 1e-5f),
          attention(s / "attn", {"embed", kWidth},
                    {.layout = {2, 1, 8},
                     .bias = true,
                     .init_std = 0.3f,
                     .out_init_std = 0.3f,
                     .rope = table}),
          norm2(s / "norm2", Norm::Kind::rms, {"embed", kWidth}, 1e-5f),
          mlp(s / "mlp", {"embed", kWidth}, {"mlp", 24}, 0.3f, 0.3f),
          key(name_key(s.path())) {}
    Tensor run(const Tensor& x, const ModelInput& input, float drop) const {
      Tensor h = add(x, dropout(attention(norm(x), input), drop, key));
      return mlp(norm2(h), h);
    }
    Norm norm;
    Attention attention;
    Norm norm2;
    GatedMlp mlp;
    uint64_t key;
  };
  float drop_;
  bool recompute_;
  int calls_ = 0;
  RopeTable table_;
  std::optional<Embedding> embed_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::optional<LmHead> head_;
};

/// The results of a step: the same keys for every layout.
struct Outcome {
  std::vector<StepLoss> losses;  // by rank
  StepLoss evaluated;
  std::map<std::string, Values> gradients;
  std::vector<size_t> peak_activations;  // by rank, bytes
};

/// One rank: the models of its stages, and their dependencies.
class StagedRank {
 public:
  StagedRank(const Setup& setup, Communicator* ranks)
      : setup_(setup),
        settings_{.ctx = lab_.context(), .parameters = parameters_, .dtype = setup.dtype} {
    StageMap map = setup.map();
    int64_t rank = ranks ? ranks->rank() : 0;
    SplitRequest request{.layers = setup.layers,
                         .first_stage_layers = setup.first_stage_layers,
                         .layout = setup.layout};
    std::vector<StagePart> parts = split_layers(request, map);
    PipelinePlace place{.map = map,
                        .rank = rank,
                        .ranks = ranks,
                        .transfers = setup.transfers,
                        .during_token_exchange =
                            setup.overlapped ? std::make_shared<std::function<void()>>() : nullptr,
                        .defer_head_wgrad = setup.defer_head_wgrad,
                        .deferred_head_limit = setup.deferred_head_limit};
    for (int64_t s : map.stages_of(rank)) {
      const StagePart& part = parts[static_cast<size_t>(s)];
      models.push_back(
          std::make_unique<StagedModel>(Scope(settings_), setup,
                                        StageRange{part.embedding, part.head, s, map.stages(),
                                                   part.first_layer, part.num_layers}));
      place.stages.push_back(models.back().get());
    }
    interpreter.emplace(lab_.context(), place, parameters_);
    parameters_.allocate_gradients(lab_.context());
    Schedule schedule = make_schedule(setup.schedule, setup.plan());
    if (setup.adds_weight_actions) schedule = with_weight_actions(std::move(schedule));
    program = lower(schedule, map, setup.costs)[static_cast<size_t>(rank)];
    pause = place.during_token_exchange;
    for (auto& model : models) model->pause = pause;
  }

  ModelInput input(int64_t micro) {
    int64_t first = micro * setup_.rows,
            rows = setup_.rows + (micro == setup_.longer_rows_at ? 1 : 0);
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
    ExecutionContext& ctx = lab_.context();
    ctx.first_token = first * kLength;
    return {contract::make_ids(ctx, tokens), contract::make_ids(ctx, positions),
            contract::make_ids(ctx, targets), std::make_shared<const std::vector<int32_t>>(bounds)};
  }
  StepLoss step() {
    return interpreter->run(
        program, [this](int64_t m) { return input(m); }, 100, 1);
  }
  StepLoss evaluate() {
    return interpreter->evaluate(setup_.micro_batches, [this](int64_t m) { return input(m); });
  }
  ParamList& parameters() { return parameters_; }
  ExecutionContext& context() { return lab_.context(); }

 private:
  const Setup& setup_;
  Fixture lab_{1};
  ParamList parameters_;
  BuildSettings settings_;

 public:
  std::vector<std::unique_ptr<StagedModel>> models;
  std::optional<Interpreter> interpreter;
  std::shared_ptr<std::function<void()>> pause;
  Program program;
};

/// Two steps (the second must not see the first) and an evaluation between them, on as many thread
/// ranks as the setup says.
inline Outcome train(const Setup& setup) {
  Outcome out;
  out.losses.resize(static_cast<size_t>(setup.ranks));
  out.peak_activations.resize(out.losses.size());
  std::mutex guard;
  run_ranks(static_cast<int>(setup.ranks), [&](Communicator& ranks) {
    StagedRank rank(setup, setup.ranks > 1 ? &ranks : nullptr);
    rank.step();
    StepLoss evaluated = rank.evaluate(), loss = rank.step();
    std::lock_guard lock(guard);
    auto index = static_cast<size_t>(ranks.rank());
    out.losses[index] = loss;
    out.peak_activations[index] = rank.context().memory().at_peak()[MemoryUse::activations];
    if (index == 0) out.evaluated = evaluated;
    for (const Parameter& p : rank.parameters().all()) {
      bool fresh = out.gradients.emplace(p.name, contract::values_of(p.main_grad)).second;
      if (!fresh) throw Error(ErrorClass::bug, cat("two ranks have ", p.name));
    }
  });
  return out;
}

}  // namespace mtrain::pipetest
