// Training runs of small recipes, and what they left in their folders; shared by the tests next to
// it.
#pragma once
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../process.h"

namespace mtrain::testing {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

inline Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

inline std::string text(const Words& words) {
  std::string out;
  for (const auto& word : words) out += word + " ";
  return out;
}

/// A recipe for one thread. `model`: the settings within the braces; `sections`: lines of YAML.
inline std::string quant_recipe(const std::string& model, const std::string& sections,
                                const std::string& dataset = "mock") {
  return "model: {" + model + "}\ndataset: " + dataset +
         "\nrun: {threads: 1}\nlogger: {tensorboard: false}\n" + sections;
}

inline Outcome run_training(const std::string& recipe, const std::filesystem::path& folder,
                            const Words& words, const Words& launcher = {}) {
  return cli(with(with(launcher, {recipe, "-q", "run.dir=" + folder.string()}), words));
}

/// The same; the run must succeed.
inline void train(const std::string& recipe, const std::filesystem::path& folder,
                  const Words& words, const Words& launcher = {}) {
  Outcome out = run_training(recipe, folder, words, launcher);
  std::string details = text(words) + out.err;
  REQUIRE_MESSAGE(out.status == 0, details);
}

/// Rows of a run's metrics that have a key: "grad_norm" those of steps, "val_loss" those with a
/// validation; all without one.
inline std::vector<Json> rows(const std::filesystem::path& folder, const char* key = nullptr) {
  std::vector<Json> out;
  std::ifstream in(folder / "metrics.jsonl");
  for (std::string line; std::getline(in, line);)
    if (Json row = Json::parse(line); !key || row.contains(key)) out.push_back(row);
  return out;
}

/// The relative difference of a figure in two rows; 1 if only one of them has it.
inline double apart(const Json& a, const Json& b, const char* key) {
  if (a.at(key).is_null() || b.at(key).is_null())
    return a.at(key).is_null() && b.at(key).is_null() ? 0 : 1;
  return std::fabs(a.at(key).get<double>() / b.at(key).get<double>() - 1);
}

/// Restores the run to the state before its checkpoint of a step, which must exist.
inline void forget_checkpoint(const std::filesystem::path& folder, int step) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "checkpoints"))
    if (entry.is_directory() && entry.path().filename().string().ends_with(std::to_string(step)))
      found.push_back(entry.path());
  REQUIRE(found.size() == 1);
  std::filesystem::remove_all(found[0]);
}

}  // namespace mtrain::testing
