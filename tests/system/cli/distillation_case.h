// Runs that distill from a small teacher; shared by the tests next to it.
#pragma once
#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "done.h"
#include "mtrain/base/text.h"
#include "roots.h"

namespace mtrain::testing {

/// A text of this tree's pages as prepared data `x`, of letters and blanks alone: the gradient of a
/// rare byte is mostly the rounding of earlier steps, and would differ between runs to compare.
inline void write_text(const Scratch& scratch) {
  std::string text;
  for (const char* page : {"README.md", "docs/data.md", "docs/checkpoints.md"})
    for (const char c : slurp(source_root() / page) + "\n\n")
      text += (c >= 'a' && c <= 'z') || c == '\n' ? c : c >= 'A' && c <= 'Z' ? char(c + 32) : ' ';
  scratch.write("x.txt", text);
  done(scratch, "data prepare -q -i x.txt -o x -t byte --append-eod --split-on blank-lines");
}

inline const std::string kDistillTraining =
    "tokenizer: byte\ndataset: {type: gpt, path: x, split: '90,10,0'}\nrun: {threads: 1}\n"
    "mixed_precision: {dtype: fp32}\nlogger: {tensorboard: false}\n"
    "scheduler: {type: constant}\nvalidation: {interval: 20, steps: 2}\n";

/// Recipes of a teacher, t.yaml, and of a smaller student, s.yaml.
inline void write_recipes(const Scratch& scratch) {
  scratch.write("t.yaml",
                "model: {type: llama, layers: 2, hidden_size: 64, heads: 4, kv_heads: 2, "
                "ffn_hidden_size: 128, seq_length: 32}\n" +
                    kDistillTraining +
                    "optimizer: {lr: 5e-3}\ntrain: {steps: 60, micro_batch_size: 8, "
                    "global_batch_size: 8}\n");
  scratch.write("s.yaml",
                "model: {type: llama, layers: 2, hidden_size: 32, heads: 2, kv_heads: 2, "
                "ffn_hidden_size: 64, seq_length: 32}\n" +
                    kDistillTraining +
                    "optimizer: {lr: 5e-3}\ntrain: {steps: 40, micro_batch_size: 4, "
                    "global_batch_size: 8}\n"
                    "objective: {type: distillation, teacher: teacher}\n");
}

/// Trains the teacher, as the run `teacher`.
inline void make_teacher(const Scratch& scratch) {
  write_text(scratch);
  write_recipes(scratch);
  done(scratch, "t.yaml -q run.dir=teacher");
}

/// A figure of all steps, or of all validations, of a run.
inline std::vector<double> figure(const std::filesystem::path& run, const std::string& name) {
  std::vector<double> out;
  for (const auto& row : rows(run, name.c_str()))
    if (!row.at(name).is_null()) out.push_back(row.at(name).get<double>());
  return out;
}

inline void check_close(const std::vector<double>& got, const std::vector<double>& want,
                        double epsilon) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i)
    CHECK(got[i] == doctest::Approx(want[i]).epsilon(epsilon));
}

/// Evaluates a command that must fail.
inline void refuses(const Scratch& scratch, const std::string& words, int status,
                    const std::string& part, const std::string& remedy = "") {
  const Outcome outcome = cli_in(scratch.path(), words);
  const std::string said = outcome.err + outcome.out, details = words + "\n" + said;
  CHECK_MESSAGE(outcome.status == status, details);
  CHECK_MESSAGE(has(said, part), details);
  CHECK_MESSAGE(has(said, remedy), details);
}

}  // namespace mtrain::testing
