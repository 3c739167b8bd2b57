// The answers of a micro-batch, as answer_objective.cc and answer_scores.cc share them. Values.
#pragma once
#include <limits>
#include <string>
#include <vector>

#include "mtrain/train/answer_objective.h"

namespace mtrain {

inline constexpr int32_t kNoAnswer = -1;

/// Of each sample, 2 · row is the chosen or the only one, 2 · row + 1 the rejected one. Of an
/// objective over tokens, one for each token with a class, in their order.
struct AnswerObjective::Answers {
  std::vector<int32_t> of_token;  // of the targets of all tokens; kNoAnswer: of none
  std::vector<Answer> all;        // those without tokens are absent
  std::vector<int32_t> numbers;   // the last target of each: its class
  std::vector<int32_t> rows;      // of an objective over tokens: the sample of each
  std::vector<size_t> first;      // and the first answer of each sequence, and their number
  std::vector<double> scores;     // of a model of scores, [answers · labels]
  std::vector<double> slopes;     // of the objective, by answer; with scores like these
};

/// What an objective reports as means over records, apart from its own figures.
std::vector<std::string> reported_names(const Objective& objective);

/// Of no rewards: minus the least and the largest.
inline std::vector<double> no_extremes() {
  return std::vector<double>(2, -std::numeric_limits<double>::infinity());
}

}  // namespace mtrain
