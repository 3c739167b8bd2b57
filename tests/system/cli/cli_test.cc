// The command line as users meet it: exit statuses, one located message per mistake, and what each
// command leaves behind.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "../process.h"
#include "roots.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    ++n;
  return n;
}

}  // namespace

TEST_CASE("--help everywhere, with examples") {
  for (const char* command : {"", "train", "check", "bench", "eval", "generate", "data",
                              "checkpoint", "plugins", "doctor"}) {
    CAPTURE(command);
    std::vector<std::string> arguments = {"--help"};
    if (*command) arguments.insert(arguments.begin(), command);
    Outcome help = cli(arguments);
    CHECK(help.status == 0);
    CHECK(help.out.find("Example") != std::string::npos);
  }
}

struct Mistake {
  const char* name;
  std::vector<std::string> arguments;  // RECIPE and RUN are replaced
  int status;
  std::vector<std::string> says;
};

TEST_CASE("each mistake: its exit status, one error, its place and the way out") {
  Scratch scratch("mtrain-cli");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  std::string run_dir = "run.dir=" + (scratch / "r").string();
  const std::vector<Mistake> mistakes = {
      {"no arguments", {}, 2, {"help"}},
      {"unknown command", {"trian", "RECIPE"}, 2, {"train"}},
      {"unknown flag", {"train", "RECIPE", "--nonsense"}, 2, {"nonsense"}},
      {"absent recipe", {"train", "/nowhere/x.yaml"}, 10, {"/nowhere/x.yaml"}},
      {"unknown key",
       {"check", "RECIPE", "optimizr.lr=1"},
       10,
       {"optimizr", "command line", "optimizer"}},
      {"unknown leaf", {"check", "RECIPE", "model.layer=3"}, 10, {"model.layers"}},
      {"wrong type", {"check", "RECIPE", "train.steps=many"}, 10, {"train.steps", "integer"}},
      {"out of range",
       {"check", "RECIPE", "train.micro_batch_size=0"},
       10,
       {"train.micro_batch_size"}},
      {"unknown plugin", {"check", "RECIPE", "model.type=lama"}, 10, {"lama", "llama", "searched"}},
      {"bad batch",
       {"check", "RECIPE", "train.global_batch_size=5"},
       10,
       {"global-batch", "multiple"}},
      {"part not implemented",
       {"check", "RECIPE", "offload.modules=[core_attn]"},
       10,
       {"offload.modules"}},
      {"bad heads", {"train", "RECIPE", "RUN", "model.kv_heads=3"}, 10, {"kv_heads"}},
      {"no data",
       {"train", "RECIPE", "RUN", "dataset.type=gpt", "+dataset.path=/nowhere/corpus"},
       11,
       {"/nowhere/corpus"}},
      {"nothing saved", {"eval", "--from", "/nowhere"}, 12, {"/nowhere"}},
      {"must resume", {"train", "RECIPE", "RUN", "checkpoint.resume=must"}, 12, {"resume"}},
      {"absent weights", {"train", "RECIPE", "RUN", "model.init_from=/nowhere"}, 12, {"/nowhere"}},
      {"bad prompt options",
       {"generate", "--from", "x", "--temperature", "hot"},
       2,
       {"temperature"}},
  };
  for (const auto& mistake : mistakes) {
    CAPTURE(mistake.name);
    std::vector<std::string> arguments;
    for (const auto& argument : mistake.arguments)
      arguments.push_back(argument == "RECIPE" ? recipe : argument == "RUN" ? run_dir : argument);
    Outcome outcome = cli(arguments);
    CHECK_MESSAGE(outcome.status == mistake.status, outcome.err);
    CHECK(count(outcome.err, "mtrain: error[") == 1);
    for (const auto& text : mistake.says)
      CHECK_MESSAGE(outcome.err.find(text) != std::string::npos, outcome.err);
  }
}

TEST_CASE("all mistakes of a recipe come at once") {
  Scratch scratch("mtrain-all");
  std::string recipe = scratch.write(
      "bad.yaml", "model: {type: llama, layers: 0, heds: 4}\ndataset: mock\ntrain: {steps: ten}\n");
  Outcome outcome = cli({"check", recipe, "optimizer.lr=-1"});
  CHECK(outcome.status == 10);
  for (const char* text : {"model.layers", "model.heds", "model.heads", "train.steps",
                           "optimizer.lr", "bad.yaml:1:", "bad.yaml:3:"})
    CHECK_MESSAGE(outcome.err.find(text) != std::string::npos, outcome.err);
}

TEST_CASE("check writes nothing") {
  Scratch scratch("mtrain-pure");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  CHECK(cli({"check", recipe, "run.dir=" + (scratch / "r").string()}).status == 0);
  CHECK_FALSE(fs::exists(scratch / "r"));
}

TEST_CASE("the resolved recipe of a run trains to the same bits") {
  Scratch scratch("mtrain-again");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  REQUIRE(cli({recipe, "run.dir=" + (scratch / "a").string(), "optimizer.lr=1e-3", "-q"}).status ==
          0);
  std::string resolved = (scratch / "a" / "config" / "resolved.yaml").string();
  REQUIRE(cli({resolved, "run.dir=" + (scratch / "b").string(), "-q"}).status == 0);
  CHECK(digest(scratch / "a") == digest(scratch / "b"));
  Outcome once = cli({"check", "--resolved", recipe, "run.dir=x"}),
          file = cli({"check", "--resolved", recipe, "run.dir=x"});
  std::string path = scratch.write("once.yaml", once.out);
  CHECK(cli({"check", "--resolved", path}).out == once.out);
}

TEST_CASE(
    "micro-batch size and recompute never change the loss beyond rounding; same seed, same bits") {
  Scratch scratch("mtrain-same");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  auto losses = [&](const std::string& name, std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(),
                     {recipe, "run.dir=" + (scratch / name).string(), "train.steps=10", "-q"});
    Outcome outcome = cli(overrides);
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    std::vector<double> values;
    std::stringstream lines(slurp(scratch / name / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      values.push_back(nlohmann::json::parse(line).at("loss").get<double>());
    return values;
  };
  auto base = losses("base", {}), same = losses("same", {}),
       whole = losses("micro", {"train.micro_batch_size=4"}),
       replayed = losses("recompute", {"model.recompute=full"});
  REQUIRE(base.size() == 10);
  CHECK(base == same);
  CHECK(base == replayed);
  for (size_t i = 0; i < base.size(); ++i)
    CHECK(whole[i] == doctest::Approx(base[i]).epsilon(1e-5));
}

TEST_CASE("check refuses combinations of options in which one has no effect") {
  Scratch scratch("mtrain-pairs");
  const std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  for (const std::string sweep : {"--multirun", "--list"})
    for (const std::string other : {"--data", "--json", "--resolved"}) {
      Outcome outcome = cli({"check", recipe, sweep, other, "train.steps=1,2"});
      CHECK_MESSAGE(outcome.status == 2, outcome.out);
      CHECK_MESSAGE(outcome.err.find(other) != std::string::npos, outcome.err);
    }
  CHECK(cli({"check", recipe, "--json", "--resolved"}).status == 2);
}

TEST_CASE("a misspelled fault is an error: the test would inject nothing") {
  Scratch scratch("mtrain-fault");
  const std::string recipe = scratch.write("tiny.yaml", tiny_recipe()),
                    run_dir = "run.dir=" + (scratch / "r").string();
  for (const std::string fault : {"train.step:1:kil", "train.step:x", "train.step:1:errno=ENONE"}) {
    Outcome outcome = cli({recipe, run_dir, "-q"}, {"MTRAIN_FAULT=" + fault});
    CHECK_MESSAGE(outcome.status == 2, outcome.err);
    CHECK_MESSAGE(outcome.err.find(fault) != std::string::npos, outcome.err);
  }
}

TEST_CASE("a loss that is not finite stops with 14, updates nothing, and can be skipped") {
  Scratch scratch("mtrain-nan");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  std::string run_dir = "run.dir=" + (scratch / "r").string();
  Outcome stop = cli({recipe, run_dir, "-q"}, {"MTRAIN_FAULT=train.loss:7:nan"});
  CHECK(stop.status == 14);
  CHECK_MESSAGE(stop.err.find("step 7") != std::string::npos, stop.err);
  Outcome skip = cli({recipe, "run.dir=" + (scratch / "s").string(), "train.on_nonfinite=skip"},
                     {"MTRAIN_FAULT=train.loss:7:nan"});
  CHECK(skip.status == 0);
  CHECK(skip.out.find("at step 7 (samples 24 to 27): update skipped") != std::string::npos);
  CHECK_MESSAGE(skip.out.find("skipped") == skip.out.rfind("skipped"),
                skip.out);  // one line reports it
}

TEST_CASE("generate: the same seed gives the same text, another one another") {
  Scratch scratch("mtrain-gen");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe()), from = (scratch / "r").string();
  REQUIRE(cli({recipe, "run.dir=" + from, "train.steps=5", "-q"}).status == 0);
  auto text = [&](const char* seed) {
    return cli({"generate", "--from", from, "--prompt", "abc", "--max-tokens", "48", "--seed",
                seed})
        .out;
  };
  CHECK(text("3") == text("3"));
  CHECK(text("3") != text("4"));
  CHECK(text("3").starts_with("abc"));
  Outcome eval = cli({"eval", "--from", from, "--json"});
  CHECK(eval.status == 0);
  CHECK(nlohmann::json::parse(eval.out).at("loss").get<double>() > 0);
}

TEST_CASE("resuming with another architecture or optimizer is refused by name") {
  Scratch scratch("mtrain-other");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe()),
              run_dir = "run.dir=" + (scratch / "r").string();
  REQUIRE(cli({recipe, run_dir, "train.steps=5", "-q"}).status == 0);
  Outcome other = cli({recipe, run_dir, "model.hidden_size=64", "train.steps=9", "-q"});
  CHECK(other.status == 12);
  CHECK_MESSAGE(other.err.find("train.steps") == std::string::npos, other.err);  // which may change
  CHECK_MESSAGE(other.err.find("model.hidden_size: 32 -> 64") != std::string::npos, other.err);
  Outcome never = cli({recipe, run_dir, "checkpoint.resume=never", "-q"});
  CHECK(never.status == 12);
}

TEST_CASE("two jobs in one folder: the second is refused") {
  Scratch scratch("mtrain-two");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe()),
              run_dir = "run.dir=" + (scratch / "r").string();
  Outcome second;
  Outcome first = run({.arguments = {mtrain_binary(), recipe, run_dir, "-q"},
                       .environment = {"MTRAIN_FAULT=train.step:1:stop"},
                       .while_stopped = [&](pid_t) {
                         second = cli({recipe, run_dir, "-q"});
                       }});
  CHECK_MESSAGE(first.status == 0, first.err);
  CHECK_MESSAGE(second.status == 18, second.err);
}

TEST_CASE("the schema that is checked in is the schema of this build") {
  Outcome outcome = cli({"schema"});
  CHECK(outcome.status == 0);
  CHECK_MESSAGE(outcome.out == slurp(source_root() / "schemas/recipe.schema.json"),
                "stale: build/bin/mtrain schema > schemas/recipe.schema.json");
}
