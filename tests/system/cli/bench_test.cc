// mtrain bench and profiling.type=trace.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "../process.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;
using Json = nlohmann::json;

TEST_CASE("bench shows speed and kernels, asks the system for nothing while it runs, and leaves nothing behind") {
  Scratch scratch("mtrain-bench-test");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  fs::create_directory(scratch / "tmp");
  Outcome out = run({.arguments = {mtrain_binary(), "bench", recipe, "--steps", "4", "--json"},
                     .environment = {"TMPDIR=" + (scratch / "tmp").string()}});
  REQUIRE_MESSAGE(out.status == 0, out.err);
  Json seen = Json::parse(out.out);
  CHECK(seen["step_seconds"].size() == 4);
  CHECK(seen["losses"].size() == 4);
  CHECK(seen["tokens_per_second"].get<double>() > 0);
  CHECK(seen["system_allocations"] == 0);
  double kernels = seen["profile"]["kernel_ms"];
  CHECK(kernels > 0);
  CHECK(kernels < 4 * seen["profile"]["step_ms"].get<double>());
  CHECK(fs::is_empty(scratch / "tmp"));
}

TEST_CASE("bench does not touch the checkpoints of the recipe") {
  Scratch scratch("mtrain-bench-own");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe()), folder = (scratch / "kept").string();
  REQUIRE(cli({"train", recipe, "run.dir=" + (scratch / "run").string(), "checkpoint.dir=" + folder, "-q"}).status == 0);
  std::string before = digest(scratch / "kept");
  REQUIRE(before.size() == 65);
  Outcome out = cli({"bench", recipe, "--steps", "1", "--json", "checkpoint.dir=" + folder, "checkpoint.resume=must",
                     "run.dir=" + (scratch / "run").string()});
  REQUIRE_MESSAGE(out.status == 0, out.err);
  CHECK(digest(scratch / "kept") == before);
}

TEST_CASE("bench computes what training computes") {
  Scratch scratch("mtrain-bench-loss");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  Outcome bench = cli({"bench", recipe, "--steps", "3", "--warmup", "0", "--json"});
  REQUIRE_MESSAGE(bench.status == 0, bench.err);
  REQUIRE(cli({"train", recipe, "run.dir=" + (scratch / "run").string(), "--quiet"}).status == 0);
  std::istringstream metrics(slurp(scratch / "run" / "metrics.jsonl"));
  Json losses = Json::parse(bench.out)["losses"];
  std::string line;
  for (const auto& loss : losses) {
    REQUIRE(std::getline(metrics, line));
    CHECK(Json::parse(line)["loss"] == loss);
  }
}

TEST_CASE("bench: a table with the kernel that is furthest from its limit; too many steps are refused") {
  Scratch scratch("mtrain-bench-table");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  Outcome table = cli({"bench", recipe, "--steps", "1", "--trace", (scratch / "t.json").string()});
  CHECK_MESSAGE(table.status == 0, table.err);
  for (const char* part : {"of roof", "gemm", "furthest from its limit: ", "tokens/s"})
    CHECK_MESSAGE(table.out.find(part) != std::string::npos, part);
  CHECK(Json::parse(slurp(scratch / "t.json"))["traceEvents"].size() > 10);
  Outcome refused = cli({"bench", recipe, "--steps", "500"});
  CHECK(refused.status == 2);
  CHECK(refused.err.find("train.steps=502") != std::string::npos);
}

TEST_CASE("profiling.type=trace writes the steps it was asked for") {
  Scratch scratch("mtrain-trace");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  Outcome out = cli({"train", recipe, "run.dir=" + (scratch / "run").string(), "profiling.type=trace",
                     "profiling.start=2", "profiling.end=4", "train.steps=6", "scheduler.warmup_steps=1",
                     "validation.interval=4"});
  REQUIRE_MESSAGE(out.status == 0, out.err);
  CHECK(out.out.find("trace of steps 3 to 4") != std::string::npos);
  Json trace = Json::parse(slurp(scratch / "run" / "trace-3-4.json"));
  int forwards = 0;
  for (const auto& event : trace["traceEvents"]) forwards += event["name"] == "forward";
  CHECK(forwards == 4);  // two micro-batches in each of two steps, and no validation
}
