// The bytes that rank 0 sends in a step of a whole training run, for tests that compare them with
// theory.
#pragma once
#include <doctest/doctest.h>
#include <unistd.h>

#include <map>

#include "mtrain/optim/bucket_plan.h"
#include "mtrain/recipe/pipeline_plan.h"
#include "mtrain/train/memory_plan.h"
#include "mtrain/verify/run.h"
#include "mtrain/verify/twin.h"
#include "subjects.h"

namespace mtrain::testing {

struct Sent {
  int64_t layers, hidden, tokens,
      micro_batches;                        // tokens: of one micro-batch of a data-parallel rank
  std::map<std::string, int64_t> elements;  // of each parameter
  std::map<std::string, CommCounters> along;
  InnerStepRules rules;
  Program program;       // of the first rank, without transfers
  InnerStepLists steps;  // of the first rank's program, as `mtrain check --memory --schedule steps`
                         // shows it
  InnerStepLists planned;  // the same without --memory

  /// The number of such steps in the lists.
  int64_t count(InnerStepKind what, bool backward) const {
    int64_t found = 0;
    for (const InnerSteps& list : steps)
      found += std::count_if(list.begin(), list.end(), [&](const InnerStep& step) {
        return step.what == what && step.backward == backward;
      });
    return found;
  }
  /// Elements that the gathers of the program and of its lists bring, over n ranks.
  int64_t gathered(int64_t n) const {
    auto units = padded(n, false);
    auto size = [&](PartId id) {
      const ModelPart& part =
          rules.stages[static_cast<size_t>(id.stage)][static_cast<size_t>(id.index)];
      return units.at(part.block             ? "layers." + part.name
                      : part.name == "embed" ? "before"
                                             : "behind");
    };
    int64_t sum = 0;
    for (const Action& a : program)
      if (a.what == ActionKind::gather_params)
        for (size_t i = 0; i < rules.stages[static_cast<size_t>(a.stage)].size(); ++i)
          sum += size({a.stage, static_cast<int16_t>(i)});
    for (const InnerSteps& list : steps)
      for (const InnerStep& step : list)
        if (step.what == InnerStepKind::gather) sum += size(step.part);
    return sum;
  }

  /// Bytes that the reductions of the lists send.
  int64_t reduced(bool expert = false) const {
    int64_t sum = 0;
    for (const InnerSteps& list : steps)
      for (const InnerStep& step : list) {
        if (step.what != InnerStepKind::reduce) continue;
        const GradientBucket& bucket = rules.buckets[static_cast<size_t>(step.bucket)];
        if (bucket.expert == expert) sum += bucket.sent;
      }
    return sum;
  }

  int64_t bytes(const std::string& axis, CommKind kind) const {
    return along.at(axis)[kind].bytes_sent;
  }

  /// Elements of the parameters whose names hold `part`.
  int64_t elements_of(const std::string& part = "") const {
    int64_t sum = 0;
    for (const auto& [name, count] : elements)
      if (name.find(part) != std::string::npos) sum += count;
    return sum;
  }

  /// Names of the core's models: tables and their norm, and a head's bias that is gathered with the
  /// table.
  static bool before_blocks(const std::string& name) {
    return name.starts_with("embed") || name.starts_with("positions") ||
           name.starts_with("segments") || name == "head.bias";
  }

  /// Elements of the dense parameters in buckets that are sharded over n ranks, by the first name
  /// of each block: every parameter and every shard begins at a multiple of 32 elements. `whole`:
  /// all in one bucket.
  std::map<std::string, int64_t> padded(int64_t n, bool whole) const {
    auto round_up = [](int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; };
    std::map<std::string, int64_t> units;
    for (const auto& [name, count] : elements) {
      if (name.find(".experts.") != std::string::npos) continue;
      std::string block(block_of(name));
      if (block.empty()) block = before_blocks(name) ? "before" : "behind";
      units[whole ? "all" : block] += round_up(count, kBucketAlignment);
    }
    for (auto& [block, count] : units) count = round_up(count, n * kBucketAlignment);
    return units;
  }
};

/// Sends of the second step of the subject's twin, with changes to its recipe.
inline Sent sent_in(const std::vector<std::string>& changes, std::string_view subject = "llama") {
  constexpr int64_t kRanks = 4;
  std::vector<std::string> all = changes;
  std::string folder = (fs::temp_directory_path() / cat("mtrain-bytes-", ::getpid())).string();
  all.push_back("run.dir=" + folder);
  Recipe recipe = recipe_from_text(twin_recipe(recipe_of(subject_named(subject)), kRanks, 2),
                                   "the twin", fs::current_path(), all, plugins());
  LayoutFigures figures = run_layout(recipe, plugins(), {.steps = 2});
  fs::remove_all(folder);
  const Node& root = recipe.config.root();
  const Settings& s = recipe.settings;
  Sent sent{.layers = root.find("model.layers")->as_int(),
            .hidden = root.find("model.hidden_size")->as_int(),
            .tokens = s.train.micro_batch_size * s.model.seq_length,
            .micro_batches = s.micro_batches(),
            .elements = {},
            .along = figures.sent,
            .rules = {},
            .program = {},
            .steps = {},
            .planned = {}};
  PipelinePlan plan = pipeline_plan(recipe);
  sent.rules = plan_memory(recipe, plugins()).steps[0];
  sent.program = plan.schedule[0];
  sent.steps = expand_steps(plan.schedule[0], sent.rules);
  sent.planned = expand_steps(plan.schedule[0], plan.steps);
  auto without_buckets = [&](InnerStepRules rules) {
    rules.buckets.clear();
    return expand_steps(sent.program, rules);
  };
  CHECK(without_buckets(plan.steps) ==
        without_buckets(sent.rules));  // only their sizes are guessed
  for (const auto& [name, tensor] : figures.gradients)
    sent.elements[name] = static_cast<int64_t>(tensor.values.size());
  return sent;
}

}  // namespace mtrain::testing
