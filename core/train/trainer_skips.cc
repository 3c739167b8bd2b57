// Steps of the trainer that make no update: those that the recipe leaves out, and those whose loss or gradient is not to be used.
#include <cmath>

#include "mtrain/base/counted.h"
#include "mtrain/train/trainer.h"

namespace mtrain {

void Trainer::pass_over_step() {
  const Settings& s = recipe_.settings;
  const int64_t first = state_.consumed_samples;
  finish_copy();  // a save that is under way may still read the state
  loader_->seek(first + batch_now());
  state_.consumed_samples = loader_->consumed_samples();
  state_.consumed_tokens += batch_now() * s.model.seq_length;
  ++state_.step;
  event(cat("step ", state_.step, ": no update, as train.skip_steps says (samples ", first, " to ", state_.consumed_samples - 1, ")"));
}

void Trainer::skip_large(double grad_norm) {
  const Settings& s = recipe_.settings;
  if (skips_++ < s.train.max_skips) return;
  end_save();
  throw Error(ErrorClass::numeric,
              cat("the gradient norm ", grad_norm, " at step ", state_.step + 1, " is above optimizer.skip_grad_norm=",
                  *s.optimizer.skip_grad_norm, ", and the ", s.train.max_skips,
                  " updates before it were skipped, too: train.max_skips allows no more"),
              cat("lower optimizer.lr, or raise optimizer.skip_grad_norm or train.max_skips; ", newest_saved()));
}

void Trainer::skip_or_stop(const StepLoss& loss, double grad_norm) {
  const Settings& s = recipe_.settings;
  const bool skips = s.train.on_nonfinite == "skip", loss_is_finite = std::isfinite(loss.loss_sum);
  const double value = loss_is_finite ? grad_norm : loss.mean();
  // A nan has a sign, which says nothing.
  const std::string what = cat("not a finite ", loss_is_finite ? "gradient norm " : "loss ", std::isnan(value) ? "nan" : cat(value),
                               " at step ", state_.step + 1, " (samples ", state_.consumed_samples, " to ",
                               state_.consumed_samples + batch_now() - 1, ")");
  if (skips && skips_ < s.train.max_skips) {
    ++skips_;
    return event(cat("warning: ", what, "; skipped"));
  }
  end_save();
  throw Error(ErrorClass::numeric,
              skips ? cat(what, ", and the ", counted(skips_, "update"), " before it ", skips_ == 1 ? "was" : "were", " skipped for the same: train.max_skips allows no more")
                    : cat(what, "; nothing was updated"),
              cat("lower optimizer.lr, raise scheduler.warmup_steps, ",
                  skips ? "or look at those samples; " : "look at those samples, or set train.on_nonfinite=skip; ", newest_saved()));
}

}  // namespace mtrain
