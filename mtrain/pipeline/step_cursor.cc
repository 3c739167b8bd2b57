#include "mtrain/pipeline/step_cursor.h"

#include <algorithm>

#include "mtrain/base/error.h"

namespace mtrain {

bool InnerStepCursor::reads(size_t step, PartId part) const {
  InnerStepKind what = steps_[step].what;
  if (!computes(what) && !is_exchange(what) && what != InnerStepKind::weights) return false;
  std::vector<PartId> parts = read_by(steps_[step], rules_);
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

/// Runs the next step, which is not an exchange.
void InnerStepCursor::pass() {
  const InnerStep& step = steps_[at_];
  if (step.what == InnerStepKind::gather && hooks_.gather) hooks_.gather(step.part);
  if (step.what == InnerStepKind::release && hooks_.release) hooks_.release(step.part);
  if (computes(step.what) || step.what == InnerStepKind::weights)
    current_ = static_cast<int64_t>(at_);
  ++at_;
  if (step.what != InnerStepKind::reduce) return;
  ++reduces_;
  if (hooks_.reduce) hooks_.reduce(static_cast<size_t>(step.bucket));
}

void InnerStepCursor::read(PartId part) {
  if (current_ >= 0 && reads(static_cast<size_t>(current_), part)) return;
  size_t to = at_;
  while (to < steps_.size() && !is_exchange(steps_[to].what) && !reads(to, part)) ++to;
  if (to == steps_.size() || !reads(to, part)) return;
  while (at_ < to) pass();
  if (is_exchange(steps_[to].what))
    current_ = static_cast<int64_t>(to);  // which starts later
  else
    pass();
}

/// "'layers.1.mlp.up.weight' of part 1 is read in 0F0 after F(0)"
std::string InnerStepCursor::out_of_order(PartId part, const std::string& parameter,
                                          const char* use) const {
  return cat("'", parameter, "' of part ", rules_.part(part).name, " ", use, " in ",
             to_text(action_), current_ < 0 ? "" : " after ",
             current_ < 0 ? "" : name(static_cast<size_t>(current_)));
}

namespace {

constexpr const char* kCause =
    "; the model's blocks share parameters, or it creates its parts in another order than it "
    "computes them, and its Model::parts() does not say so";
constexpr const char* kDeclare =
    ", or declare the parts in the model (Model::parts(), docs/adding-a-model.md)";
constexpr const char* kUnsharded = "set dist.zero to 0 or 1 and ddp.overlap_grad_reduce=false";

}  // namespace

void InnerStepCursor::refuse_read(PartId part, const std::string& parameter) const {
  throw Error(ErrorClass::config,
              cat(out_of_order(part, parameter, "is read"),
                  ", where dist.zero=3 does not gather it", kCause),
              cat(kUnsharded, kDeclare));
}

void InnerStepCursor::write(PartId part, const std::string& parameter) {
  for (size_t i = 0; reduces_ > 0 && i < at_; ++i) {
    if (steps_[i].what != InnerStepKind::reduce) continue;
    const GradientBucket& bucket = rules_.buckets[static_cast<size_t>(steps_[i].bucket)];
    if (std::find(bucket.parts.begin(), bucket.parts.end(), part) == bucket.parts.end()) continue;
    const bool shared = bucket.when == ReduceWhen::every_backward;
    throw Error(
        ErrorClass::config,
        cat(out_of_order(part, parameter, "gets a gradient"), ", but ", name(i),
            " has started, as ",
            shared ? "dist.zero 2 and 3 want" : "ddp.overlap_grad_reduce=true wants", kCause),
        cat(shared ? kUnsharded : "set ddp.overlap_grad_reduce=false", kDeclare));
  }
  if (action_.what != ActionKind::forward) read(part);
}

void InnerStepCursor::exchange(InnerStepKind what, bool backward) {
  while (at_ < steps_.size() && !is_exchange(steps_[at_].what)) pass();
  const char* made = what == InnerStepKind::dispatch ? "Dispatch" : "Combine";
  const char* direction = backward ? "backward" : "forward";
  MT_CHECK(at_ < steps_.size(), "experts start ", made, " of a ", direction, ", but the steps of ",
           to_text(action_), " have no further exchange");
  const InnerStep& next = steps_[at_];
  MT_CHECK(next.what == what && next.backward == backward, "experts start ", made, " of a ",
           direction, ", but the next exchange of ", to_text(action_), " is ", name(at_), " of a ",
           next.backward ? "backward" : "forward");
  current_ = static_cast<int64_t>(at_++);
}

void InnerStepCursor::finish() {
  while (at_ < steps_.size()) {
    MT_CHECK(!is_exchange(steps_[at_].what), to_text(action_), " ended without ", name(at_));
    pass();
  }
}

std::string InnerStepCursor::text() const {
  constexpr size_t kAround = 6;
  size_t now = current_ < 0 ? 0 : static_cast<size_t>(current_);
  size_t begin = now > kAround ? now - kAround : 0,
         end = std::min(steps_.size(), now + kAround + 1);
  std::string line = begin > 0 ? "  … " : "  ", arrow(begin > 0 ? 4 : 2, ' ');
  for (size_t i = begin; i < end; ++i) {
    if (i < now) arrow += std::string(name(i).size() + 1, ' ');
    line += name(i) + (i + 1 < end ? " " : "");
  }
  return cat("\n  in the steps of ", to_text(action_), ":\n", line, end < steps_.size() ? " …" : "",
             "\n", arrow, "^");
}

}  // namespace mtrain
