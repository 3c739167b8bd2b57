#include "mtrain/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace mtrain {

void ScheduleConfig::bind(Fields& f) {
  f("type", type, "shape of the learning rate after warmup")
      .one_of({"constant", "linear", "cosine", "wsd", "inverse_sqrt"})
      .renamed_from({"lr_decay_style"});
  f("warmup_steps", warmup_steps, "number of updates of linear warmup from 0")
      .min(0)
      .unit("steps")
      .or_share_of("train.steps")
      .renamed_from({"lr_warmup_iters", "lr_warmup_steps"});
  f("decay_steps", decay_steps,
    "number of steps after which the learning rate reaches min_lr; 0: train.steps, so that the "
    "last update is just above min_lr")
      .min(0)
      .unit("steps")
      .or_share_of("train.steps")
      .renamed_from({"lr_decay_iters", "lr_decay_steps"});
  f("stable_steps", stable_steps,
    "type=wsd: updates at the peak learning rate before the decay; -1: 80 % of the steps after "
    "warmup")
      .min(-1)
      .unit("steps")
      .or_share_of("train.steps");
  f("min_lr", min_lr, "learning rate at the end of the decay").min(0);
  f("wsd_decay", wsd_decay, "type=wsd: shape of the final decay")
      .one_of({"linear", "cosine", "exponential", "minus_sqrt"})
      .renamed_from({"lr_wsd_decay_style"});
}

namespace {
/// The fraction of the difference between peak and minimum that remains after the fraction
/// `progress` of the decay.
double share_left(const std::string& shape, double progress) {
  if (shape == "cosine") return 0.5 * (1 + std::cos(std::numbers::pi * progress));
  if (shape == "exponential") return 2 * std::pow(0.5, progress) - 1;
  if (shape == "minus_sqrt") return 1 - std::sqrt(progress);
  return 1 - progress;
}

double between(double high, double low, double progress, const std::string& shape) {
  return low + (high - low) * share_left(shape, std::clamp(progress, 0.0, 1.0));
}
}  // namespace

double learning_rate(const ScheduleConfig& c, double lr, int64_t step, int64_t total_steps) {
  const bool decays_by_end = c.type != "constant" && c.type != "inverse_sqrt";
  const int64_t end = c.decay_steps > 0 ? c.decay_steps : total_steps;
  const int64_t warmup = decays_by_end && end > 0 ? std::min(c.warmup_steps, end) : c.warmup_steps;
  if (step < warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (decays_by_end && end > 0 && step >= end)
    return c.min_lr;  // also if warmup takes all steps before
  if (c.type == "constant") return lr;
  auto t = static_cast<double>(step - warmup);
  if (c.type == "inverse_sqrt") {
    auto first = static_cast<double>(std::max<int64_t>(1, warmup));
    return std::max(c.min_lr, lr * std::sqrt(first / (first + t)));
  }
  auto span = static_cast<double>(std::max<int64_t>(1, end - warmup));
  if (c.type == "wsd") {
    double stable = c.stable_steps >= 0 ? static_cast<double>(c.stable_steps) : 0.8 * span;
    return between(lr, c.min_lr, (t - stable) / std::max(1.0, span - stable), c.wsd_decay);
  }
  return between(lr, c.min_lr, t / span, c.type);
}

}  // namespace mtrain
