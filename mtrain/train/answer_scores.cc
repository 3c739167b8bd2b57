// AnswerObjective for models of scores: those at the targets, which are at the ends of sequences or
// at all tokens that have a class.
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

AnswerObjective::Answers AnswerObjective::labeled_tokens(const MicroBatch& batch) {
  Answers out;
  out.of_token.assign(batch.targets.size(), kNoAnswer);
  size_t sequence = 0;
  for (size_t t = 0; t < batch.targets.size(); ++t) {
    if (sequence < batch.cu_seqlens.size() &&
        static_cast<size_t>(batch.cu_seqlens[sequence]) == t) {
      out.first.push_back(out.numbers.size());
      ++sequence;
    }
    if (batch.targets[t] == kIgnoredTarget) continue;
    out.of_token[t] = static_cast<int32_t>(out.numbers.size());
    out.numbers.push_back(batch.targets[t]);
    out.rows.push_back(static_cast<int32_t>(t / static_cast<size_t>(batch.seq_length)));
  }
  out.first.push_back(out.numbers.size());
  out.all.assign(out.numbers.size(), Answer{.tokens = 1});
  return out;
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
    if (const Axis* cp = active_axis(parallel_->cp); cp && !answers.scores.empty())
      cp->comm().all_reduce(std::span(answers.scores));
  const auto sample_of = [&](size_t i) {
    return batch.first_sample + (of_tokens() ? answers.rows[i] : static_cast<int64_t>(i / 2));
  };
  for (size_t row = 0; !of_tokens() && row < batch.margins.size(); ++row)
    answers.all[2 * row].margin = static_cast<double>(batch.margins[row]);
  for (size_t i = 0; i < answers.all.size(); ++i) {
    answers.all[i].score = answers.scores[i * labels_];
    MT_USER_CHECK(answers.all[i].tokens <= 1, ErrorClass::data,
                  cat("sample ", sample_of(i), " has ", answers.all[i].tokens,
                      " targets in one sequence, but a model of scores allows one"),
                  "a dataset for DatasetContext::labels sets the target of the last token only");
    const auto begin = answers.scores.begin() + static_cast<ptrdiff_t>(i * labels_),
               end = begin + static_cast<ptrdiff_t>(labels_);
    const auto bad = std::find_if_not(begin, end, [](double s) { return std::isfinite(s); });
    MT_USER_CHECK(
        bad == end, ErrorClass::numeric,
        cat("the model's score ", bad - begin, " of sample ", sample_of(i), " is ",
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

/// The figures of whole sequences of tokens.
void AnswerObjective::report_sequences(const Answers& answers) {
  std::vector<int32_t> found;
  for (size_t i = 0; i < answers.numbers.size(); ++i) {
    const auto begin = answers.scores.begin() + static_cast<ptrdiff_t>(i * labels_);
    found.push_back(static_cast<int32_t>(
        std::max_element(begin, begin + static_cast<ptrdiff_t>(labels_)) - begin));
  }
  for (size_t s = 0; s + 1 < answers.first.size(); ++s) {
    const size_t begin = answers.first[s], count = answers.first[s + 1] - begin;
    const std::vector<Share> shares = objective_->of_sequence(
        std::span(found).subspan(begin, count), std::span(answers.numbers).subspan(begin, count));
    MT_USER_CHECK(shares.size() == of_sequences_.size(), ErrorClass::plugin,
                  cat("the objective reports ", shares.size(), " figures of a sequence, but names ",
                      of_sequences_.size()),
                  "of_sequence() has one value for each name of sequence_figures()");
    for (size_t i = 0; i < shares.size(); ++i)
      report(of_sequences_[i], shares[i].sum, shares[i].count);
  }
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
