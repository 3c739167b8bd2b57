// Runs of objectives over answers that are compared with the golden values of PyPI's trl; shared by
// the tests next to it.
#pragma once
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "done.h"
#include "golden_case.h"
#include "mtrain/base/text.h"
#include "mtrain/checkpoint/safetensors.h"
#include "mtrain/train/file_values.h"
#include "roots.h"

namespace mtrain::testing {

inline const nlohmann::json& golden_objectives() {
  static const nlohmann::json kGolden =
      nlohmann::json::parse(slurp(source_root() / "tests/golden/objectives/golden.json"));
  return kGolden;
}

/// The weights of llama_tiny as `there`, the golden records as p.jsonl and l.jsonl, and a recipe
/// for all records in each step.
inline void write_objective_case(const Scratch& scratch) {
  copy_model(scratch, source_root() / "tests/golden/llama_tiny");
  scratch.write("p.jsonl", lines_of(golden_objectives().at("pairs")));
  scratch.write("l.jsonl", lines_of(golden_objectives().at("labels")));
  scratch.write("r.yaml", "model: {type: llama, init_from: there, seq_length: 48}\n" +
                              kGoldenTraining +
                              "dataset: {type: preference, path: p.jsonl, split: '1'}\n"
                              "objective: {type: dpo}\n"
                              "train: {steps: 3, global_batch_size: 4, micro_batch_size: 2}\n");
}

/// As words of the command line.
inline std::string settings_of(const nlohmann::json& settings) {
  std::string out;
  for (const auto& [key, value] : settings.items())
    out += cat(" 'objective.", key, "=",
               value.is_string() ? value.get<std::string>() : value.dump(), "'");
  return out;
}

inline void check_close(const std::vector<double>& got, const std::vector<double>& want,
                        double epsilon) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i)
    CHECK(got[i] == doctest::Approx(want[i]).epsilon(epsilon).scale(1));
}

/// The largest one between the weights of two exports.
inline double weights_difference(const std::filesystem::path& folder,
                                 const std::filesystem::path& other) {
  return largest_difference(folder / "model.safetensors", other / "model.safetensors");
}

/// Compares the figures and the weights of a run with those of a golden case.
inline void check_learned(const Scratch& scratch, const std::string& run,
                          const nlohmann::json& wanted) {
  const nlohmann::json& steps = wanted.at("steps");
  for (const auto& [key, value] : steps.at(0).items()) {
    CAPTURE(key);
    std::vector<double> want;
    for (const auto& step : steps) want.push_back(step.at(key).get<double>());
    check_close(column(scratch / run, key), want, key == "grad_norm" ? 2e-5 : 1e-5);
  }
  done(scratch, "-q export " + run + " out-" + run);
  const SafetensorsFile file(scratch / ("out-" + run) / "model.safetensors");
  for (const auto& [tensor, values] : wanted.at("weights").items()) {
    CAPTURE(tensor);
    const std::vector<float> got = file_values(file, file.at(tensor));
    for (size_t i = 0; i < values.size(); ++i)
      CHECK(std::fabs(static_cast<double>(got[i]) - values[i].get<double>()) < 5e-6);
  }
}

}  // namespace mtrain::testing
