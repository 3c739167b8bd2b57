// checkpoint.hf: each checkpoint has its export, also after the run was killed between the two, and
// an export of steps that no longer count is set aside.
#include <doctest/doctest.h>

#include <map>

#include "done.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "shell.h"
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

constexpr const char* kRecipe =
    "model: {type: llama, layers: 1, hidden_size: 32, heads: 4, kv_heads: 2, ffn_hidden_size: 48, "
    "seq_length: 16}\ntokenizer: byte\ndataset: mock\nrun: {threads: 1}\n"
    "logger: {tensorboard: false}\ntrain: {steps: 4, global_batch_size: 4}\n"
    "scheduler: {warmup_steps: 1}\n";

std::map<std::string, std::string> saved_tensors(const fs::path& folder) {
  std::map<std::string, std::string> out;
  const mtrain::HfDir source(folder);
  for (const mtrain::TensorInfo* t : source.tensors())
    out[t->name] = {reinterpret_cast<const char*>(t->data.data()), t->data.size()};
  return out;
}

/// Whether the export of a step has the weights of its checkpoint.
bool is_of_checkpoint(const Scratch& scratch, const std::string& step) {
  done(scratch, "-q export run/checkpoints/step-" + step + " expected-" + step);
  const bool same =
      saved_tensors(scratch / ("expected-" + step)) == saved_tensors(scratch / ("hf/step-" + step));
  fs::remove_all(scratch / ("expected-" + step));
  return same;
}

}  // namespace

TEST_CASE("the export that a killed run did not write is written when the run continues") {
  for (const std::string mode : {"", " checkpoint.async=true"}) {
    CAPTURE(mode);
    const Scratch scratch("mtrain-hf-killed");
    scratch.write("r.yaml", kRecipe);
    const std::string words = "r.yaml -q run.dir=run checkpoint.interval=2 checkpoint.hf=hf" + mode;
    const Outcome killed =
        cli_in(scratch.path(), words, "/nowhere", {"MTRAIN_FAULT=hf.write:3:kill"});
    REQUIRE(killed.status == 128 + SIGKILL);
    REQUIRE(fs::exists(scratch / "run/checkpoints/step-2"));
    REQUIRE_FALSE(fs::exists(scratch / "hf/step-2"));
    // Also if no step is left.
    done(scratch, words + " train.steps=2");
    CHECK(is_of_checkpoint(scratch, "2"));
    fs::remove_all(scratch / "hf/step-2");
    done(scratch, words);
    CHECK(is_of_checkpoint(scratch, "2"));
    CHECK(is_of_checkpoint(scratch, "4"));
    for (const auto& entry : fs::directory_iterator(scratch / "hf"))
      CHECK(entry.path().filename().string().starts_with("step-"));
    // An export that is there is kept as it is.
    const auto before = fs::last_write_time(scratch / "hf/step-4/config.json");
    done(scratch, words);
    CHECK(fs::last_write_time(scratch / "hf/step-4/config.json") == before);
  }
}

TEST_CASE("after a rewind, exports of later steps are set aside and written anew") {
  const Scratch scratch("mtrain-hf-rewind");
  scratch.write("r.yaml", kRecipe);
  const std::string words = "r.yaml run.dir=run checkpoint.interval=2 checkpoint.hf=hf";
  done(scratch, words + " -q");
  const auto old = saved_tensors(scratch / "hf/step-4");
  const Outcome back = done(scratch, "checkpoint rewind run --step 2");
  CHECK_MESSAGE(has(back.out, "hf/set-aside-1/step-4"), back.out);
  CHECK(fs::exists(scratch / "hf/step-2"));
  CHECK_FALSE(fs::exists(scratch / "hf/step-4"));
  CHECK(saved_tensors(scratch / "hf/set-aside-1/step-4") == old);
  // One that is there all the same, such as after a rewind in another folder.
  fs::copy(scratch / "hf/set-aside-1/step-4", scratch / "hf/step-4", fs::copy_options::recursive);
  const Outcome again = done(scratch, words + " train.skip_steps=[3]");
  CHECK_MESSAGE(has(again.out + again.err, "hf/set-aside-2/step-4"), again.out, again.err);
  CHECK(is_of_checkpoint(scratch, "4"));
  CHECK(saved_tensors(scratch / "hf/step-4") != old);
  CHECK(saved_tensors(scratch / "hf/set-aside-2/step-4") == old);
}

TEST_CASE("a rewind sets exports aside, whatever the working directories of rewind and run were") {
  const Scratch scratch("mtrain-hf-folders");
  scratch.write("r.yaml", kRecipe);
  fs::create_directories(scratch / "elsewhere");
  const std::string words =
      "r.yaml -q run.dir=" + (scratch / "run").string() + " checkpoint.interval=2 checkpoint.hf=hf";
  done(scratch, words + " train.steps=4");
  const Outcome later = cli_in(scratch / "elsewhere", "../" + words + " train.steps=6");
  REQUIRE_MESSAGE(later.status == 0, later.err);
  REQUIRE(fs::exists(scratch / "hf/step-4"));
  REQUIRE(fs::exists(scratch / "elsewhere/hf/step-6"));
  const Outcome back = cli_in("/", "checkpoint rewind " + (scratch / "run").string() + " --step 2");
  REQUIRE_MESSAGE(back.status == 0, back.err);
  CHECK_FALSE(fs::exists(scratch / "hf/step-4"));
  CHECK(fs::exists(scratch / "hf/set-aside-1/step-4"));
  CHECK(fs::exists(scratch / "hf/step-2"));
  CHECK_FALSE(fs::exists(scratch / "elsewhere/hf/step-6"));
  CHECK(fs::exists(scratch / "elsewhere/hf/set-aside-1/step-6"));
}
