// A plugin that fails while it is used is named, with the call, and the process ends with the
// status of plugins. Errors of mtrain's own class and the end of memory are what they are.
#include <doctest/doctest.h>

#include <filesystem>

#include "../process.h"
#include "mtrain/base/text.h"
#include "roots.h"

using namespace mtrain;
using testing::has;
using testing::Outcome;
using testing::Scratch;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // sanitizers report crashes themselves
#else
constexpr bool kSanitized = false;
#endif

const std::string kFaultyPlugins = (testing::build_root() / "tests/plugins").string();

/// A short training with a component that fails.
Outcome train_faulty(const Scratch& folder, const std::string& section, const std::string& fault,
                     std::vector<std::string> more = {}) {
  std::vector<std::string> words = {"--plugin-path",
                                    kFaultyPlugins,
                                    "train",
                                    folder.write("tiny.yaml", testing::tiny_recipe()),
                                    cat("run.dir=", (folder / "run").string()),
                                    cat(section, ".type=faulty"),
                                    cat("++", section, ".fault=", fault)};
  words.insert(words.end(), more.begin(), more.end());
  return testing::cli(std::move(words));
}

void check_named(const Outcome& outcome, std::string_view kind, std::string_view what) {
  INFO(outcome.err);
  CHECK(outcome.status == 13);
  CHECK(has(outcome.err, cat("mtrain: error[plugin]: ", kind, " plugin 'faulty' ", what)));
  CHECK(has(outcome.err,
            cat("show this line to the author of ", kFaultyPlugins, "/", kind, "_faulty.so")));
  CHECK_FALSE(has(outcome.err, "defect of mtrain"));
}

}  // namespace

TEST_CASE("an exception out of an optimizer, a dataset or a tokenizer names plugin and call") {
  Scratch folder("plugin-throws");
  check_named(train_faulty(folder, "optimizer", "throw"), "optimizer",
              "failed in update(): the bearing is worn");
  check_named(train_faulty(folder, "optimizer", "int"), "optimizer",
              "failed in update(): it threw something that is not a std::exception");
  check_named(train_faulty(folder, "dataset", "throw"), "dataset",
              "failed in get(): the bearing is worn");
  check_named(testing::cli({"--plugin-path", kFaultyPlugins, "data", "tokenize", "-t", "faulty",
                            "-i", folder.write("x.jsonl", "{\"text\": \"x\"}\n")}),
              "tokenizer", "failed in encode(): the bearing is worn");
}

TEST_CASE(
    "a sample that a dataset filled wrongly names plugin, sample, position, value and range") {
  Scratch folder("plugin-sample");
  auto check = [&](const char* field, int64_t value, const std::string& what) {
    const Outcome outcome = train_faulty(folder, "dataset", field,
                                         {cat("++dataset.value=", value), "model.seq_length=16"});
    INFO(outcome.err);
    CHECK(outcome.status == 13);
    CHECK(has(outcome.err, cat("mtrain: error[plugin]: dataset plugin 'faulty' filled a sample "
                               "wrongly in get(): sample 5: ",
                               what, "\n")));
    CHECK_FALSE(has(outcome.err, "defect of mtrain"));
  };
  check("token", 257, "tokens[2] is 257, outside the vocabulary of 257");
  check("token", -1, "tokens[2] is -1, outside the vocabulary of 257");
  check("target", 257, "targets[2] is 257, outside the vocabulary of 257");
  check("target", -100, "targets[2] is -100, outside the vocabulary of 257");
  check("position", 16, "positions[2] is 16, outside 0 to 15");
  check("start", 16, "starts[1] is 16 after 0, in a sample of 16 positions");
  check("padding", 3, "targets[13] is 1, and the last 3 positions are padding");
  const Outcome valid = train_faulty(folder, "dataset", "target", {"++dataset.value=-1"});
  INFO(valid.err);
  CHECK(valid.status == 0);
}

TEST_CASE("an id outside a tokenizer's vocabulary names the tokenizer") {
  Scratch folder("plugin-ids");
  const std::string wrong =
      "mtrain: error[plugin]: tokenizer plugin 'faulty' gave an id outside its vocabulary of 256: ";
  const std::string texts = folder.write("x.jsonl", "{\"text\": \"seven\"}\n");
  const std::vector<std::string> settings = {"-t", "faulty", "fault=id", "value=256"};
  for (std::vector<std::string> words :
       {std::vector<std::string>{"data", "prepare", "-o", (folder / "pair").string(), "-i", texts},
        {"data", "tokenize", "-i", texts}}) {
    words.insert(words.begin(), {"--plugin-path", kFaultyPlugins});
    words.insert(words.end(), settings.begin(), settings.end());
    const Outcome outcome = testing::cli(words);
    INFO(outcome.err);
    CHECK(outcome.status == 13);
    CHECK(has(outcome.err, wrong + "token 4 of a text is 256\n"));
  }
  CHECK_FALSE(std::filesystem::exists(folder / "pair.bin"));
  const Outcome trained =
      train_faulty(folder, "tokenizer", "id",
                   {"++tokenizer.value=-3", "train.steps=1", "scheduler.warmup_steps=0"});
  INFO(trained.err);
  REQUIRE(trained.status == 0);
  const Outcome outcome = testing::cli({"--plugin-path", kFaultyPlugins, "generate", "--from",
                                        (folder / "run").string(), "--prompt", "two"});
  INFO(outcome.err);
  CHECK(outcome.status == 13);
  CHECK(has(outcome.err, wrong + "token 2 of a text is -3\n"));
}

TEST_CASE("a model is named where it fails, in the memory plan of the first phase, too") {
  Scratch folder("plugin-model");
  std::string recipe = folder.write("model.yaml",
                                    "model: {type: faulty, seq_length: 8}\ndataset: mock\n"
                                    "train: {steps: 2, micro_batch_size: 1, global_batch_size: "
                                    "1}\nscheduler: {warmup_steps: 0}\n");
  std::vector<std::string> words = {"--plugin-path", kFaultyPlugins, "train", recipe,
                                    cat("run.dir=", (folder / "run").string())};
  check_named(testing::cli(words), "model", "failed in forward(): the bearing is worn");
}

TEST_CASE("ranks as threads: the rank's plugin is named, and its status is the job's") {
  Scratch folder("plugin-ranks");
  Outcome outcome = train_faulty(folder, "optimizer", "throw", {"dist.nproc=2"});
  INFO(outcome.err);
  CHECK(outcome.status == 13);
  CHECK(has(outcome.err, "optimizer plugin 'faulty' failed in update(): the bearing is worn"));
}

TEST_CASE("errors of mtrain's class and the end of memory pass unchanged") {
  Scratch folder("plugin-errors");
  Outcome outcome = train_faulty(folder, "optimizer", "error");
  INFO(outcome.err);
  CHECK(outcome.status == 11);
  CHECK(has(outcome.err, "error[data]: the belt is torn"));
  CHECK(has(outcome.err, "help: correct it"));
  outcome = train_faulty(folder, "optimizer", "memory");
  CHECK(outcome.status == 10);
  CHECK(has(outcome.err, "out of memory"));
}

TEST_CASE("a crash names plugin, call and signal") {
  if (kSanitized) return;
  Scratch folder("plugin-crash");
  check_named(train_faulty(folder, "optimizer", "crash"), "optimizer",
              "crashed in update() (SIGSEGV)");
  check_named(train_faulty(folder, "optimizer", "divide"), "optimizer",
              "crashed in update() (SIGFPE)");
  check_named(train_faulty(folder, "optimizer", "abort"), "optimizer",
              "crashed in update() (SIGABRT)");
  check_named(train_faulty(folder, "dataset", "crash"), "dataset", "crashed in get() (SIGSEGV)");
  check_named(train_faulty(folder, "optimizer", "crash", {"dist.nproc=2"}), "optimizer",
              "crashed in update() (SIGSEGV)");
}

TEST_CASE("a crash where the system refuses memory says so and blames no plugin") {
  if (kSanitized) return;
  Scratch folder("plugin-refused");
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"dist.nproc=2"}}) {
    Outcome outcome = train_faulty(folder, "optimizer", "unchecked", more);
    INFO(outcome.err);
    CHECK(outcome.status == 10);
    CHECK(has(outcome.err,
              "error[config]: out of memory: the system has no more memory for this process, and a "
              "library crashed (SIGSEGV)\n"));
    CHECK(has(outcome.err, "help: raise the limits of memory"));
    CHECK_FALSE(has(outcome.err, "error[plugin]"));
  }
}

TEST_CASE("where core files are wanted, a crash in a plugin ends with status 13 as well") {
  if (kSanitized) return;
  Scratch folder("plugin-core");
  std::string recipe = folder.write("tiny.yaml", testing::tiny_recipe());
  Outcome outcome = testing::run(
      {.arguments = {"/bin/sh", "-c",
                     cat("cd '", folder.path().string(), "' && ulimit -c unlimited 2>/dev/null; '",
                         testing::mtrain_binary(), "' --plugin-path '", kFaultyPlugins, "' train '",
                         recipe, "' run.dir=run optimizer.type=faulty ++optimizer.fault=crash")}});
  check_named(outcome, "optimizer", "crashed in update() (SIGSEGV)");
}
