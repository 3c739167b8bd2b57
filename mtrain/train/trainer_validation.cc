// The trainer's account of its validations: the lowest loss, the checkpoint that is kept for it,
// and the end of a run whose loss no longer falls.
#include <cmath>
#include <tuple>
#include <utility>

#include "mtrain/base/counted.h"
#include "mtrain/base/hash.h"
#include "mtrain/base/log.h"
#include "mtrain/train/trainer.h"

namespace mtrain {

bool Trainer::tracks_best() const {
  const Settings& s = recipe_.settings;
  return s.validation.steps > 0 && (s.validation.patience > 0 || s.checkpoint.keep_best);
}

bool Trainer::out_of_patience() const {
  const int64_t patience = recipe_.settings.validation.patience;
  return patience > 0 && state_.validations.waited >= patience;
}

void Trainer::forget_other_validations() {
  const Settings& s = recipe_.settings;
  if (!tracks_best() || state_.step >= s.train.steps) return;
  TrainState::Validations& v = state_.validations;
  const std::string samples =
      sha256(cat(dataset_->identity(), '\n', s.validation.steps, '\n', s.eval_global_batch()));
  if (v.last >= 0 && v.samples != samples) {
    if (first())
      log_warn(
          "validations measure other samples than before: their lowest loss is forgotten",
          out_of_patience() ? "; the run, which validation.patience had stopped, continues" : "");
    v = {.kept_loss = v.kept_loss, .kept_step = v.kept_step};
  }
  v.samples = samples;
}

void Trainer::continue_validations() {
  const Settings& s = recipe_.settings;
  if (state_.step >= s.train.steps) return;
  TrainState::Validations& v = state_.validations;
  if (tracks_best() && s.checkpoint.keep_best) {
    auto is_there = [&](int64_t step) {
      std::error_code error;
      const int32_t mine = first() && step >= 0 && fs::exists(store_->step_folder(step), error);
      return ranks_.all_reduce_value(mine, ReduceOp::max) != 0;
    };
    if (is_there(v.best_step)) {
      v.kept_step = v.best_step, v.kept_loss = v.best_loss;
    } else {
      if (!is_there(v.kept_step)) v.kept_step = -1;
      v.best_step = v.kept_step, v.best_loss = v.kept_loss;
    }
  }
  if (state_.validation_due && s.validation.steps > 0 && !out_of_patience()) validate();
}

void Trainer::prepare_validation() {
  check_validation_data(recipe_, *dataset_, first());
  encode_prompts();
}

bool Trainer::validate() {
  const std::optional<EvalMetrics> metrics = evaluate();
  validated_step_ = state_.step;
  state_.validation_due = recipe_.settings.validation.steps > 0 && !metrics;
  if (metrics) generate_texts();
  if (!metrics || !tracks_best()) return false;
  std::vector<double> loss = {metrics->loss};
  ranks_.broadcast(loss, 0);  // all ranks must decide the same
  TrainState::Validations& v = state_.validations;
  const double least = recipe_.settings.validation.min_improvement;
  const bool finite = std::isfinite(loss[0]), none = v.best_step < 0,
             lower = finite && (none || loss[0] < v.best_loss),
             enough = finite && (none || loss[0] < v.best_loss - least);
  v.last = state_.step;
  v.waited = enough ? 0 : v.waited + 1;
  if (lower) v.best_loss = loss[0], v.best_step = state_.step;
  if (out_of_patience() && state_.step < recipe_.settings.train.steps)
    event(cat("stopping after step ", state_.step, " of ", recipe_.settings.train.steps, ": ",
              counted(v.waited, "validation"), v.waited == 1 ? " has" : " in a row have",
              " not lowered the loss", least > 0 ? cat(" by more than ", least) : "",
              " (validation.patience)"));
  return lower;
}

void Trainer::keep_best_steps() {
  const TrainState::Validations& v = state_.validations;
  if (!recipe_.settings.checkpoint.keep_best) return;
  store_->keep_steps({v.best_step, v.kept_step});
  saved_best_.reset();
  if (v.best_step == state_.step) saved_best_.emplace(v.best_step, v.best_loss);
}

void Trainer::note_saved(int64_t step) {
  TrainState::Validations& v = state_.validations;
  if (saved_best_ && saved_best_->first == step)
    std::tie(v.kept_step, v.kept_loss) = *std::exchange(saved_best_, {});
}

void Trainer::report_best() {
  const TrainState::Validations& v = state_.validations;
  if (!tracks_best() || v.best_step < 0) return;
  const bool kept = recipe_.settings.checkpoint.keep_best && v.kept_step == v.best_step;
  event(cat("lowest validation loss: ", v.best_loss, " after step ", v.best_step,
            kept ? cat(", ", store_->step_folder(v.best_step).string()) : ""));
}

}  // namespace mtrain
