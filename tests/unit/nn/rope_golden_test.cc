// Tables of rotary positions with scaled frequencies, compared with transformers' functions of the
// same kinds (tests/golden/rope_generate.py).
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "contract/harness.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/nn/rope_table.h"
#include "roots.h"

namespace mtrain {
namespace {

nlohmann::json cases() {
  std::ifstream file(testing::source_root() / "tests/golden/rope/golden.json");
  return nlohmann::json::parse(file).at("cases");
}

RopeConfig config_of(const nlohmann::json& settings) {
  return read_config<RopeConfig>(parse_yaml(settings.dump(), "golden.json"));
}

TEST_CASE("rope tables: every kind of scaling turns as transformers does") {
  std::set<std::string> kinds;
  contract::Fixture lab;
  for (const auto& row : cases()) {
    INFO(row.at("settings").dump(), ", ", row.at("length").dump(), " positions");
    const RopeConfig config = config_of(row.at("settings"));
    kinds.insert(config.scaling);
    const auto frequencies = row.at("frequencies").get<std::vector<double>>();
    const auto factor = row.at("attention_factor").get<double>();
    const auto length = row.at("length").get<int64_t>();
    RopeTable table =
        make_rope_table(lab.context(), config, length, row.at("head_dim").get<int64_t>());
    const auto half = static_cast<int64_t>(frequencies.size());
    REQUIRE(table.cos.shape() == Shape{length, half});
    auto cos = contract::values_of(table.cos), sin = contract::values_of(table.sin);
    for (int64_t position : {0, 1, 17})
      for (int64_t i = 0; i < half; ++i) {
        INFO("position ", position, ", pair ", i);
        const double angle = static_cast<double>(position) * frequencies[static_cast<size_t>(i)],
                     bound = 2e-7 * (1 + angle) * factor;
        const auto at = static_cast<size_t>(position * half + i);
        CHECK(std::fabs(cos[at] - factor * std::cos(angle)) < bound);
        CHECK(std::fabs(sin[at] - factor * std::sin(angle)) < bound);
      }
    // The small frequencies too: row 1 holds the sines of the frequencies themselves.
    for (size_t i = 0; i < frequencies.size(); ++i)
      CHECK(std::fabs(sin[static_cast<size_t>(half) + i] / (factor * std::sin(frequencies[i])) -
                      1) < 1e-6);
  }
  CHECK(kinds == std::set<std::string>{"linear", "dynamic", "yarn", "longrope", "llama3"});
}

}  // namespace
}  // namespace mtrain
