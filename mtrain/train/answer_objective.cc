#include "mtrain/train/answer_objective.h"

#include <algorithm>
#include <cmath>

#include "mtrain/base/plugin_call.h"
#include "mtrain/train/answers.h"
#include "mtrain/train/model_input.h"

namespace mtrain {

ReferenceSource reference_source(const Settings& settings, const Objective& objective) {
  if (!objective.needs_reference()) return ReferenceSource::none;
  const PeftSection& peft = settings.peft;
  // Adapters of random weights start from random values (adapter_plan()).
  const bool starts_as_base = peft.frozen() && peft.train.empty() && peft.init_from.empty() &&
                              !peft.starts_principal() && !settings.model.init_from.empty();
  const std::string& wanted = settings.objective.reference;
  return wanted == "adapters" || (wanted == "auto" && starts_as_base)
             ? ReferenceSource::adapters
             : ReferenceSource::precomputed;
}

std::string name(ReferenceSource source) {
  return source == ReferenceSource::adapters      ? "adapters"
         : source == ReferenceSource::precomputed ? "precomputed"
                                                  : "";
}

void AnswerObjective::continue_with(const std::string& source) {
  for (ReferenceSource one : {ReferenceSource::adapters, ReferenceSource::precomputed}) {
    if (source != name(one) || source_ == ReferenceSource::none) continue;
    source_ = one;
    adapters_ = one == ReferenceSource::adapters ? all_adapters_ : nullptr;
  }
  MT_CHECK(source_ != ReferenceSource::adapters || adapters_, "a reference without adapters");
}

AnswerObjective::AnswerObjective(std::unique_ptr<Objective> objective, ReferenceSource source,
                                 AdapterPlan* adapters, const ParallelContext* parallel,
                                 int64_t labels)
    : objective_(std::move(objective)),
      names_(reported_names(*objective_)),
      further_(call_plugin(*objective_, "figures()", [&] { return objective_->figures(); })),
      of_sequences_(call_plugin(*objective_, "sequence_figures()",
                                [&] { return objective_->sequence_figures(); })),
      source_(source),
      all_adapters_(adapters),
      adapters_(source == ReferenceSource::adapters ? adapters : nullptr),
      parallel_(parallel),
      labels_(static_cast<size_t>(labels)) {
  MT_CHECK(source != ReferenceSource::adapters || adapters, "a reference without adapters");
  needs_mismatched_ = call_plugin(*objective_, "needs_divergence()",
                                  [&] { return objective_->needs_divergence(); });
  MT_USER_CHECK(
      !needs_mismatched_ || (source != ReferenceSource::none && !objective_->scores()),
      ErrorClass::plugin, "the objective needs a divergence, and has no reference to measure it by",
      "needs_divergence() requires needs_reference(), and log-probabilities instead of scores()");
  names_.insert(names_.end(), further_.begin(), further_.end());
  names_.insert(names_.end(), of_sequences_.begin(), of_sequences_.end());
  sums_.assign(names_.size(), 0), counts_.assign(names_.size(), 0);
  extremes_ = no_extremes();
}

AnswerObjective::Answers AnswerObjective::answers_of(const MicroBatch& batch) const {
  if (of_tokens()) return labeled_tokens(batch);
  Answers out;
  out.of_token.assign(batch.tokens.size(), kNoAnswer);
  out.all.resize(2 * static_cast<size_t>(batch.rows));
  out.numbers.resize(out.all.size());
  std::vector<int32_t> found(static_cast<size_t>(batch.rows), 0);
  for (size_t s = 0; s + 1 < batch.cu_seqlens.size(); ++s) {
    const auto begin = static_cast<size_t>(batch.cu_seqlens[s]),
               end = static_cast<size_t>(batch.cu_seqlens[s + 1]),
               row = begin / static_cast<size_t>(batch.seq_length);
    const auto trained = std::count_if(batch.targets.begin() + static_cast<ptrdiff_t>(begin),
                                       batch.targets.begin() + static_cast<ptrdiff_t>(end),
                                       [](int32_t t) { return t != kIgnoredTarget; });
    if (trained == 0) continue;
    MT_USER_CHECK(++found[row] <= 2, ErrorClass::data,
                  cat("sample ", batch.first_sample + static_cast<int64_t>(row),
                      " has more than two answers"),
                  "set dataset=preference");
    const auto index = static_cast<int32_t>(2 * row) + found[row] - 1;
    out.all[static_cast<size_t>(index)].tokens = static_cast<double>(trained);
    for (size_t t = begin; t < end; ++t)
      if (batch.targets[t] != kIgnoredTarget)
        out.of_token[t] = index, out.numbers[static_cast<size_t>(index)] = batch.targets[t];
  }
  for (size_t row = 0; row < found.size(); ++row) require_answers(batch, row, found[row]);
  return out;
}

/// Refuses a sample with another number of answers than the objective learns from.
void AnswerObjective::require_answers(const MicroBatch& batch, size_t row, int32_t found) const {
  const bool pairs = objective_->records() == Objective::Records::pairs,
             classes = objective_->records() == Objective::Records::classes;
  if (classes ? found == 1 : found >= (pairs ? 2 : 1)) return;
  throw Error(ErrorClass::data,
              cat("sample ", batch.first_sample + static_cast<int64_t>(row), " has ",
                  found == 0   ? "no answer"
                  : found == 1 ? "one answer"
                               : "two answers",
                  pairs     ? ", and the objective learns from pairs of answers"
                  : classes ? ", and the objective learns from single sequences with a class"
                            : ""),
              pairs     ? "records need the fields prompt, chosen and rejected; for answers with a "
                          "label: objective=kto"
              : classes ? "set dataset=classification"
                        : "set dataset=preference");
}

int64_t AnswerObjective::records(std::span<const MicroBatch> batches) const {
  int64_t count = 0;
  for (const MicroBatch& batch : batches) {
    if (of_tokens()) {
      count += std::ssize(labeled_tokens(batch).all);
      continue;
    }
    if (objective_->records() != Objective::Records::labels) {
      count += batch.rows;
      continue;
    }
    const Answers answers = answers_of(batch);
    count += std::count_if(answers.all.begin(), answers.all.end(),
                           [](const Answer& a) { return a.tokens > 0; });
  }
  return count;
}

void AnswerObjective::take_own_tokens(const MicroBatch& batch, Answers& answers) const {
  if (!parallel_) return;
  if (auto slice = context_slice(batch, *parallel_))
    answers.of_token = slice->take(answers.of_token);
}

/// Adds up this rank's tokens, then the ranks of cp.
void AnswerObjective::sum_logps(const MicroBatch& batch, std::span<const float> losses,
                                Answers& answers) const {
  take_own_tokens(batch, answers);
  MT_CHECK(losses.size() == answers.of_token.size(), losses.size(), " losses of ",
           answers.of_token.size(), " tokens");
  std::vector<double> logps(answers.all.size(), 0);
  for (size_t t = 0; t < losses.size(); ++t)
    if (answers.of_token[t] != kNoAnswer)
      logps[static_cast<size_t>(answers.of_token[t])] -= static_cast<double>(losses[t]);
  if (parallel_)
    if (const Axis* cp = active_axis(parallel_->cp)) cp->comm().all_reduce(std::span(logps));
  for (size_t i = 0; i < logps.size(); ++i) answers.all[i].logp = logps[i];
}

double AnswerObjective::operator()(int64_t micro, std::span<float> losses, bool training) {
  MT_CHECK(static_cast<size_t>(micro) < batches_.size(), "micro-batch ", micro, " of ",
           batches_.size());
  const MicroBatch& batch = batches_[static_cast<size_t>(micro)];
  Answers answers = answers_of(batch);
  if (objective_->scores()) return of_scores(batch, losses, training, answers);
  sum_logps(batch, losses, answers);
  if (measuring_) {
    std::vector<double>& logps = measured_[static_cast<size_t>(micro)];
    for (const Answer& answer : answers.all) logps.push_back(answer.logp);
    return 0;
  }
  set_references(micro, batch, answers);
  for (Answer& answer : answers.all) answer.divergence = divergence_;
  const double loss = evaluate(batch, answers);
  // The loss of a token is minus its log-probability.
  for (size_t t = 0; training && t < losses.size(); ++t) {
    const int32_t answer = answers.of_token[t];
    losses[t] = answer == kNoAnswer
                    ? 0
                    : static_cast<float>(-weight_ * answers.slopes[static_cast<size_t>(answer)]);
  }
  return loss;
}

/// The sum of the records' losses; 0 on ranks that share the records with another one that counts
/// them.
double AnswerObjective::evaluate(const MicroBatch& batch, Answers& answers) {
  answers.slopes.assign(answers.all.size() * std::max<size_t>(1, labels_), 0);
  const std::vector<double> sums = sums_, counts = counts_;
  double loss = 0;
  call_plugin(*objective_, "of_pair(), of_label() or of_class()", [&] {
    for (size_t i = 0; of_tokens() && i < answers.all.size(); ++i) loss += of_class(answers, i);
    if (!of_sequences_.empty()) report_sequences(answers);
    for (size_t row = 0; !of_tokens() && row < static_cast<size_t>(batch.rows); ++row) {
      if (objective_->records() == Objective::Records::pairs) {
        loss += of_pair(answers, row);
      } else if (objective_->records() == Objective::Records::classes) {
        loss += of_class(answers, 2 * row);
      } else {
        const bool pair = answers.all[2 * row + 1].tokens > 0;
        loss += of_label(answers, 2 * row, pair || batch.good[row] != 0);
        if (pair) loss += of_label(answers, 2 * row + 1, false);
      }
    }
  });
  if (counts_records()) return loss;
  sums_ = sums, counts_ = counts;
  return 0;
}

double AnswerObjective::of_pair(Answers& answers, size_t row) {
  const Answer &chosen = answers.all[2 * row], &rejected = answers.all[2 * row + 1];
  const ObjectiveValue value = objective_->of_pair(chosen, rejected);
  answers.slopes[2 * row] = value.d_chosen, answers.slopes[2 * row + 1] = value.d_rejected;
  if (objective_->scores()) {
    report_rewards(value.reward_chosen, value.reward_rejected);
    report_further(value.figures);
    return value.loss;
  }
  const bool per_token = objective_->per_token();
  report("rewards/chosen", value.reward_chosen);
  report("rewards/rejected", value.reward_rejected);
  report("rewards/accuracies", value.reward_chosen > value.reward_rejected ? 1 : 0);
  report("rewards/margins", value.reward_chosen - value.reward_rejected);
  report("logps/chosen", chosen.logp / (per_token ? chosen.tokens : 1));
  report("logps/rejected", rejected.logp / (per_token ? rejected.tokens : 1));
  report_further(value.figures);
  return value.loss;
}

double AnswerObjective::of_label(Answers& answers, size_t index, bool good) {
  const Answer& answer = answers.all[index];
  const ObjectiveValue value = objective_->of_label(answer, good);
  answers.slopes[index] = value.d_chosen;
  report(good ? "rewards/chosen" : "rewards/rejected", value.reward_chosen);
  report(good ? "logps/chosen" : "logps/rejected",
         answer.logp / (objective_->per_token() ? answer.tokens : 1));
  report_further(value.figures);
  return value.loss;
}

void AnswerObjective::report(const std::string& name, double value, double count) {
  const auto at = static_cast<size_t>(std::ranges::find(names_, name) - names_.begin());
  sums_.at(at) += value, counts_.at(at) += count;
}

void AnswerObjective::report_further(const std::vector<double>& figures) {
  MT_USER_CHECK(
      figures.size() == further_.size(), ErrorClass::plugin,
      cat("the objective reports ", figures.size(), " figures, but names ", further_.size()),
      "the figures of a result have one value for each name of Objective::figures()");
  for (size_t i = 0; i < further_.size(); ++i) report(further_[i], figures[i]);
}

NamedValues AnswerObjective::take_figures(Communicator* replicas, Communicator* stages) {
  std::vector<double> all = sums_;
  all.insert(all.end(), counts_.begin(), counts_.end());
  sums_.assign(names_.size(), 0), counts_.assign(names_.size(), 0);
  std::vector<double> extremes = std::exchange(extremes_, no_extremes());
  for (Communicator* ranks : {replicas, stages})
    if (ranks)
      ranks->all_reduce(std::span(all)), ranks->all_reduce(std::span(extremes), ReduceOp::max);
  NamedValues out;
  auto mean = [&](const std::string& name) -> std::optional<double> {
    const auto at = static_cast<size_t>(std::ranges::find(names_, name) - names_.begin());
    if (at == names_.size()) return std::nullopt;
    const double count = all[names_.size() + at];
    return count > 0 ? std::optional(all[at] / count) : std::nullopt;
  };
  for (const std::string& name : names_) {
    std::optional<double> value = mean(name);
    const auto good = mean("rewards/chosen"), bad = mean("rewards/rejected");
    if (!value && name == "rewards/margins" && good && bad) value = *good - *bad;  // of labels
    if (value) out.emplace_back(name, *value);
  }
  if (std::isfinite(extremes[1])) {
    out.emplace_back("min_reward", -extremes[0]);
    out.emplace_back("max_reward", extremes[1]);
  }
  return out;
}

}  // namespace mtrain
