// The commands of docs/fine-tuning.md on a tiny folder, and the recipe quickstart_lora.
#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "done.h"
#include "golden_case.h"
#include "roots.h"

using namespace mtrain::testing;
using nlohmann::json;

namespace {

/// The shell lines of a section of the page.
std::string script_of(const std::string& heading) {
  const std::string page = slurp(source_root() / "docs/fine-tuning.md");
  size_t at = page.find("\n## " + heading + "\n");
  REQUIRE(at != std::string::npos);
  at = page.find("```sh\n", at);
  return page.substr(at + 6, page.find("\n```", at) - at - 6);
}

/// Questions with the sum of two digits, and pairs with a right and a wrong one.
void write_records(const Scratch& scratch) {
  std::string answers, pairs;
  for (int i = 0; i < 64; ++i) {
    const int a = i % 8, b = i / 8;
    const std::string question = "What is " + std::to_string(a) + " + " + std::to_string(b) + "?",
                      right = " " + std::to_string(a + b), wrong = " " + std::to_string(a + b + 1);
    answers += json{{"prompt", question}, {"completion", right}}.dump() + "\n";
    pairs += json{{"prompt", question}, {"chosen", right}, {"rejected", wrong}}.dump() + "\n";
  }
  scratch.write("answers.jsonl", answers);
  scratch.write("pairs.jsonl", pairs);
}

void run_script(const Scratch& scratch, const std::string& script, std::string& out) {
  write_at(scratch / "run.sh", "set -e\ncd '" + scratch.path().string() + "'\nPATH='" +
                                   (build_root() / "bin").string() + "':$PATH\n" + script + "\n");
  const Outcome outcome = run({.arguments = {"/bin/bash", (scratch / "run.sh").string()}});
  const std::string details = outcome.out + "\n" + outcome.err;
  REQUIRE_MESSAGE(outcome.status == 0, details);
  out = details;
}

}  // namespace

TEST_CASE("the commands of docs/fine-tuning.md work on a tiny folder") {
  const Scratch scratch("mtrain-fine-tuning");
  copy_model(scratch, source_root() / "tests/golden/llama_tiny");
  std::filesystem::create_directories(scratch / "models");
  std::filesystem::rename(scratch / "there", scratch / "models/base");
  write_records(scratch);
  // The sizes of the folder, and little training, for the recipes of Llama 3 8B.
  const std::string small =
      " model.layers=2 model.hidden_size=32 model.heads=4 model.kv_heads=2 "
      "model.ffn_hidden_size=80 "
      "model.vocab_size=200 model.seq_length=64 mixed_precision.dtype=fp32 run.threads=1 "
      "optimizer.lr=1e-2 train.epochs=4 dataset.split=1 validation.steps=0 validation.interval=0 "
      "checkpoint.interval=1000";
  std::istringstream lines(script_of("From a folder to tuned weights"));
  std::string script;
  for (std::string line; std::getline(lines, line);) {
    const bool recipe = line.find("mtrain llama3_8b") == 0 || line.find("mtrain check") == 0;
    script += line + (recipe ? small : "") + "\n";
  }
  std::string out;
  run_script(scratch, script, out);
  for (const char* part : {"adapters of step", "merged into 14 weights"})
    CHECK_MESSAGE(has(out, part), out);
  auto mean = [](const std::vector<double>& values, size_t begin, size_t count) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(begin);
    return std::accumulate(first, first + static_cast<std::ptrdiff_t>(count), 0.0) /
           static_cast<double>(count);
  };
  const std::vector<double> sft = column(scratch / "runs/sft", "loss"),
                            dpo = column(scratch / "runs/dpo", "rewards/margins");
  REQUIRE(sft.size() >= 4);
  CHECK(mean(sft, sft.size() - 2, 2) < mean(sft, 0, 1) - 0.1);
  REQUIRE(dpo.size() >= 4);
  CHECK(dpo.front() == doctest::Approx(0));
  CHECK(dpo.back() > 0);
  // Merged and separate adapters are one model, which has learned the answers.
  auto loss_of = [&](const std::string& from) {
    const std::string words = "eval -q --json --batches all --from " + from +
                              " dataset=sft dataset.path=answers.jsonl dataset.split='0,1' "
                              "model.seq_length=64 mixed_precision.dtype=fp32";
    return json::parse(done(scratch, words).out).at("loss").get<double>();
  };
  const double tuned = loss_of("models/tuned");
  CHECK(tuned == doctest::Approx(loss_of("models/sft --adapter adapters/dpo")).epsilon(2e-6));
  CHECK(tuned < loss_of("models/base") - 0.5);
  const std::string watched = script_of("Answers while training");
  run_script(scratch,
             watched + small + " dataset.split=90,10 validation.steps=1 validation.interval=2",
             out);
  std::istringstream texts(slurp(scratch / "runs/watched/generations.jsonl"));
  size_t generated = 0;
  for (std::string line; std::getline(texts, line); ++generated)
    CHECK(json::parse(line).at("prompt") ==
          (generated % 2 == 0 ? "What is 2 + 2?" : "What is 3 + 4?"));
  CHECK(generated >= 4);
  run_script(scratch, script_of("A folder of other sizes"), out);
  CHECK(column(scratch / "runs/small", "loss").size() == 5);
}

TEST_CASE("the recipe quickstart_lora learns answers that the model did not know") {
  const Scratch scratch("mtrain-quickstart-lora");
  std::string text, lines;
  for (const char* page : {"README.md", "docs/data.md", "docs/checkpoints.md"})
    text += slurp(source_root() / page);
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; in >> word;)
    if (word.size() > 2 &&
        std::ranges::all_of(word, [](unsigned char c) { return std::isalpha(c) != 0; }))
      words.push_back(word);
  // The answer is the question in capitals.
  for (size_t at = 0; at + 3 <= words.size(); at += 3) {
    std::string question = words[at] + " " + words[at + 1] + " " + words[at + 2], answer = " ";
    for (const char c : question) answer += static_cast<char>(std::toupper(c));
    lines += json{{"prompt", question}, {"completion", answer}}.dump() + "\n";
  }
  write_at(scratch / "text.txt", text);
  scratch.write("x.jsonl", lines);
  done(scratch,
       "data prepare -i text.txt -o data/text -t byte --append-eod --split-on blank-lines -q");
  const std::string sizes =
      " mixed_precision=fp32 run.threads=2 model.layers=2 model.hidden_size=128 model.heads=2 "
      "model.ffn_hidden_size=256 validation.interval=0 validation.steps=0";
  done(scratch, "quickstart -q run.dir=base dataset.path=data/text train.steps=150" + sizes);
  done(scratch,
       "quickstart_lora -q run.dir=run model.init_from=base dataset.path=x.jsonl "
       "train.steps=100" +
           sizes);
  const std::vector<double> loss = column(scratch / "run", "loss");
  REQUIRE(loss.size() == 100);
  const double early = std::accumulate(loss.begin(), loss.begin() + 3, 0.0) / 3,
               late = std::accumulate(loss.end() - 10, loss.end(), 0.0) / 10;
  CAPTURE(early);
  CHECK_MESSAGE(late < 0.8 * early, late);
  // The base is a run: its weights have names only in a folder.
  const Outcome refused = cli_in(scratch.path(), "export run out");
  CHECK(refused.status != 0);
  CHECK_MESSAGE(has(refused.err, "adapters of peft need a folder of their weights"), refused.err);
  const Outcome merged = done(scratch, "merge run --into merged");
  CHECK_MESSAGE(has(merged.out, (scratch / "base").string()), merged.out);
}
