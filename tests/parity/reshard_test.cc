// A checkpoint of any layout goes on in any other: what is loaded and saved again has the same
// digest.
#include <doctest/doctest.h>
#include <unistd.h>

#include <functional>
#include <mutex>
#include <optional>

#include "mtrain/checkpoint/digest.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/launch/job.h"
#include "mtrain/train/trainer.h"
#include "mtrain/verify/layouts.h"
#include "mtrain/verify/twin.h"
#include "subjects.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

constexpr int64_t kSteps = 2;

class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& name)
      : path_(fs::temp_directory_path() / cat("mtrain-", name, "-", ::getpid())) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

/// The twin of a subject in one layout, with its checkpoints in `folder`.
Recipe laid_out(const Subject& subject, const RankLayout& layout, int64_t steps,
                const fs::path& folder, const std::string& resume) {
  Recipe whole = recipe_of(subject);
  std::vector<std::string> changes = overrides(layout);
  changes.push_back(cat("run.dir=", folder.string()));
  changes.push_back(cat("checkpoint.resume=", resume));
  changes.push_back(cat("train.steps=", steps));
  return recipe_from_text(twin_recipe(whole, 4, kSteps), "the twin", fs::current_path(), changes,
                          plugins());
}

/// Builds the recipe's ranks, which resume where there is something, and lets each do `work`.
void each_rank(Recipe recipe, const std::function<void(Trainer&, bool first)>& work) {
  std::mutex turn;
  run_job(recipe, plugins(), [&](Communicator& ranks) {
    RankMesh mesh(recipe, ranks);
    std::optional<Trainer> trainer;
    build_in_turn(ranks, turn, [&] {
      trainer.emplace(
          recipe, plugins(), [] { return false; }, mesh);
    });
    work(*trainer, mesh.first());
  });
}

std::string digest_of(const fs::path& checkpoints) {
  return checkpoint_digest(checkpoints / cat("step-", kSteps));
}

/// One rank, and of 2 and 4 ranks layouts that differ much.
std::vector<RankLayout> pool(const Subject& subject) {
  std::vector<RankLayout> out = {RankLayout{}};
  std::string twin = twin_recipe(recipe_of(subject), 4, kSteps);
  for (int64_t ranks : {2, 4})
    for (const auto& layout : pairwise(list_layouts(twin, plugins(), ranks).valid))
      if (layout.recompute == "none" && out.size() < 9) out.push_back(layout);
  return out;
}

/// Saves in `from`; then in each of `pool` loads that, saves it again and makes one step more.
size_t reshard(const Subject& subject, const RankLayout& from,
               const std::vector<RankLayout>& pool) {
  ScratchFolder scratch("reshard");
  each_rank(laid_out(subject, from, kSteps, scratch / "run", "never"),
            [](Trainer& trainer, bool) { trainer.run(); });
  const std::string saved = digest_of(scratch / "run" / "checkpoints");
  double next_loss = 0;
  size_t pairs = 0;
  for (const auto& to : pool) {
    CAPTURE(std::string(subject.name));
    CAPTURE(text(from));
    CAPTURE(text(to));
    double loss = 0;
    each_rank(laid_out(subject, to, kSteps + 1, scratch / "run", "must"),
              [&](Trainer& trainer, bool first) {
                trainer.save_copy(scratch / "copy");
                StepMetrics metrics = trainer.step();
                if (first) loss = metrics.loss;
              });
    CHECK(digest_of(scratch / "copy") == saved);
    if (next_loss == 0) next_loss = loss;
    CHECK(loss ==
          doctest::Approx(next_loss).epsilon(1e-6));  // the same samples, from the same weights
    fs::remove_all(scratch / "copy");
    ++pairs;
  }
  return pairs;
}

}  // namespace

TEST_CASE(
    "what one layout saved another loads: saved again it has the same digest, and the next loss is "
    "the same") {
  size_t pairs = 0;
  for (const Subject& subject : subjects()) {
    if (!built(subject)) continue;
    const std::vector<RankLayout> layouts = pool(subject);
    // Each layout loads what all of them saved, or what one of them saved.
    for (size_t i = 0; i < layouts.size(); ++i)
      pairs +=
          reshard(subject, layouts[i],
                  in_depth(subject) ? layouts : std::vector{layouts[(i + 1) % layouts.size()]});
  }
  MESSAGE(pairs << " pairs of layouts");
  CHECK(pairs >= 64);
}
