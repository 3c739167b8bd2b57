// Other data and other weights than those of a run: what an override of dataset.path replaces, how
// a resume gets new weights, and what `check` refuses without the data.
#include <doctest/doctest.h>

#include "done.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

/// Three prepared texts, a.yaml of a blend of two, and the run of it.
void write_blend(const Scratch& scratch) {
  for (const char* name : {"a", "b", "c"}) {
    std::string text;
    for (int i = 0; i < 60; ++i)
      text += std::string("a text of ") + name + " number " + std::to_string(i) + "\n";
    scratch.write(std::string(name) + ".txt", text);
    done(scratch, std::string("data prepare -q -t byte --append-eod --split-on lines -i ") + name +
                      ".txt -o " + name);
  }
  scratch.write("r.yaml",
                "model: {type: llama, layers: 1, hidden_size: 16, heads: 2, ffn_hidden_size: 24, "
                "seq_length: 8}\ntokenizer: byte\ndataset: {type: gpt, paths: [a, b], weights: "
                "[0.5, 0.5], order: open, split: '80,20'}\nrun: {threads: 1}\nlogger: "
                "{tensorboard: false}\ntrain: {steps: 4, global_batch_size: 4}\nscheduler: "
                "{warmup_steps: 0}\nvalidation: {steps: 1}\n");
  done(scratch, "r.yaml -q run.dir=run");
}

/// What eval prints, without the time that it took.
std::string loss_of(const std::string& out) { return out.substr(0, out.rfind(" in ")); }

}  // namespace

TEST_CASE("dataset.path on the command line takes the place of a run's blend") {
  const Scratch scratch("mtrain-other-path");
  write_blend(scratch);
  const std::string eval = "eval --from run --split valid ";
  const Outcome chosen = done(scratch, eval + "dataset=gpt dataset.path=c");
  const Outcome emptied =
      done(scratch, eval + "dataset.paths=[] dataset.weights=[] dataset.path=c");
  CHECK(loss_of(chosen.out) == loss_of(emptied.out));
  CHECK(loss_of(chosen.out) != loss_of(done(scratch, eval).out));
  done(scratch, eval + "dataset.path=c");
  done(scratch, "-q rerun run dataset.path=c run.dir=one");
  // One path of the run gives way to several, and weights for other paths are refused by number.
  done(scratch, "eval --from one --split valid dataset.paths=[a,b]");
  const Outcome three = cli_in(scratch.path(), eval + "dataset.paths=[a,b,c]");
  CHECK(three.status == 10);
  CHECK_MESSAGE(has(three.err, "2 weights for 3 paths"), three.err);
  // Files of a split stay, and eval says so.
  done(scratch, "r.yaml -q run.dir=own dataset.valid_path=b dataset.paths=[a,a]");
  const std::string own = "eval --from own dataset.path=c ";
  CHECK_MESSAGE(has(done(scratch, own).err, "reads dataset.valid_path="), "no warning");
  CHECK_FALSE(has(done(scratch, own + "dataset.valid_path=''").err, "warning"));
}

TEST_CASE("a resume with other weights names the phases that keep those of the samples read") {
  const Scratch scratch("mtrain-other-weights");
  write_blend(scratch);
  const std::string more = "r.yaml -q run.dir=run train.steps=6 ";
  const Outcome refused = cli_in(scratch.path(), more + "dataset.weights=[0.9,0.1]");
  CHECK(refused.status == 12);
  const std::string phases = "'dataset.phases=[{samples: 16, weights: [0.5, 0.5]}]'",
                    weights = "'dataset.weights=[0.9, 0.1]'";
  CHECK_MESSAGE(has(refused.err, phases + " " + weights), refused.err);
  done(scratch, more + phases + " " + weights);
  const Outcome again = cli_in(
      scratch.path(), "r.yaml -q run.dir=run train.steps=8 " + phases + " dataset.weights=[1,0]");
  CHECK(again.status == 12);
  CHECK_MESSAGE(has(again.err,
                    "'dataset.phases=[{samples: 16, weights: [0.5, 0.5]}, {samples: 8, weights: "
                    "[0.9, 0.1]}]' 'dataset.weights=[1.0, 0.0]'"),
                again.err);
  const Outcome megatron =
      cli_in(scratch.path(), more + "dataset.order=megatron dataset.weights=[0.9,0.1]");
  CHECK(megatron.status == 12);
  CHECK_FALSE(has(megatron.err, "keep these"));
}

TEST_CASE("check refuses weights of a blend without its data") {
  const Scratch scratch("mtrain-other-check");
  scratch.write("r.yaml",
                "model: llama\ntokenizer: byte\ndataset: {type: gpt, paths: [x, y], weights: [1, "
                "2]}\ntrain: {steps: 1}\n");
  for (const auto& [words, says] : std::vector<std::pair<std::string, std::string>>{
           {"dataset.weights=[-1,2]", "dataset.weights"},
           {"dataset.weights=[0,0]", "all weights are 0"},
           {"dataset.weights=[1]", "1 weights for 2 paths"},
           {"dataset.valid_paths=[x] dataset.valid_weights=[-1]", "dataset.valid_weights"},
           {"dataset.valid_paths=[x] dataset.valid_weights=[0]", "all weights are 0"}}) {
    const Outcome refused = cli_in(scratch.path(), "check r.yaml " + words);
    CHECK(refused.status == 10);
    CHECK_MESSAGE(has(refused.err, says), refused.err);
  }
}
