// The answers of a micro-batch; shared by answer_objective.cc and answer_scores.cc. Values.
#pragma once
#include <limits>
#include <string>
#include <vector>

#include "mtrain/train/answer_objective.h"

namespace mtrain {

inline constexpr int32_t kNoAnswer = -1;

/// Answer 2 · row is the chosen or only answer of sample `row`, answer 2 · row + 1 the rejected
/// one. For an objective over tokens, each token with a class is an answer, in the order of tokens.
struct AnswerObjective::Answers {
  std::vector<int32_t> of_token;  // by token: the answer that its target belongs to, or kNoAnswer
  std::vector<Answer> all;        // an answer without tokens does not exist
  std::vector<int32_t> numbers;   // by answer: its last target, which is its class
  std::vector<int32_t> rows;      // objective over tokens, by answer: its sample
  std::vector<size_t> first;      // the same, by sequence: its first answer; at the end all.size()
  std::vector<double> scores;     // model of scores: [answers · labels]
  std::vector<double> slopes;     // derivatives of the objective: by answer, or as `scores`
};

/// The names of the means over records that are reported for an objective, without its figures().
std::vector<std::string> reported_names(const Objective& objective);

/// The extremes of no rewards, {minus the minimum, the maximum}: the start of a running maximum.
inline std::vector<double> no_extremes() {
  return std::vector<double>(2, -std::numeric_limits<double>::infinity());
}

}  // namespace mtrain
