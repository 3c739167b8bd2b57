// A run on the GPU against the same run on the CPU: the same losses within what the order of float
// sums can do.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "mtrain/base/text.h"
#include "system/process.h"

using namespace mtrain;

namespace {

/// The lines of a run's metrics.
std::vector<std::string> metrics(const std::string& backend, const std::string& dtype,
                                 const std::vector<std::string>& layout) {
  testing::Scratch scratch(cat("mt-cuda-", backend, dtype));
  std::string run = (scratch / "run").string();
  std::string recipe = scratch.write("tiny.yaml", testing::tiny_recipe());
  std::vector<std::string> words = {recipe,
                                    "-q",
                                    "train.steps=10",
                                    cat("dist.backend=", backend),
                                    cat("mixed_precision.dtype=", dtype),
                                    cat("run.dir=", run)};
  words.insert(words.end(), layout.begin(), layout.end());
  auto out = testing::cli(words);
  INFO(out.out << out.err);
  REQUIRE(out.status == 0);
  std::ifstream file(run + "/metrics.jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

/// The number after "figure": in each line that has one.
std::vector<double> numbers(const std::vector<std::string>& lines, const std::string& figure) {
  std::vector<double> all;
  std::string key = cat("\"", figure, "\":");
  for (const std::string& line : lines)
    if (size_t at = line.find(key); at != std::string::npos)
      all.push_back(std::atof(line.c_str() + at + key.size()));
  return all;
}

std::vector<double> losses(const std::string& backend, const std::string& dtype,
                           const std::vector<std::string>& layout = {}) {
  return numbers(metrics(backend, dtype, layout), "loss");
}

}  // namespace

TEST_CASE("ten steps give the CPU's losses") {
  for (const char* dtype : {"fp32", "bf16"}) {
    std::vector<double> cpu = losses("cpu", dtype), gpu = losses("cuda", dtype);
    REQUIRE(cpu.size() >= 10);
    REQUIRE(gpu.size() == cpu.size());
    double allowed = std::string_view(dtype) == "fp32" ? 1e-5 : 5e-3;
    for (size_t i = 0; i < cpu.size(); ++i) {
      INFO(dtype << ", step " << i + 1);
      CHECK(std::fabs(gpu[i] - cpu[i]) <= allowed * std::fabs(cpu[i]));
    }
    CHECK(losses("cuda", dtype) == gpu);  // and the same bits when run again
  }
}

TEST_CASE(
    "ten steps that are recorded as CUDA graphs give the bits of ten that are not, and soon make "
    "no more graphs") {
  for (const char* dtype : {"fp32", "bf16"})
    for (std::vector<std::string> layout : std::vector<std::vector<std::string>>{
             {"train.global_batch_size=8"},  // several micro-batches, each of which the host waits
                                             // for
             {"train.global_batch_size=8", "model.recompute=full"},
             {"dist.nproc=2", "dist.zero=1", "ddp.overlap_grad_reduce=true",
              "ddp.overlap_param_gather=true"}}) {
      INFO(dtype << " " << layout.back());
      std::vector<std::string> plain = metrics("cuda", dtype, layout);
      layout.insert(layout.end(), {"cuda_graph.type=full_iteration", "cuda_graph.warmup_steps=2"});
      std::vector<std::string> recorded = metrics("cuda", dtype, layout);
      CHECK(numbers(recorded, "loss") == numbers(plain, "loss"));
      CHECK(numbers(recorded, "grad_norm") == numbers(plain, "grad_norm"));
      std::vector<double> graphs = numbers(recorded, "graphs"),
                          made = numbers(recorded, "graphs_made");
      REQUIRE(graphs.size() == 8);
      CHECK(*std::min_element(graphs.begin(), graphs.end()) > 0);
      CHECK(made.front() == graphs.front());
      CHECK(made.back() == 0);
    }
}

TEST_CASE("ranks that share the GPU give one CPU rank's losses in every layout") {
  std::vector<double> cpu = losses("cpu", "fp32");
  for (std::vector<std::string> layout : std::vector<std::vector<std::string>>{
           {"dist.nproc=2", "ddp.overlap_grad_reduce=true"},
           {"dist.nproc=2", "dist.zero=3", "ddp.overlap_grad_reduce=true",
            "ddp.overlap_param_gather=true"},
           {"dist.nproc=2", "dist.zero=3", "dist.resident_stages=1"},
           {"dist.nproc=2", "dist.tp=2", "dist.sp=true"},
           {"dist.nproc=4", "dist.tp=4"},
           {"dist.nproc=2", "dist.pp=2"},
           {"dist.nproc=2", "dist.cp=2"}}) {
    std::vector<double> gpu = losses("cuda", "fp32", layout);
    INFO(layout[0] << " " << layout.back());
    REQUIRE(gpu.size() == cpu.size());
    for (size_t i = 0; i < cpu.size(); ++i)
      CHECK(std::fabs(gpu[i] - cpu[i]) <= 1e-4 * std::fabs(cpu[i]));
  }
}

TEST_CASE("a checkpoint that is copied while kernels run is that of its step") {
  testing::Scratch scratch("mt-cuda-async");
  std::string recipe = scratch.write("tiny.yaml", testing::tiny_recipe());
  std::vector<std::string> digests[2];
  for (int async : {0, 1}) {
    std::string folder = (scratch / std::to_string(async)).string();
    auto out =
        testing::cli({recipe, "-q", "train.steps=15", "checkpoint.interval=5", "dist.backend=cuda",
                      "model.hidden_size=512",  // tensors long enough for page-locked pieces
                      cat("checkpoint.async=", async ? "true" : "false"), cat("run.dir=", folder)},
                     {"MTRAIN_FAULT=ckpt.copy:5:delay=500"});
    INFO(out.err);
    REQUIRE(out.status == 0);
    for (int step : {5, 10, 15})
      digests[async].push_back(
          testing::cli({"checkpoint", "digest", folder, "--step", std::to_string(step)}).out);
  }
  CHECK(digests[0][0].size() == 65);
  CHECK(digests[0] == digests[1]);
}
