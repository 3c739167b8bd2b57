// What counts as a change of settings when a run continues: what they stand for, and only if they
// act.
#include <doctest/doctest.h>

#include "done.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

/// A run of two steps whose settings 0 stand for others: one head group, the tokenizer's ids.
std::string derived_recipe() {
  std::string out = tiny_recipe();
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"kv_heads: 2, ", ""},
                                 {"global_batch_size: 4", "global_batch_size: 0"},
                                 {"steps: 40", "steps: 2"},
                                 {"warmup_steps: 4", "warmup_steps: 0"},
                                 {"interval: 20, steps: 1", "interval: 0, steps: 0"}})
    out.replace(out.find(from), from.size(), to);
  return out + "tokenizer: byte\n";
}

}  // namespace

TEST_CASE("0 and the number that it stands for are the same setting") {
  const Scratch scratch("mtrain-same-zero");
  scratch.write("r.yaml", derived_recipe());
  done(scratch, "r.yaml -q run.dir=a");
  for (const std::string setting :
       {"model.kv_heads=4", "model.head_dim=8", "train.global_batch_size=2", "model.vocab_size=320",
        "model.kv_heads=0"}) {
    CAPTURE(setting);
    fs::copy(scratch / "a", scratch / "b", fs::copy_options::recursive);
    const Outcome went_on = cli_in(scratch.path(), "r.yaml run.dir=b train.steps=3 " + setting);
    CHECK_MESSAGE(went_on.status == 0, went_on.err);
    CHECK_MESSAGE(has(went_on.err, "continuing from step 2"), went_on.err);
    CHECK_MESSAGE(has(went_on.err, "train.steps: 2 -> 3"), went_on.err);  // what did change
    CHECK_FALSE(has(went_on.err, setting.substr(0, setting.find('=')) + ": 0"));
    fs::remove_all(scratch / "b");
  }
  for (const std::string setting :
       {"model.kv_heads=2", "model.head_dim=16", "model.vocab_size=384"}) {
    CAPTURE(setting);
    const Outcome refused = cli_in(scratch.path(), "r.yaml run.dir=a train.steps=3 " + setting);
    CHECK(refused.status == 12);
    const std::string line = setting.substr(0, setting.find('=')) + ": 0 (here ";
    CHECK_MESSAGE(has(refused.err, line), refused.err);
  }
  const Outcome other =
      cli_in(scratch.path(), "r.yaml run.dir=a train.steps=3 train.global_batch_size=4");
  CHECK_MESSAGE(has(other.err, "train.global_batch_size: 0 (here 2) -> 4"), other.err);
  // What determines the number may change without a word of its own.
  done(scratch, "r.yaml -q run.dir=c");
  const Outcome implied =
      cli_in(scratch.path(), "r.yaml run.dir=c train.steps=3 train.micro_batch_size=1");
  CHECK_MESSAGE(has(implied.err,
                    "train.global_batch_size: 0, which stands for "
                    "train.micro_batch_size: 2 -> 1"),
                implied.err);
}

TEST_CASE("a change of a setting without an effect is no change") {
  const Scratch scratch("mtrain-same-unused");
  scratch.write("r.yaml", derived_recipe());
  done(scratch, "r.yaml -q run.dir=a");
  const Outcome went_on = cli_in(scratch.path(), "r.yaml run.dir=a train.steps=3 peft.rank=8");
  CHECK_MESSAGE(went_on.status == 0, went_on.err);
  CHECK_MESSAGE(has(went_on.err, "has no effect with peft.type=none"), went_on.err);
  CHECK_FALSE(has(went_on.err, "peft.rank: 32 -> 8"));
}

TEST_CASE("a setting of adapters without adapters: the help says what makes them") {
  const Scratch scratch("mtrain-same-adapters");
  scratch.write("r.yaml", derived_recipe());
  const Outcome mock = cli_in(scratch.path(), "check r.yaml peft.rank=8");
  CHECK_MESSAGE(has(mock.err + mock.out, "peft.rank=32, or peft.type=lora"), mock.err);
  // Where adapters have no weights to be added to, no single setting makes them.
  const Outcome text =
      cli_in(scratch.path(), "check r.yaml dataset=gpt dataset.path=x peft.rank=8");
  CHECK_MESSAGE(has(text.err + text.out, "peft.type=lora or dora, with model.init_from"), text.err);
}
