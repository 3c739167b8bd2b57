// Which steps a trainer lets its stream record.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>

#include "mtrain/train/trainer.h"
#include "mtrain/verify/twin.h"
#include "subjects.h"

using namespace mtrain;
using namespace mtrain::testing;

TEST_CASE("steps after the warm-up are recorded; those that are timed kernel by kernel are not") {
  fs::path folder = fs::temp_directory_path() / cat("mtrain-recording-", ::getpid());
  Recipe recipe = recipe_from_text(twin_recipe(recipe_of(subject_named("llama")), 4, 8), "the twin",
                                   fs::current_path(),
                                   {cat("run.dir=", folder.string()), "train.steps=8"}, plugins());
  for (bool on : {true, false}) {
    recipe.settings.cuda_graph.type =
        on ? "full_iteration"
           : "none";  // a rule refuses it on the CPU, whose stream records nothing
    recipe.settings.cuda_graph.warmup_steps = 2;
    Trainer trainer(recipe, plugins(), [] { return false; });
    auto recorded = [&] {
      StepMetrics metrics = trainer.step();
      return std::any_of(metrics.figures.begin(), metrics.figures.end(),
                         [](const auto& f) { return f.first == "graphs"; });
    };
    CHECK_FALSE(recorded());
    CHECK_FALSE(recorded());
    CHECK(recorded() == on);
    Profile profile(trainer.context().backend().kernels());
    trainer.set_profile(&profile);
    CHECK_FALSE(recorded());
    trainer.set_profile(nullptr);
    CHECK(recorded() == on);
  }
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}
