// The trainer's account of its validations: the lowest loss, and the end of a run whose loss no
// longer falls.
#include <cmath>

#include "mtrain/base/counted.h"
#include "mtrain/train/trainer.h"

namespace mtrain {

bool Trainer::tracks_best() const {
  const Settings& s = recipe_.settings;
  return s.validation.steps > 0 && (s.validation.patience > 0 || s.checkpoint.keep_best);
}

bool Trainer::out_of_patience() const {
  const int64_t patience = recipe_.settings.validation.patience;
  return patience > 0 && state_.waited >= patience;
}

bool Trainer::validate() {
  const std::optional<EvalMetrics> metrics = evaluate();
  validated_step_ = state_.step;
  if (!metrics || !tracks_best()) return false;
  std::vector<double> loss = {metrics->loss};
  ranks_.broadcast(loss, 0);  // all ranks must decide the same
  const bool first = state_.best_step < 0, lower = first || loss[0] < state_.best_loss,
             enough =
                 first || loss[0] < state_.best_loss - recipe_.settings.validation.min_improvement;
  state_.waited = enough && std::isfinite(loss[0]) ? 0 : state_.waited + 1;
  if (lower && std::isfinite(loss[0])) state_.best_loss = loss[0], state_.best_step = state_.step;
  if (out_of_patience() && state_.step < recipe_.settings.train.steps) {
    const double least = recipe_.settings.validation.min_improvement;
    event(cat("stopping after step ", state_.step, " of ", recipe_.settings.train.steps, ": ",
              counted(state_.waited, "validation"), state_.waited == 1 ? " has" : " in a row have",
              " not lowered the loss", least > 0 ? cat(" by more than ", least) : "",
              " (validation.patience)"));
  }
  return state_.best_step == state_.step;
}

void Trainer::report_best() {
  if (!tracks_best() || state_.best_step < 0) return;
  const bool kept = recipe_.settings.checkpoint.keep_best;
  event(cat("lowest validation loss: ", state_.best_loss, " after step ", state_.best_step,
            kept ? cat(", ", store_->step_folder(state_.best_step).string()) : ""));
}

}  // namespace mtrain
