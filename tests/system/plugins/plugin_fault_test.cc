// A plugin that fails while it is used is named, with the call, and the process ends with the
// status of plugins. Errors of mtrain's own class and the end of memory are what they are.
#include <doctest/doctest.h>

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

const std::string kFixtures = (testing::build_root() / "tests/plugins").string();

/// A short training with a component that fails.
Outcome train(const Scratch& folder, const std::string& section, const std::string& fault,
              std::vector<std::string> more = {}) {
  std::vector<std::string> words = {"--plugin-path",
                                    kFixtures,
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
            cat("show this line to the author of ", kFixtures, "/", kind, "_faulty.so")));
  CHECK_FALSE(has(outcome.err, "defect of mtrain"));
}

}  // namespace

TEST_CASE("an exception out of an optimizer, a dataset or a tokenizer names plugin and call") {
  Scratch folder("plugin-throws");
  check_named(train(folder, "optimizer", "throw"), "optimizer",
              "failed in update(): the bearing is worn");
  check_named(train(folder, "optimizer", "int"), "optimizer",
              "failed in update(): it threw something that is not a std::exception");
  check_named(train(folder, "dataset", "throw"), "dataset", "failed in get(): the bearing is worn");
  check_named(testing::cli({"--plugin-path", kFixtures, "data", "tokenize", "-t", "faulty", "-i",
                            folder.write("x.jsonl", "{\"text\": \"x\"}\n")}),
              "tokenizer", "failed in encode(): the bearing is worn");
}

TEST_CASE("a model is named where it fails, in the memory plan of the first phase, too") {
  Scratch folder("plugin-model");
  std::string recipe = folder.write("model.yaml",
                                    "model: {type: faulty, seq_length: 8}\ndataset: mock\n"
                                    "train: {steps: 2, micro_batch_size: 1, global_batch_size: "
                                    "1}\nscheduler: {warmup_steps: 0}\n");
  std::vector<std::string> words = {"--plugin-path", kFixtures, "train", recipe,
                                    cat("run.dir=", (folder / "run").string())};
  check_named(testing::cli(words), "model", "failed in forward(): the bearing is worn");
}

TEST_CASE("ranks as threads: the rank's plugin is named, and its status is the job's") {
  Scratch folder("plugin-ranks");
  Outcome outcome = train(folder, "optimizer", "throw", {"dist.nproc=2"});
  INFO(outcome.err);
  CHECK(outcome.status == 13);
  CHECK(has(outcome.err, "optimizer plugin 'faulty' failed in update(): the bearing is worn"));
}

TEST_CASE("errors of mtrain's class and the end of memory pass unchanged") {
  Scratch folder("plugin-errors");
  Outcome outcome = train(folder, "optimizer", "error");
  INFO(outcome.err);
  CHECK(outcome.status == 11);
  CHECK(has(outcome.err, "error[data]: the belt is torn"));
  CHECK(has(outcome.err, "help: correct it"));
  outcome = train(folder, "optimizer", "memory");
  CHECK(outcome.status == 10);
  CHECK(has(outcome.err, "out of memory"));
}

TEST_CASE("a crash names plugin, call and signal") {
  if (kSanitized) return;
  Scratch folder("plugin-crash");
  check_named(train(folder, "optimizer", "crash"), "optimizer", "crashed in update() (SIGSEGV)");
  check_named(train(folder, "optimizer", "divide"), "optimizer", "crashed in update() (SIGFPE)");
  check_named(train(folder, "optimizer", "abort"), "optimizer", "crashed in update() (SIGABRT)");
  check_named(train(folder, "dataset", "crash"), "dataset", "crashed in get() (SIGSEGV)");
  check_named(train(folder, "optimizer", "crash", {"dist.nproc=2"}), "optimizer",
              "crashed in update() (SIGSEGV)");
}

TEST_CASE("a crash where the system refuses memory says so and blames no plugin") {
  if (kSanitized) return;
  Scratch folder("plugin-refused");
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"dist.nproc=2"}}) {
    Outcome outcome = train(folder, "optimizer", "unchecked", more);
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
                         testing::mtrain_binary(), "' --plugin-path '", kFixtures, "' train '",
                         recipe, "' run.dir=run optimizer.type=faulty ++optimizer.fault=crash")}});
  check_named(outcome, "optimizer", "crashed in update() (SIGSEGV)");
}
