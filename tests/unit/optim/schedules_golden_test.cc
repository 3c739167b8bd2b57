// Learning rates, compared with the schedulers of PyTorch and transformers
// (tests/golden/schedules_generate.py).
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "mtrain/config/yaml_load.h"
#include "mtrain/optim/lr_schedule.h"
#include "roots.h"

namespace mtrain {
namespace {

TEST_CASE("schedules: the rates of PyTorch's and transformers' schedulers") {
  std::ifstream file(testing::source_root() / "tests/golden/schedules/golden.json");
  const auto golden = nlohmann::json::parse(file);
  std::set<std::string> types;
  for (const auto& row : golden.at("cases")) {
    INFO(row.at("source").dump(), " ", row.at("scheduler").dump());
    const auto config =
        read_config<ScheduleConfig>(parse_yaml(row.at("scheduler").dump(), "golden.json"));
    types.insert(config.type);
    const auto lr = row.at("lr").get<double>();
    const auto total = row.at("total").get<int64_t>();
    const auto rates = row.at("rates").get<std::vector<double>>();
    REQUIRE(std::ssize(rates) == total);
    for (int64_t step = 0; step < total; ++step) {
      INFO("step ", step);
      const double got = learning_rate(config, lr, step, total);
      CHECK(std::fabs(got - rates[static_cast<size_t>(step)]) <= 1e-12 * lr);
    }
  }
  std::string all;
  for (const std::string& type : types) all += type + " ";
  CHECK(all ==
        "constant cosine cosine_restarts exponential linear multistep polynomial stages wsd ");
}

}  // namespace
}  // namespace mtrain
