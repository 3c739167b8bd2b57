// AnswerObjective for models of scores: those at the targets, which are at the ends of sequences.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "mtrain/train/answers.h"

namespace mtrain {

std::vector<std::string> reported_names(const Objective& objective) {
  if (!objective.scores())
    return {"rewards/chosen",  "rewards/rejected", "rewards/accuracies",
            "rewards/margins", "logps/chosen",     "logps/rejected"};
  if (objective.records() == Objective::Records::pairs)
    return {"accuracy", "margin", "mean_reward"};
  return {};
}

int64_t AnswerObjective::routed_tokens(std::span<const MicroBatch> batches) const {
  int64_t count = 0;
  for (const MicroBatch& batch : batches)
    count += objective_->scores()
                 ? std::ssize(batch.tokens) -
                       std::accumulate(batch.padding.begin(), batch.padding.end(), int64_t{0})
                 : batch.num_target_tokens;
  return count;
}

double AnswerObjective::of_scores(const MicroBatch& batch, std::span<float> scores, bool training,
                                  Answers& answers) {
  take_own_tokens(batch, answers);
  MT_CHECK(scores.size() == answers.of_token.size() * labels_, scores.size(), " scores of ",
           answers.of_token.size(), " tokens and ", labels_, " labels");
  take_scores(batch, scores, answers);
  const double loss = evaluate(batch, answers);
  if (!training) return loss;
  std::ranges::fill(scores, 0.0f);
  for (size_t t = 0; t < answers.of_token.size(); ++t)
    for (size_t l = 0; l < labels_ && answers.of_token[t] != kNoAnswer; ++l)
      scores[t * labels_ + l] = static_cast<float>(
          weight_ * answers.slopes[static_cast<size_t>(answers.of_token[t]) * labels_ + l]);
  return loss;
}

/// Each score is on one rank of cp.
void AnswerObjective::take_scores(const MicroBatch& batch, std::span<const float> scores,
                                  Answers& answers) const {
  answers.scores.assign(answers.all.size() * labels_, 0);
  for (size_t t = 0; t < answers.of_token.size(); ++t)
    if (answers.of_token[t] != kNoAnswer)
      std::copy_n(scores.data() + t * labels_, labels_,
                  answers.scores.data() + static_cast<size_t>(answers.of_token[t]) * labels_);
  if (parallel_)
    if (const Axis* cp = active_axis(parallel_->cp))
      cp->comm().all_reduce(std::span(answers.scores));
  for (size_t row = 0; row < batch.margins.size(); ++row)
    answers.all[2 * row].margin = static_cast<double>(batch.margins[row]);
  for (size_t i = 0; i < answers.all.size(); ++i) {
    answers.all[i].score = answers.scores[i * labels_];
    MT_USER_CHECK(
        answers.all[i].tokens <= 1, ErrorClass::data,
        cat("sample ", batch.first_sample + static_cast<int64_t>(i / 2), " has ",
            answers.all[i].tokens, " targets in one sequence, and a model of scores has one"),
        "a dataset for DatasetContext::labels sets the target of the last token only");
    const auto begin = answers.scores.begin() + static_cast<ptrdiff_t>(i * labels_),
               end = begin + static_cast<ptrdiff_t>(labels_);
    const auto bad = std::find_if_not(begin, end, [](double s) { return std::isfinite(s); });
    MT_USER_CHECK(
        bad == end, ErrorClass::numeric,
        cat("the model's score ", bad - begin, " of sample ",
            batch.first_sample + static_cast<int64_t>(i / 2), " is ",
            std::isnan(*bad) ? "nan" : "infinite", ": no objective can be computed from it"),
        "training has diverged or the weights are damaged: continue from an earlier "
        "checkpoint with a smaller optimizer.lr, or with mixed_precision.dtype=bf16 "
        "instead of fp16");
  }
}

double AnswerObjective::of_class(Answers& answers, size_t index) {
  const auto number = static_cast<size_t>(answers.numbers[index]);
  MT_USER_CHECK(number < labels_, ErrorClass::data,
                cat("a sample has the class ", number, ", and the model has ", labels_),
                cat("classes count from 0; set model.labels to at least ", number + 1));
  const ClassValue value = objective_->of_class(
      std::span(answers.scores).subspan(index * labels_, labels_), answers.numbers[index]);
  MT_USER_CHECK(
      value.d_scores.size() == labels_, ErrorClass::plugin,
      cat("the objective returns ", value.d_scores.size(), " derivatives of ", labels_, " scores"),
      "ClassValue::d_scores has one value for each score");
  std::ranges::copy(value.d_scores,
                    answers.slopes.begin() + static_cast<ptrdiff_t>(index * labels_));
  report_further(value.figures);
  return value.loss;
}

/// With the names of trl's RewardTrainer.
void AnswerObjective::report_rewards(double chosen, double rejected) {
  report("accuracy", chosen > rejected ? 1 : 0);
  report("margin", chosen - rejected);
  report("mean_reward", (chosen + rejected) / 2);
  extremes_[0] = std::max({extremes_[0], -chosen, -rejected});
  extremes_[1] = std::max({extremes_[1], chosen, rejected});
}

}  // namespace mtrain
