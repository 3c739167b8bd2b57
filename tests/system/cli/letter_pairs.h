// Pairs of answers that a small model learns to tell apart: the words of this tree's pages, in
// small letters and in capitals; for the tests of quickstarts that learn from pairs.
#pragma once
#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "roots.h"
#include "training_run.h"

namespace mtrain::testing {

/// Settings with which such a recipe learns pairs.jsonl within 60 steps.
inline const std::string kLetterPairs =
    " dataset.path=pairs.jsonl mixed_precision=fp32 run.threads=2 train.steps=60 model.layers=2 "
    "model.hidden_size=128 model.heads=2 model.ffn_hidden_size=256 optimizer.lr=1e-3 "
    "validation.interval=0 ";

/// Writes pairs.jsonl: four words as prompt, the next six as chosen answer, in capitals as
/// rejected.
inline void write_letter_pairs(const Scratch& scratch) {
  std::vector<std::string> words;
  for (const char* page : {"README.md", "docs/data.md", "docs/checkpoints.md"}) {
    std::istringstream text(slurp(source_root() / page));
    for (std::string word; text >> word;)
      if (std::ranges::all_of(word, [](char c) { return std::isalpha(c) || c == '.' || c == ','; }))
        words.push_back(word);
  }
  auto joined = [](auto begin, auto end) {
    std::string out;
    for (auto at = begin; at != end; ++at) out += " " + *at;
    return out;
  };
  std::string lines;
  for (size_t at = 0; at + 10 <= words.size(); at += 10) {
    const auto first = words.begin() + static_cast<ptrdiff_t>(at);
    const std::string answer = joined(first + 4, first + 10);
    std::string capitals = answer;
    for (char& c : capitals) c = static_cast<char>(std::toupper(c));
    const nlohmann::json pair = {
        {"prompt", joined(first, first + 4)}, {"chosen", answer}, {"rejected", capitals}};
    lines += pair.dump() + "\n";
  }
  scratch.write("pairs.jsonl", lines);
}

}  // namespace mtrain::testing
