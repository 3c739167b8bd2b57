// A run on the GPU beside the same run on the CPU: the same losses within what the order of float sums can do.
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "mtrain/base/text.h"
#include "system/process.h"

using namespace mtrain;

namespace {

/// The number after "loss": of each line of a run's metrics.
std::vector<double> losses(const std::string& backend, const std::string& dtype) {
  testing::Scratch scratch(cat("mt-cuda-", backend, dtype));
  std::string run = (scratch / "run").string();
  std::string recipe = scratch.write("tiny.yaml", testing::tiny_recipe());
  auto out = testing::cli({recipe, "-q", "train.steps=10", cat("dist.backend=", backend),
                           cat("mixed_precision.dtype=", dtype), cat("run.dir=", run)});
  INFO(out.out << out.err);
  REQUIRE(out.status == 0);
  std::ifstream file(run + "/metrics.jsonl");
  std::vector<double> all;
  for (std::string line; std::getline(file, line);)
    if (size_t at = line.find("\"loss\":"); at != std::string::npos) all.push_back(std::atof(line.c_str() + at + 7));
  return all;
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
