// A checkpoint of any layout goes on in any other: what is loaded and saved again has the same digest.
#include <doctest/doctest.h>
#include <unistd.h>

#include <mutex>

#include "mtrain/checkpoint/digest.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/train/job.h"
#include "mtrain/train/trainer.h"
#include "mtrain/train/verify_layouts.h"
#include "mtrain/train/verify_twin.h"
#include "subjects.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

constexpr int64_t kSteps = 2;

class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& name) : path_(fs::temp_directory_path() / cat("mtrain-", name, "-", ::getpid())) {
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
Recipe laid_out(const Subject& subject, const RankLayout& layout, int64_t steps, const fs::path& folder, const std::string& resume) {
  Recipe whole = recipe_of(subject);
  std::vector<std::string> changes = overrides(layout);
  changes.push_back(cat("run.dir=", folder.string()));
  changes.push_back(cat("checkpoint.resume=", resume));
  changes.push_back(cat("train.steps=", steps));
  return recipe_from_text(twin_recipe(whole, 4, kSteps), "the twin", fs::current_path(), changes, plugins());
}

void train(const Recipe& recipe) {
  std::mutex turn;
  run_job(recipe, plugins(), [&](Communicator& ranks) {
    RankMesh mesh(recipe, ranks);
    std::optional<Trainer> trainer;
    build_in_turn(ranks, turn, [&] { trainer.emplace(recipe, plugins(), [] { return false; }, mesh); });
    trainer->run();
  });
}

fs::path step_folder(const fs::path& run, int64_t step) {
  return run / "checkpoints" / cat("step-", step);
}

/// One step in a layout, saved; its digest.
std::string saved(const Subject& subject, const RankLayout& layout, const fs::path& run) {
  train(laid_out(subject, layout, kSteps, run, "never"));
  return checkpoint_digest(step_folder(run, kSteps));
}

}  // namespace
