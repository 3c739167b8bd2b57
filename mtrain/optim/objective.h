// Objective: the plugin kind for training objectives over whole answers (DPO and similar ones),
// computed from the log-probabilities of the answers. An objective is a pure function on the host,
// in double; it does not depend on tensors, ranks or micro-batches. The trainer sums the
// log-probabilities of each answer's tokens, and starts backward with the derivatives that the
// objective returns, each divided by the number of records of the global batch. Const members are
// safe from any thread.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

struct ObjectiveContext {};

/// One answer, given its prompt.
struct Answer {
  double logp = 0;       // nats: the sum of its tokens' log-probabilities under the model
  double reference = 0;  // the same under the reference; 0 if the objective needs none
  double tokens = 0;     // their number, at least 1
  /// log(policy / reference).
  double ratio() const { return logp - reference; }
};

/// The result for one record. Rewards are only reported.
struct ObjectiveValue {
  double loss = 0;
  double d_chosen = 0, d_rejected = 0;            // derivatives with respect to Answer::logp
  double reward_chosen = 0, reward_rejected = 0;  // implicit rewards of the answers
  std::vector<double> figures = {};               // in the order of Objective::figures()
};

class MT_API Objective {
 public:
  static constexpr std::string_view kKind = "objective";
  using Context = ObjectiveContext;
  virtual ~Objective();
  /// The records that it learns from.
  enum class Records : unsigned char {
    pairs,   // a chosen and a rejected answer to one prompt
    labels,  // one answer, which is good or bad; of a pair, each answer is such a record
  };
  virtual Records records() const { return Records::pairs; }
  /// Whether it reads Answer::reference.
  virtual bool needs_reference() const = 0;
  /// Whether it learns from means over an answer's tokens: logps/… are then reported per token.
  virtual bool per_token() const { return false; }
  /// The names of further values that it reports, averaged over records.
  virtual std::vector<std::string> figures() const { return {}; }
  /// The loss of a pair. REQUIRES: records() is pairs.
  virtual ObjectiveValue of_pair(const Answer& chosen, const Answer& rejected) const;
  /// The loss of one labeled answer: d_chosen and reward_chosen are those of this answer, even if
  /// it is a bad one. REQUIRES: records() is labels.
  virtual ObjectiveValue of_label(const Answer& answer, bool good) const;
};

}  // namespace mtrain
