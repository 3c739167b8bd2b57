// Which checkpoints belong to a run whose folder was moved or was written by an older version.
#include "mtrain/record/run_ties.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "mtrain/base/error.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/record/run_history.h"
#include "mtrain/record/saved_config.h"
#include "mtrain/record/train_state.h"
#include "temp_dir.h"

using namespace mtrain;

namespace {

using Folder = testing::TempDir;

/// The texts of an invocation; one of an older version has no identity.
SavedConfig texts(const fs::path& run, const std::string& invocation) {
  SavedConfig out;
  out.provenance = "{}";
  nlohmann::json environment = {{"run", run.string()},
                                {"checkpoints", (run / "checkpoints").string()}};
  if (!invocation.empty()) environment["invocation"] = invocation;
  out.environment = environment.dump();
  return out;
}

void save(const fs::path& checkpoints, const std::string& saved) {
  CheckpointMeta meta;
  meta.saved = saved;
  CheckpointStore(checkpoints, StoreOptions{}).save(5, {}, to_json(meta));
}

bool accepted(const fs::path& run, const fs::path& checkpoints) {
  try {
    require_same_run(run, checkpoints, 5);
    return true;
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::checkpoint);
    return false;
  }
}

}  // namespace

TEST_CASE("a checkpoint belongs to the run whose history has its invocation, wherever they are") {
  Folder folder;
  const fs::path run = folder / "run";
  begin_invocation(texts(run, "one"), run, 0, 10);
  begin_invocation(texts(run, "two"), run, 2, 10);
  save(folder / "one", to_json(texts(run, "one")));
  save(folder / "two", to_json(texts(folder / "before", "two")));
  save(folder / "three", to_json(texts(run, "three")));
  CHECK(accepted(run, folder / "one"));
  CHECK(accepted(run, folder / "two"));
  CHECK_FALSE(accepted(run, folder / "three"));  // of an earlier run in the same folder
}

TEST_CASE("without identities, the folders that were recorded decide") {
  Folder folder;
  const fs::path run = folder / "run", moved = folder / "moved";
  begin_invocation(texts(run, ""), run, 0, 10);
  save(folder / "own", to_json(texts(run, "")));
  save(folder / "other", to_json(texts(folder / "else", "")));
  save(folder / "unknown", "{}");
  CHECK(accepted(run, folder / "own"));
  CHECK_FALSE(accepted(run, folder / "other"));
  CHECK(accepted(run, folder / "unknown"));
  fs::rename(run, moved);
  CHECK(accepted(moved, folder / "own"));
  CHECK_FALSE(accepted(moved, folder / "other"));
}

TEST_CASE("a run without history takes the checkpoints in its folder and those that name it") {
  Folder folder;
  const fs::path run = folder / "run";
  save(run / "checkpoints", to_json(texts(folder / "else", "one")));
  save(folder / "own", to_json(texts(run, "one")));
  save(folder / "other", to_json(texts(folder / "else", "one")));
  CHECK(accepted(run, run / "checkpoints"));
  fs::remove_all(run / "checkpoints");
  CHECK(accepted(run, folder / "own"));
  CHECK_FALSE(accepted(run, folder / "other"));
}
