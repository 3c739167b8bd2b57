// Runs that are compared with golden values of other programs: the weights and records as files,
// the optimizer of golden_common.py, and differences; shared by the tests next to it.
#pragma once
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mtrain/checkpoint/safetensors.h"
#include "mtrain/train/file_values.h"
#include "shell.h"
#include "small_tokenizer.h"
#include "training_run.h"

namespace mtrain::testing {

/// Ids as text of small_tokenizer().
inline std::string text_of(const nlohmann::json& ids) {
  std::string out;
  for (const auto& id : ids) out += small_token(id.get<size_t>());
  return out;
}

/// Copies a model's folder to `there`, with a tokenizer of so many ids, one for each character.
inline void copy_model(const Scratch& scratch, const std::filesystem::path& folder,
                       size_t ids = 200) {
  std::filesystem::create_directories(scratch / "there");
  for (const char* file : {"config.json", "model.safetensors"})
    std::filesystem::copy(folder / file, scratch / "there" / file);
  write_at(scratch / "there/tokenizer.json", small_tokenizer(ids));
  write_at(scratch / "there/tokenizer_config.json", R"({"eos_token": "</s>"})");
}

/// Records as lines of JSON; lists of ids become text.
inline std::string lines_of(const nlohmann::json& records) {
  std::string out;
  for (const auto& record : records) {
    nlohmann::json line;
    for (const auto& [key, value] : record.items())
      line[key] = value.is_array() ? nlohmann::json(text_of(value)) : value;
    out += line.dump() + "\n";
  }
  return out;
}

/// The parts of a recipe that all golden cases share: AdamW as in golden_common.py, in fp32.
inline const std::string kGoldenTraining =
    "tokenizer: {type: hf, path: there}\n"
    "run: {threads: 1}\nmixed_precision: {dtype: fp32}\n"
    "logger: {tensorboard: false}\nscheduler: {type: constant}\n"
    "optimizer: {type: adamw, lr: 1e-3, beta1: 0.9, beta2: 0.95, eps: 1e-8, "
    "weight_decay: 0.1, clip_grad: 1.0}\nvalidation: {steps: 0}\n";

/// A figure of all steps of a run, or of all validations.
inline std::vector<double> column(const std::filesystem::path& run, const std::string& name) {
  std::vector<double> out;
  for (const auto& row : rows(run, name.c_str()))
    if (!row.at(name).is_null()) out.push_back(row.at(name).get<double>());
  return out;
}

/// The largest difference of an element in two files of the same tensors.
inline double largest_difference(const std::filesystem::path& file,
                                 const std::filesystem::path& other) {
  const SafetensorsFile a(file), b(other);
  double worst = 0;
  CHECK(a.tensors().size() == b.tensors().size());
  for (const TensorInfo& t : a.tensors()) {
    const std::vector<float> x = file_values(a, t), y = file_values(b, b.at(t.name));
    REQUIRE(x.size() == y.size());
    for (size_t i = 0; i < x.size(); ++i)
      worst = std::max(worst, std::fabs(static_cast<double>(x[i]) - static_cast<double>(y[i])));
  }
  return worst;
}

/// Changes the first element of a tensor of a file in fp32, whose name ends in `name`.
inline void spoil_tensor(const std::filesystem::path& file, const std::string& name) {
  uint64_t offset = 0;
  const SafetensorsFile before(file);
  for (const TensorInfo& t : before.tensors())
    if (t.name.ends_with(name)) offset = t.offset;
  REQUIRE(offset > 0);
  const float changed = 0.75f;
  std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
  out.seekp(static_cast<std::streamoff>(offset));
  out.write(reinterpret_cast<const char*>(&changed), sizeof changed);
}

}  // namespace mtrain::testing
