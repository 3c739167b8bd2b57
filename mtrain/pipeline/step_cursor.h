// InnerStepCursor: the position of a running action in its list of inner steps (stage_steps.h).
// Gathers, releases and reductions of gradients run because the list has them, in its order;
// exchanges between experts and writes of gradients are checked against it. For the rank's own
// thread.
#pragma once
#include <functional>

#include "mtrain/pipeline/stage_steps.h"

namespace mtrain {

class InnerStepCursor {
 public:
  struct Hooks {
    std::function<void(PartId)> gather, release;
    std::function<void(size_t bucket)> reduce = {};  // starts it
  };
  /// Refers to all arguments.
  InnerStepCursor(const Action& action, const InnerSteps& steps, const InnerStepRules& rules,
                  const Hooks& hooks)
      : action_(action), steps_(steps), rules_(rules), hooks_(hooks) {}

  /// The model reads parameters of `part` next: advances to the step that needs them. Does nothing
  /// if an exchange of another part comes first; ParamBuckets then refuses the read unless the
  /// parameters are gathered anyway.
  void read(PartId part);
  /// The model adds to the gradient of a parameter of `part` next. In B and W, advances to the step
  /// that does so. Throws Error(config) if the reduction of such gradients has started in this
  /// action: the model computes in another order than its parts say.
  void write(PartId part, const std::string& parameter);
  /// The model reads a parameter of `part` that no step has gathered. Throws Error(config).
  [[noreturn]] void refuse_read(PartId part, const std::string& parameter) const;
  /// An exchange starts. Throws Error(bug) if it is not the next one of the list.
  void exchange(InnerStepKind what, bool backward);
  /// The action is complete: runs what is left. Throws Error(bug) if the list has further
  /// exchanges.
  void finish();
  /// The list, with an arrow below the current step.
  std::string text() const;

 private:
  bool reads(size_t step, PartId part) const;
  void pass();
  std::string name(size_t step) const { return to_text(steps_[step], action_.stage, rules_); }
  std::string out_of_order(PartId part, const std::string& parameter, const char* use) const;

  const Action& action_;
  const InnerSteps& steps_;
  const InnerStepRules& rules_;
  const Hooks& hooks_;
  size_t at_ = 0;         // the next step
  size_t reduces_ = 0;    // before it
  int64_t current_ = -1;  // the last step that computes or exchanges and was reached
};

}  // namespace mtrain
