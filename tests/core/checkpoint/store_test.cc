#include <doctest/doctest.h>

#include "checkpoint_testing.h"
#include "mtrain/checkpoint/digest.h"
#include "mtrain/checkpoint/store.h"

using namespace mtrain;
using namespace mtrain::testing;

TEST_CASE("a checkpoint is saved, found and loaded") {
  TempDir dir;
  auto samples = sample_tensors(1);
  Slices saved = cut_all(samples, 0, 1, 0);
  {
    CheckpointStore store(dir / "run", StoreOptions{});
    CHECK_FALSE(store.latest_valid().step.has_value());
    auto result = store.save(5, saved.list, R"({"rng": {"seed": 42}, "cursor": 7})");
    CHECK(result.path == dir / "run" / "step-5");
    CHECK(result.bytes > 0);
    CHECK(result.warnings.empty());
  }
  CheckpointStore store(dir / "run");
  CHECK(store.latest_valid().step == 5);
  CHECK(store.meta(5) == R"({"cursor":7,"rng":{"seed":42}})");
  Slices loaded = cut_all(samples, 0, 1, 0, false);
  store.load(5, loaded.list);
  CHECK(loaded.memory == saved.memory);
  CHECK(checkpoint_digest(store.step_folder(5)).size() == 64);
}
