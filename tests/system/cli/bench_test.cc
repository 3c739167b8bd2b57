// mtrain bench, profiling.type=trace, and what logger settings report of a run.
#include <span>

#include "mtrain/checkpoint/safetensors.h"
#include "training_run.h"

using namespace mtrain;
using namespace mtrain::testing;

TEST_CASE(
    "bench shows speed and kernels, asks the system for nothing while it runs, and leaves nothing "
    "behind") {
  Scratch scratch("mtrain-bench-test");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  fs::create_directory(scratch / "tmp");
  Outcome out = run({.arguments = {mtrain_binary(), "bench", recipe, "--steps", "4", "--json"},
                     .environment = {"TMPDIR=" + (scratch / "tmp").string()}});
  REQUIRE_MESSAGE(out.status == 0, out.err);
  Json seen = Json::parse(out.out);
  CHECK(seen["step_seconds"].size() == 4);
  CHECK(seen["losses"].size() == 4);
  std::vector<double> seconds = seen["step_seconds"];
  std::sort(seconds.begin(), seconds.end());
  CHECK(seen["tokens_per_second"].get<double>() ==
        doctest::Approx(4 * 32 / ((seconds[1] + seconds[2]) / 2)));
  CHECK(seen["system_allocations"] == 0);
  double kernels = seen["profile"]["kernel_ms"];
  CHECK(kernels > 0);
  CHECK(kernels < 4 * seen["profile"]["step_ms"].get<double>());
  CHECK(fs::is_empty(scratch / "tmp"));
}

TEST_CASE("bench does not touch the checkpoints of the recipe") {
  Scratch scratch("mtrain-bench-own");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe()),
              folder = (scratch / "kept").string();
  REQUIRE(cli({"train", recipe, "run.dir=" + (scratch / "run").string(), "checkpoint.dir=" + folder,
               "-q"})
              .status == 0);
  std::string before = digest(scratch / "kept");
  REQUIRE(before.size() == 65);
  Outcome out = cli({"bench", recipe, "--steps", "1", "--json", "checkpoint.dir=" + folder,
                     "checkpoint.resume=must", "run.dir=" + (scratch / "run").string()});
  REQUIRE_MESSAGE(out.status == 0, out.err);
  CHECK(digest(scratch / "kept") == before);
}

TEST_CASE("the operations of a token are those that a step computes, also with frozen weights") {
  const Scratch scratch("mtrain-bench-operations");
  const std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  // Operations of a token as reported, and those of the products as profiled.
  auto operations = [&](const std::vector<std::string>& settings) {
    std::vector<std::string> words = {"bench", recipe, "--steps", "2", "--json", "model.layers=6"};
    words.insert(words.end(), settings.begin(), settings.end());
    const Outcome out = cli(words);
    REQUIRE_MESSAGE(out.status == 0, out.err);
    const Json seen = Json::parse(out.out);
    double products = 0;
    for (const Json& kernel : seen["profile"]["kernels"]) {
      const std::string name = kernel["kernel"];
      if (name == "gemm" || name.starts_with("attention"))
        products += 1e6 * kernel["gflops"].get<double>() * kernel["ms"].get<double>();
    }
    return std::pair{1e12 * seen["tflops"].get<double>() / seen["tokens_per_second"].get<double>(),
                     products / seen["tokens_per_step"].get<double>()};
  };
  const auto [all, all_done] = operations({});
  const auto [few, few_done] = operations({"peft.type=lora", "peft.rank=2"});
  CAPTURE(all_done / all);
  CAPTURE(few_done / few);
  CHECK(few < 0.8 * all);
  CHECK(few / all == doctest::Approx(few_done / all_done).epsilon(0.08));
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

TEST_CASE(
    "bench: a table with the kernel of the largest time above the roofline; too many steps are "
    "refused") {
  Scratch scratch("mtrain-bench-table");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  Outcome table = cli({"bench", recipe, "--steps", "1", "--trace", (scratch / "t.json").string()});
  CHECK_MESSAGE(table.status == 0, table.err);
  for (const char* part : {"of roofline", "gemm", "largest time above the roofline: ", "tokens/s"})
    CHECK_MESSAGE(table.out.find(part) != std::string::npos, part);
  CHECK(Json::parse(slurp(scratch / "t.json"))["traceEvents"].size() > 10);
  Outcome refused = cli({"bench", recipe, "--steps", "500"});
  CHECK(refused.status == 2);
  CHECK(refused.err.find("train.steps=502") != std::string::npos);
}

TEST_CASE("profiling.type=trace writes the steps it was asked for") {
  Scratch scratch("mtrain-trace");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  Outcome out = cli({"train", recipe, "run.dir=" + (scratch / "run").string(),
                     "profiling.type=trace", "profiling.start=2", "profiling.end=4",
                     "train.steps=6", "scheduler.warmup_steps=1", "validation.interval=4"});
  REQUIRE_MESSAGE(out.status == 0, out.err);
  CHECK(out.out.find("trace of steps 3 to 4") != std::string::npos);
  Json trace = Json::parse(slurp(scratch / "run" / "trace-3-4.json"));
  int forwards = 0;
  for (const auto& event : trace["traceEvents"]) forwards += event["name"] == "forward";
  CHECK(forwards == 4);  // two micro-batches in each of two steps, and no validation
  CHECK_FALSE(fs::exists(scratch / "run" / "trace-3-4-rank1.json"));
  Outcome both = cli({"train", recipe, "run.dir=" + (scratch / "both").string(),
                      "profiling.type=trace", "dist.nproc=2", "profiling.start=2",
                      "profiling.end=4", "train.steps=6", "profiling.ranks=[0,1]", "-q"});
  REQUIRE_MESSAGE(both.status == 0, both.err);
  for (const char* file : {"trace-3-4.json", "trace-3-4-rank1.json"})
    CHECK(Json::parse(slurp(scratch / "both" / file))["traceEvents"].size() > 10);
  // A run that has passed these steps says that it writes no trace.
  Outcome past = cli({"train", recipe, "run.dir=" + (scratch / "run").string(),
                      "profiling.type=trace", "profiling.start=2", "profiling.end=4",
                      "train.steps=8", "scheduler.warmup_steps=1", "validation.interval=4"});
  CHECK(past.status == 0);
  CHECK_MESSAGE(past.err.find("no trace is written: profiling.end is 4") != std::string::npos,
                past.err);
}

TEST_CASE(
    "logger.params_norm is the norm of the saved parameters under every layout, and "
    "logger.memory_interval reports memory") {
  Scratch scratch("mtrain-norm");
  const std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  const Words base = {"train.steps=4", "logger.params_norm=true", "checkpoint.interval=0"};
  Outcome out = cli(
      with({recipe, "run.dir=" + (scratch / "one").string(), "logger.memory_interval=2"}, base));
  REQUIRE_MESSAGE(out.status == 0, out.err);
  for (const char* part :
       {"memory after step 2: ", "memory after step 4: ", "at the peak (", "planned"})
    CHECK_MESSAGE((out.out + out.err).find(part) != std::string::npos, part);
  CHECK((out.out + out.err).find("memory after step 3: ") == std::string::npos);
  double squares = 0;
  SafetensorsFile saved(scratch / "one" / "checkpoints" / "step-4" /
                        "shard-00000-of-00001.safetensors");
  for (const TensorInfo& tensor : saved.tensors()) {
    if (tensor.name.ends_with(".exp_avg") || tensor.name.ends_with(".exp_avg_sq")) continue;
    REQUIRE(tensor.dtype == DType::f32);
    std::vector<float> elements(static_cast<size_t>(tensor.shape.numel()));
    saved.read(tensor, std::as_writable_bytes(std::span(elements)));
    for (float element : elements) squares += double{element} * element;
  }
  const double norm = rows(scratch / "one", "params_norm").back().at("params_norm").get<double>();
  CHECK(std::fabs(norm / std::sqrt(squares) - 1) < 1e-12);
  int number = 0;
  for (const Words& layout :
       {Words{"dist.nproc=2", "dist.zero=3"}, Words{"dist.nproc=2", "dist.tp=2"},
        Words{"dist.nproc=2", "dist.pp=2"}}) {
    CAPTURE(layout.back());
    const fs::path folder = scratch / ("layout" + std::to_string(number++));
    train(recipe, folder, with(base, layout));
    CHECK(std::fabs(rows(folder, "params_norm").back().at("params_norm").get<double>() / norm - 1) <
          1e-5);
  }
}
