// Objective: the plugin kind for what training minimizes over whole answers or sequences: from the
// answers' log-probabilities (DPO and its relatives), or from the scores that a model with
// `model.labels` gives at the ends of sequences (reward models, classifiers) or of single tokens
// (named entities). An objective is a
// pure function on the host, in double: it knows neither tensors nor ranks nor micro-batches. The
// trainer sums the log-probabilities of each answer's tokens, or takes the scores, and starts
// backward with the derivatives that the objective returns, each divided by the number of records
// of the global batch. Const members are safe from any thread.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

struct ObjectiveContext {
  std::vector<std::string> labels;  // the names of classes (dataset.labels); empty: they have none
};

/// One answer, given its prompt.
struct Answer {
  double logp = 0;       // nats: the sum of its tokens' log-probabilities under the model
  double reference = 0;  // the same under the reference; 0 if the objective needs none
  double tokens = 0;     // their number, at least 1
  double score = 0;      // with Objective::scores(), instead of these: of prompt and answer
  double margin = 0;     // of a chosen one: by how much its score should be higher
  /// With Objective::needs_divergence(): the same for all answers of a global batch, the mean of
  /// log(policy / reference) over mismatched answers, each after another record's prompt. It may be
  /// negative, and has no derivative.
  double divergence = 0;
  /// log(policy / reference).
  double ratio() const { return logp - reference; }
};

/// The result for one record. Rewards are only reported.
struct ObjectiveValue {
  double loss = 0;
  double d_chosen = 0, d_rejected = 0;            // with respect to Answer::logp, or Answer::score
  double reward_chosen = 0, reward_rejected = 0;  // implicit rewards of the answers
  std::vector<double> figures = {};               // in the order of Objective::figures()
};

/// The result for one sequence or token with a class.
struct ClassValue {
  double loss = 0;
  std::vector<double> d_scores = {};  // derivatives with respect to the scores
  std::vector<double> figures = {};   // in the order of Objective::figures()
};

/// A figure of a sequence of tokens: over several ones, the sum of the sums by that of the counts.
struct Share {
  double sum = 0, count = 0;
};

/// The cross entropy of scores, of which `number` is wanted, and as its figure 1 where that score
/// is the largest. `label_smoothing`: the share of the wanted probability that all classes get in
/// equal parts. REQUIRES: 0 <= number < scores.size().
MT_API ClassValue class_cross_entropy(std::span<const double> scores, int64_t number,
                                      double label_smoothing);

class MT_API Objective {
 public:
  static constexpr std::string_view kKind = "objective";
  /// What the settings of an objective over scores declare (Fields::objective), so that recipes are
  /// checked without the plugin's code: pairs of answers, with model.labels=1, or Dataset::kClasses
  /// or kTokenClasses with any number of labels. Others learn from log-probabilities and declare
  /// nothing.
  static constexpr std::string_view kScoredAnswers = "preferences between answers, by scores";
  using Context = ObjectiveContext;
  virtual ~Objective();
  /// The records that it learns from.
  enum class Records : unsigned char {
    pairs,    // a chosen and a rejected answer to one prompt
    labels,   // one answer, which is good or bad; of a pair, each answer is such a record
    classes,  // a sequence and the number of its class
    tokens    // a token and the number of its class; a sample has any number of them
  };
  virtual Records records() const { return Records::pairs; }
  /// Whether it learns from scores instead of log-probabilities. Then it has no reference, and
  /// reports only figures() and, of pairs, trl's `accuracy`, `margin` and the mean, minimum and
  /// maximum of the rewards. REQUIRES: records() is not labels.
  virtual bool scores() const { return false; }
  /// Whether it reads Answer::reference.
  virtual bool needs_reference() const = 0;
  /// Whether it reads Answer::divergence: each step and evaluation then also runs the model and the
  /// reference over as many mismatched answers. REQUIRES: needs_reference(), not scores().
  virtual bool needs_divergence() const { return false; }
  /// Whether it learns from means over an answer's tokens: logps/… are then reported per token.
  virtual bool per_token() const { return false; }
  /// The names of further values that it reports, averaged over records.
  virtual std::vector<std::string> figures() const { return {}; }
  /// The loss of a pair. REQUIRES: records() is pairs.
  virtual ObjectiveValue of_pair(const Answer& chosen, const Answer& rejected) const;
  /// The loss of one labeled answer: d_chosen and reward_chosen are those of this answer, even if
  /// it is a bad one. REQUIRES: records() is labels.
  virtual ObjectiveValue of_label(const Answer& answer, bool good) const;
  /// REQUIRES: records() is classes or tokens, `number` is less than the number of scores.
  virtual ClassValue of_class(std::span<const double> scores, int64_t number) const;
  /// Of an objective over tokens: the names of figures of whole sequences, after figures().
  virtual std::vector<std::string> sequence_figures() const { return {}; }
  /// Those of a sequence: `found`: the classes with the largest scores of its tokens that have a
  /// class, `wanted`: their classes. Called if there are sequence_figures().
  virtual std::vector<Share> of_sequence(std::span<const int32_t> found,
                                         std::span<const int32_t> wanted) const;
};

}  // namespace mtrain
