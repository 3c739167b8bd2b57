// Sweeps, files of overrides and raw pairs on the command line.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "shell.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

TEST_CASE("-f FILE and --set KEY VALUE, in the order of the command line") {
  Scratch scratch("mtrain-set");
  std::string r = scratch.write("r.yaml", tiny_recipe());
  std::string file = scratch.write("more.txt", "# ours\n\ntrain.steps=11\noptimizer.lr=1e-3\n");
  auto steps = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"config", "show", r, "train.steps"});
    Outcome outcome = cli(words);
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    return outcome.out;
  };
  CHECK(steps({"-f", file}) == "11\n");
  CHECK(steps({"-f", file, "train.steps=12"}) == "12\n");
  CHECK(steps({"train.steps=12", "-f", file}) == "11\n");
  CHECK(steps({"train.steps=12", "--set", "train.steps", "13", "-f", file, "train.steps=14"}) ==
        "14\n");
  CHECK(steps({"-f", file, "--set", "train.steps", "13"}) == "13\n");
  Outcome name = cli({"config", "show", r, "run.name", "--set", "run.name", "--odd, [name]=${x}"});
  CHECK_MESSAGE(name.out == "\"--odd, [name]=\\\\${x}\"\n", name.out, name.err);
  scratch.write("more.txt", "train.steps=11\ntrain.stepz=1\n");
  Outcome fault = cli({"check", r, "-f", file});
  CHECK(fault.status == 10);
  CHECK_MESSAGE(has(fault.err, "more.txt:2:1"), fault.err);
  CHECK(cli({"check", r, "-f", "/nowhere"}).status == 10);
  CHECK(cli({"check", r, "--set", "train.steps"}).status == 2);
  Outcome bare =
      cli({r, "--set", "run.dir", (scratch / "r").string(), "--set", "train.steps", "0", "-q"});
  CHECK_MESSAGE(bare.status == 0, bare.err);
  // Options may stand before a bare recipe.
  Outcome before = cli({"-q", "--set", "run.dir", (scratch / "q").string(), "-f",
                        scratch.write("n.txt", "train.steps=0\n"), r});
  CHECK_MESSAGE(before.status == 0, before.err);
  CHECK(fs::exists(scratch / "q"));
}

TEST_CASE("the schedule of a shipped group follows the learning rate in every notation") {
  Scratch scratch("mtrain-set-expression");
  std::string r =
      scratch.write("r.yaml", "defaults: [{scheduler: cosine}, _self_]\n" + tiny_recipe());
  auto shown = [&](const std::string& path, std::vector<std::string> words) {
    words.insert(words.begin(), {"config", "show", r, path});
    Outcome outcome = cli(words);
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    return outcome.out;
  };
  CHECK(shown("scheduler.min_lr", {"optimizer.lr=5e-3"}) == "5e-04\n");
  CHECK(shown("scheduler.min_lr", {"--set", "optimizer.lr", "5e-3"}) == "5e-04\n");
  CHECK(shown("scheduler.min_lr", {"optimizer.learning_rate=5e-3"}) == "5e-04\n");
  CHECK(shown("scheduler.min_lr", {"optimizer.lr=${oc.env:MT_NOT_SET_ANYWHERE,5e-3}"}) ==
        "5e-04\n");
  CHECK(shown("scheduler.decay_steps",
              {"train.steps=2k", "scheduler.decay_steps=${= ${train.steps} // 2}"}) == "1000\n");
  CHECK(shown("model.ffn_hidden_size",
              {"model.hidden_size=1Ki", "model.ffn_hidden_size=${= 4 * ${model.hidden_size}}"}) ==
        "4096\n");
  CHECK(shown("dist.silence_seconds", {"dist.timeout_minutes=30s",
                                       "dist.silence_seconds=${= 2 * ${dist.timeout_minutes}}"}) ==
        "1.0\n");
  // A text that contains the learning rate has it as it was written.
  CHECK(shown("run.name", {"--set", "optimizer.lr", "5e-3", "run.name='lr-${optimizer.lr}'"}) ==
        "lr-5e-3\n");

  Outcome swept = cli({"check", r, "-m", "--list", "train.steps=1k,2k",
                       "scheduler.decay_steps=${= ${train.steps} // 2}"});
  CHECK_MESSAGE(swept.status == 0, swept.err);
  CHECK_MESSAGE(has(swept.out, "2 trials, 0 faulty"), swept.out);

  Outcome bad = cli({"check", r, "--set", "optimizer.lr", "fast"});
  CHECK(bad.status == 10);
  CHECK_MESSAGE(has(bad.err, "optimizer.lr: wanted a number, got the text fast"), bad.err);
  CHECK_MESSAGE(!has(bad.err, "scheduler.min_lr"), bad.err);
  CHECK_MESSAGE(has(bad.err, "\n1 error"), bad.err);
}

TEST_CASE("check -m validates and lists every trial") {
  Scratch scratch("mtrain-sweep");
  std::string r = scratch.write("r.yaml", tiny_recipe() + "sweep: {rng.seed: 'range(1,3)'}\n");
  Outcome good = cli({"check", r, "-m", "--list", "optimizer.lr=1e-3,2e-3"});
  CHECK_MESSAGE(good.status == 0, good.err);
  CHECK_MESSAGE(has(good.out, "trial 0: "), good.out);
  CHECK_MESSAGE(has(good.out, "4 trials, 0 faulty"), good.out);
  CHECK(has(good.out, "optimizer.lr=1e-3"));
  CHECK(has(good.out, "rng.seed=2"));
  Outcome bad = cli({"check", r, "-m", "train.micro_batch_size=1,0", "rng.seed=1"});
  CHECK(bad.status == 10);
  CHECK_MESSAGE(has(bad.err, "trial 1: train.micro_batch_size=0"), bad.err);
  CHECK(has(bad.out, "2 trials, 1 faulty"));
  CHECK(cli({"check", r, "optimizer.lr=1e-3,2e-3"}).status == 10);
  // A trial with another model has no setting of the model before it.
  for (const char* models : {"model={type: llama, kv_heads: 1},{type: gpt2, dropout: 0.1}",
                             "model={type: gpt2, dropout: 0.1},{type: llama, kv_heads: 1}"}) {
    Outcome maps = cli({"check", r, "-m", "rng.seed=1", models});
    CHECK_MESSAGE(maps.status == 0, maps.err);
    CHECK_MESSAGE(has(maps.out, "2 trials, 0 faulty"), maps.out);
  }
}

TEST_CASE("a sweep compares settings, whatever names the overrides use for them") {
  Scratch scratch("mtrain-sweep-names");
  const std::string plain = scratch.write("r.yaml", tiny_recipe()),
                    swept = scratch.write("sweep.yaml", tiny_recipe() +
                                                            "sweep: {optimizer.lr: [1e-3, 2e-3], "
                                                            "rng.seed: 'choice(1,2)'}\n");
  auto check = [&](const std::string& recipe, std::vector<std::string> words) {
    words.insert(words.begin(), {"check", recipe, "-m", "--list"});
    return cli(words);
  };
  // The command line takes precedence for a setting, by each of its names and inside a map.
  for (const char* given :
       {"optimizer.lr=1e-2", "optimizer.learning_rate=1e-2", "optimizer={lr: 1e-2}"}) {
    CAPTURE(given);
    Outcome out = check(swept, {given});
    CHECK_MESSAGE(has(out.out, "2 trials, 0 faulty"), out.out, out.err);
    CHECK_MESSAGE(has(out.out, "trial 1: rng.seed=2 "), out.out);
    CHECK_FALSE(has(out.out, "optimizer"));
  }
  const std::string steps =
      scratch.write("steps.yaml", tiny_recipe() + "sweep: {train.steps: [10, 20]}\n");
  CHECK(has(check(steps, {"train.epochs=1"}).out, "1 trial, "));
  const std::string types =
      scratch.write("types.yaml", tiny_recipe() + "sweep: {optimizer: 'choice(adamw,sgd)'}\n");
  CHECK(has(check(types, {"optimizer.type=adamw"}).out, "1 trial, "));
  const std::vector<std::pair<std::vector<std::string>, std::string>> refused = {
      {{"optimizer.lr=1e-3,2e-3", "optimizer.learning_rate=3e-3,4e-3"},
       "optimizer.learning_rate: sets the same as optimizer.lr, which varies, too"},
      {{"optimizer.lr=1e-3,2e-3", "optimizer={lr: 5e-3}"},
       "optimizer: sets the same as optimizer.lr, which varies"},
      {{"train.steps=10,20", "train.epochs=1"},
       "train.epochs: sets the same as train.steps, which varies"},
      {{"optimizer.lr=1e-3,2e-3", "optimizer.lr=7e-3"},
       "optimizer.lr: varies, and is also set to one value"},
      {{"optimizer=adamw,sgd", "optimizer.type=adamw"},
       "optimizer.type: sets the same as optimizer, which varies"},
  };
  for (const auto& [words, message] : refused) {
    CAPTURE(message);
    Outcome out = check(plain, words);
    CHECK(out.status == 10);
    CHECK_MESSAGE(has(out.err, message), out.err);
    CHECK_FALSE(has(out.out, "trial 0"));
  }
  Outcome out = cli({swept, "-m", "-q", "train.steps=2", "rng.seed=1",
                     "optimizer.learning_rate=4e-3,6e-3", "run.dir=" + (scratch / "s").string()});
  REQUIRE_MESSAGE(out.status == 0, out.err);
  const std::string table = slurp(scratch / "s/sweep.csv");
  CHECK_MESSAGE(table.starts_with("trial,optimizer.learning_rate,outcome,"), table);
  CHECK(has(table, "\n1,6e-3,done,"));
}

TEST_CASE("the values of a recipe's sweep come after all of its files, by whatever name") {
  Scratch scratch("mtrain-sweep-order");
  scratch.write("base.yaml", tiny_recipe() + "sweep: {optimizer.lr: [4e-3, 6e-3]}\n");
  const std::string r =
      scratch.write("r.yaml", "defaults: [base, _self_]\noptimizer: {learning_rate: 1e-3}\n");
  Outcome out = cli({r, "-m", "-q", "train.steps=2", "run.dir=" + (scratch / "s").string()});
  REQUIRE_MESSAGE(out.status == 0, out.err);
  auto lr = [&](const char* trial) {
    return cli({"config", "show", "optimizer.lr",
                (scratch / "s" / trial / "config/resolved.yaml").string()})
        .out;
  };
  CHECK(lr("0") == "0.004\n");
  CHECK(lr("1") == "0.006\n");
  const std::string same =
      scratch.write("same.yaml",
                    "defaults: [base, _self_]\noptimizer: {learning_rate: 1e-3}\n"
                    "sweep: {optimizer.lr: [4e-3, 6e-3]}\n");
  Outcome one_file = cli({"check", same, "-m"});
  CHECK_MESSAGE(has(one_file.out, "2 trials, 0 faulty"), one_file.err);
}

TEST_CASE("an override of a recipe's sweep is answered with what can be done") {
  Scratch scratch("mtrain-sweep-override");
  // A name that the search path finds, too.
  const std::string r =
      scratch.write("sweep.yaml", tiny_recipe() + "sweep: {rng.seed: 'choice(1,2)'}\n");
  for (const char* word : {"sweep={}", "~sweep", "sweep.rng.seed=3"}) {
    CAPTURE(word);
    Outcome out = cli({"check", r, "-m", word});
    CHECK(out.status == 10);
    CHECK_MESSAGE(has(out.err, "'sweep:' of a recipe is not a setting"), out.err);
    CHECK_MESSAGE(has(out.err, "KEY=VALUE"), out.err);
    CHECK_FALSE(has(out.err, "did you mean"));
    CHECK_FALSE(has(out.err, "another component"));
  }
}

TEST_CASE("a recipe's sweep is not passed over without a word where -m is not given") {
  Scratch scratch("mtrain-sweep-unused");
  const std::string r =
      scratch.write("r.yaml", tiny_recipe() + "sweep: {rng.seed: 'range(1,3)'}\n");
  const std::string words = "which runs only with -m";
  Outcome checked = cli({"check", r});
  CHECK(checked.status == 0);
  CHECK_MESSAGE(has(checked.err, words), checked.err);
  CHECK(has(checked.err, "r.yaml:"));
  CHECK(has(cli({"check", r, "--json"}).out, words));
  Outcome trained = cli(
      {r, "train.steps=1", "scheduler.warmup_steps=0", "run.dir=" + (scratch / "one").string()});
  CHECK(trained.status == 0);
  CHECK_MESSAGE(has(trained.err, words), trained.err);
  Outcome swept = cli({r, "-m", "train.steps=1", "scheduler.warmup_steps=0",
                       "run.dir=" + (scratch / "all").string()});
  CHECK(swept.status == 0);
  CHECK_FALSE(has(swept.err, words));
  CHECK_FALSE(has(cli({"check", r, "-m"}).err, words));
}

TEST_CASE("train -m runs the trials one after another, each in a folder of its own") {
  Scratch scratch("mtrain-multirun");
  std::string r = scratch.write("r.yaml", tiny_recipe());
  std::vector<std::string> words = {
      r, "-m", "-q", "train.steps=6", "rng.seed=1,2", "run.name='t${run:trial}'"};
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return cli(more);
  };
  Outcome good = with({"run.dir=" + (scratch / "s").string()});
  CHECK_MESSAGE(good.status == 0, good.err);
  CHECK(has(slurp(scratch / "s/0/config/resolved.yaml"), "name: t0"));
  CHECK(has(slurp(scratch / "s/1/config/resolved.yaml"), "name: t1"));
  CHECK(digest(scratch / "s/0") != digest(scratch / "s/1"));
  std::string one = "run.dir=" + (scratch / "one").string();
  REQUIRE(cli({r, "-q", "train.steps=6", "rng.seed=2", one}).status == 0);
  CHECK(digest(scratch / "s/1") == digest(scratch / "one"));

  // Faulty trials are reported before any runs; a failing one ends the sweep unless --keep-going is
  // given.
  CHECK(with({"run.dir=" + (scratch / "f").string(), "train.micro_batch_size=0,1"}).status == 10);
  CHECK_FALSE(fs::exists(scratch / "f"));
  Outcome kept =
      with({"run.dir=" + (scratch / "k").string(), "train.micro_batch_size=0,1", "--keep-going"});
  CHECK(kept.status == 10);
  CHECK_FALSE(fs::exists(scratch / "k/0"));
  CHECK(fs::exists(scratch / "k/1/checkpoints/step-6"));
  Outcome stopped = with({"run.dir=" + (scratch / "x").string(), "model.init_from='',/nowhere"});
  CHECK(stopped.status == 12);
}

namespace {

std::vector<std::vector<std::string>> csv(const fs::path& file) {
  std::vector<std::vector<std::string>> rows;
  std::stringstream lines(slurp(file));
  for (std::string line; std::getline(lines, line);) {
    rows.emplace_back();
    std::stringstream fields(line);
    for (std::string field; std::getline(fields, field, ',');) rows.back().push_back(field);
  }
  return rows;
}

}  // namespace

TEST_CASE("a sweep ends with a table and sweep.csv, also when a trial fails or it is stopped") {
  Scratch scratch("mtrain-sweep-table");
  std::string r = scratch.write("r.yaml", tiny_recipe());
  auto sweep = [&](const std::string& folder, std::vector<std::string> more, Command command = {}) {
    command.arguments = {mtrain_binary(),
                         r,
                         "-m",
                         "train.steps=6",
                         "validation.interval=3",
                         "run.dir=" + (scratch / folder).string()};
    command.arguments.insert(command.arguments.end(), more.begin(), more.end());
    return run(command);
  };
  Outcome good = sweep("good", {"optimizer.lr=1e-3,2e-3", "rng.seed=1,2"});
  REQUIRE_MESSAGE(good.status == 0, good.err);
  CHECK(has(good.out, "best valid loss"));
  auto rows = csv(scratch / "good/sweep.csv");
  REQUIRE(rows.size() == 5);
  CHECK(rows[0] == std::vector<std::string>{"trial", "optimizer.lr", "rng.seed", "outcome", "steps",
                                            "last_loss", "best_loss", "best_val_loss", "seconds"});
  for (size_t i = 1; i < rows.size(); ++i) {
    CHECK(rows[i][0] == std::to_string(i - 1));
    CHECK(rows[i][1] == (i < 3 ? "1e-3" : "2e-3"));
    CHECK(rows[i][2] == (i % 2 == 1 ? "1" : "2"));
    CHECK(rows[i][3] == "done");
    CHECK(rows[i][4] == "6");
    CHECK(std::stod(rows[i][6]) <= std::stod(rows[i][5]));
    CHECK(has(slurp(scratch / "good" / rows[i][0] / "metrics.jsonl"),
              "\"loss\":" + rows[i][5] + ","));
    CHECK(
        has(slurp(scratch / "good" / rows[i][0] / "metrics.jsonl"), "\"val_loss\":" + rows[i][7]));
  }

  Outcome failed = sweep("failed", {"dataset.vocab_size=1000,200"});
  CHECK(failed.status != 0);
  CHECK(has(failed.out, "failed ("));
  rows = csv(scratch / "failed/sweep.csv");
  REQUIRE(rows.size() == 3);
  CHECK(rows[1][2].starts_with("failed ("));
  CHECK(rows[2][2] == "not run");
  Outcome kept = sweep("kept", {"dataset.vocab_size=1000,200", "--keep-going"});
  CHECK(kept.status != 0);
  rows = csv(scratch / "kept/sweep.csv");
  REQUIRE(rows.size() == 3);
  CHECK(rows[2][2] == "done");

  Outcome stopped = sweep("stopped", {"rng.seed=1,2"},
                          {.arguments = {},
                           .environment = {"MTRAIN_FAULT=train.step:0:delay=300"},
                           .signal_after = 0.01,
                           .signal_file = scratch / "stopped/0/metrics.jsonl",
                           .signal = SIGTERM});
  CHECK(stopped.status == 128 + SIGTERM);
  CHECK(has(stopped.out, "stopped"));
  rows = csv(scratch / "stopped/sweep.csv");
  REQUIRE(rows.size() == 3);
  CHECK(rows[1][2] == "stopped");
  CHECK(rows[2][2] == "not run");
}

TEST_CASE("a sweep does not take the run of another configuration for a trial's") {
  Scratch scratch("mtrain-sweep-same-folder");
  std::string r = scratch.write("r.yaml", tiny_recipe());
  auto sweep = [&](const std::string& values, const std::string& steps = "6") {
    return cli({r, "-m", "optimizer.lr=" + values, "train.steps=" + steps,
                "run.dir=" + (scratch / "s").string()});
  };
  REQUIRE(sweep("3e-3,4e-3").status == 0);
  const std::string table = slurp(scratch / "s/sweep.csv"),
                    metrics = slurp(scratch / "s/1/metrics.jsonl");
  for (const auto& [values, steps, wanted] :
       {std::tuple{"3e-3,6e-3", "6", "optimizer.lr: 0.004 -> 0.006"},
        {"3e-3,4e-3", "5", "train.steps: 6 -> 5"},
        {"3e-3,4e-3", "8", "train.steps: 6 -> 8"}}) {
    CAPTURE(values);
    Outcome other = sweep(values, steps);
    CHECK(other.status == 12);
    CHECK_MESSAGE(has(other.err, wanted), other.err);
    CHECK_MESSAGE(has(other.err, "run.dir=ANOTHER/FOLDER"), other.err);
    CHECK_FALSE(has(other.out, "trial 0"));  // none has begun
    CHECK(slurp(scratch / "s/sweep.csv") == table);
    CHECK(slurp(scratch / "s/1/metrics.jsonl") == metrics);
  }
  // Another validation would mix two sorts of losses in one column.
  Outcome validated = cli({r, "-m", "optimizer.lr=3e-3,4e-3", "train.steps=6", "validation.steps=2",
                           "run.dir=" + (scratch / "s").string()});
  CHECK(validated.status == 12);
  CHECK_MESSAGE(has(validated.err, "validation.steps: "), validated.err);
  // The same sweep goes on: what is complete is done, what is missing is trained.
  fs::remove_all(scratch / "s/1");
  Outcome again = sweep("3e-3,4e-3");
  CHECK_MESSAGE(again.status == 0, again.err);
  CHECK(slurp(scratch / "s/1/metrics.jsonl").size() > 0);
  auto rows = csv(scratch / "s/sweep.csv");
  REQUIRE(rows.size() == 3);
  CHECK(rows[1][2] == "done");
  CHECK(rows[2][2] == "done");
  CHECK(has(slurp(scratch / "s/sweep.csv"), "3e-3"));
}

TEST_CASE("a sweep without metrics counts the steps of its trials") {
  Scratch scratch("mtrain-sweep-silent");
  const std::string r = scratch.write("r.yaml", tiny_recipe());
  Outcome out = cli({r, "-m", "-q", "optimizer.lr=1e-3,2e-3", "train.steps=2",
                     "logger.metrics=false", "run.dir=" + (scratch / "s").string()});
  REQUIRE_MESSAGE(out.status == 0, out.err);
  CHECK(has(slurp(scratch / "s/sweep.csv"), "\n0,1e-3,done,2,"));
}

TEST_CASE("the time of a trial is that of its steps, over all calls of the sweep") {
  Scratch scratch("mtrain-sweep-seconds");
  const std::string r = scratch.write("r.yaml", tiny_recipe());
  auto sweep = [&](std::vector<std::string> environment = {}) {
    return cli({r, "-m", "-q", "rng.seed=1,2", "train.steps=6", "validation.steps=0",
                "run.dir=" + (scratch / "s").string()},
               std::move(environment));
  };
  auto seconds = [&](size_t trial) {
    const auto rows = csv(scratch / "s/sweep.csv");
    REQUIRE(rows.size() == 3);
    return std::stod(rows[trial + 1].back());
  };
  // The steps of the first trial take at least 0.1 s each, which a repetition would not.
  REQUIRE(sweep({"MTRAIN_FAULT=train.step:0:delay=100"}).status == 0);
  const double first = seconds(0);
  CHECK(first >= 0.6);
  CHECK(seconds(1) >= 0.6);
  REQUIRE(sweep().status == 0);
  CHECK(seconds(0) == first);
  // A trial that goes on keeps the time of its steps so far.
  fs::remove_all(scratch / "s/1/checkpoints/step-6");
  REQUIRE(sweep().status == 0);
  CHECK(seconds(0) == first);
  CHECK(seconds(1) >= 0.5);
}

TEST_CASE("a sweep of one value says what it ran with") {
  Scratch scratch("mtrain-sweep-one");
  Outcome out = cli({scratch.write("r.yaml", tiny_recipe()), "-m", "train.steps=2",
                     "optimizer.lr=1e-3", "run.dir=" + (scratch / "s").string()});
  REQUIRE_MESSAGE(out.status == 0, out.err);
  CHECK_MESSAGE(has(out.out, "optimizer.lr=1e-3"), out.out);
  auto rows = csv(scratch / "s/sweep.csv");
  REQUIRE(rows.size() == 2);
  CHECK(rows[0][2] == "optimizer.lr");
  CHECK(rows[1][2] == "1e-3");
}

TEST_CASE("each trial of a sweep has checkpoints of its own, also where checkpoint.dir is set") {
  Scratch scratch("mtrain-sweep-checkpoints");
  const std::string r = scratch.write("r.yaml", tiny_recipe());
  Outcome out =
      cli({r, "-m", "-q", "train.steps=4", "rng.seed=1,2", "run.dir=" + (scratch / "s").string(),
           "checkpoint.dir=" + (scratch / "c").string()});
  REQUIRE_MESSAGE(out.status == 0, out.err);
  for (const char* trial : {"0", "1"}) CHECK(fs::exists(scratch / "c" / trial / "step-4"));
  for (const char* trial : {"s/0", "s/1"})
    CHECK(std::filesystem::exists(scratch / trial / "metrics.jsonl"));
  // Another sweep cannot use them, whether its trials are the same or others.
  for (const char* seeds : {"rng.seed=1,2", "rng.seed=3,4"}) {
    Outcome other =
        cli({r, "-m", "-q", "train.steps=4", seeds, "run.dir=" + (scratch / "t").string(),
             "checkpoint.dir=" + (scratch / "c").string()});
    CHECK(other.status == 12);
    for (const char* part : {"trial 0: rng.seed=", "c/0 contains the checkpoints of another run",
                             "checkpoint.dir=ANOTHER/FOLDER"})
      CHECK_MESSAGE(has(other.err, part), other.err);
    CHECK_MESSAGE(!has(other.err, "another configuration"), other.err);
    CHECK_FALSE(fs::exists(scratch / "t"));
  }
}

TEST_CASE(
    "a setting that a sweep varies and that is given plainly, too, has one column: the last value "
    "counts") {
  Scratch scratch("mtrain-sweep-twice");
  std::string r = scratch.write("r.yaml", tiny_recipe());
  Outcome out = cli({r, "model.layers=1", "-m", "train.steps=2", "optimizer.lr=1e-3,2e-3",
                     "model.layers=range(1,3)", "run.dir=" + (scratch / "s").string()});
  REQUIRE_MESSAGE(out.status == 0, out.err);
  CHECK_FALSE(has(out.out, "model.layers=1 optimizer.lr"));
  auto rows = csv(scratch / "s/sweep.csv");
  REQUIRE(rows.size() == 5);
  CHECK(rows[0][1] == "optimizer.lr");
  CHECK(rows[0][2] == "model.layers");
  CHECK(rows[0][3] == "outcome");
  for (size_t i = 1; i < rows.size(); ++i) {
    CHECK(rows[i][2] == (i % 2 == 1 ? "1" : "2"));
    CHECK(has(slurp(scratch / "s" / rows[i][0] / "config/resolved.yaml"),
              "layers: " + rows[i][2] + "\n"));
  }
}

TEST_CASE(
    "a run.dir that depends on what varies names each trial's folder, and sweep.csv is in the one "
    "that holds them") {
  Scratch scratch("mtrain-sweep-named");
  scratch.write("r.yaml", tiny_recipe());
  const std::string words =
      "r.yaml -m -q train.steps=2 checkpoint.interval=0 'optimizer.lr=1e-3,2e-3' ";
  Outcome named = cli_in(scratch.path(), words + "'run.dir=out/lr-${optimizer.lr}'");
  REQUIRE_MESSAGE(named.status == 0, named.err);
  for (const char* trial : {"out/lr-1e-3", "out/lr-2e-3"})
    CHECK(fs::exists(scratch / trial / "metrics.jsonl"));
  CHECK(csv(scratch / "out/sweep.csv").size() == 3);
  auto listed = nlohmann::json::parse(cli_in(scratch.path(), "runs ls out --json").out);
  CHECK(listed.size() == 2);
  // Trials that would share a folder are refused before any begins, and by check.
  for (const std::string& words_of : {words, "check " + words}) {
    Outcome shared =
        cli_in(scratch.path(), words_of + "rng.seed=1,2 'run.dir=both/${optimizer.lr}'");
    CHECK(shared.status == 10);
    CHECK_MESSAGE(
        has(shared.err,
            "trials 0 (optimizer.lr=1e-3 rng.seed=1) and 1 (optimizer.lr=1e-3 rng.seed=2)"),
        shared.err);
    CHECK_MESSAGE(has(shared.err, "${run:trial}"), shared.err);
  }
  CHECK(cli_in(scratch.path(), words + "'run.dir=choice(in,in/it)' 'rng.seed=1'").status == 10);
  CHECK_FALSE(fs::exists(scratch / "both"));
  CHECK_FALSE(fs::exists(scratch / "in"));
  Outcome numbered = cli_in(scratch.path(), words + "'run.dir=n/trial-${run:trial}'");
  REQUIRE_MESSAGE(numbered.status == 0, numbered.err);
  CHECK(fs::exists(scratch / "n/trial-1/metrics.jsonl"));
}

TEST_CASE("-q leaves a sweep its result: the table alone") {
  Scratch scratch("mtrain-sweep-quiet");
  Outcome out = cli({scratch.write("r.yaml", tiny_recipe()), "-m", "-q", "train.steps=2",
                     "rng.seed=1,2", "run.dir=" + (scratch / "s").string()});
  REQUIRE_MESSAGE(out.status == 0, out.err);
  CHECK_MESSAGE(out.out.starts_with("trial  settings    outcome"), out.out);
  CHECK(std::count(out.out.begin(), out.out.end(), '\n') == 3);
}
