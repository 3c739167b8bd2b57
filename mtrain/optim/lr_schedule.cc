#include "mtrain/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "mtrain/base/text.h"
#include "mtrain/config/read_items.h"

namespace mtrain {

void ScheduleConfig::bind(Fields& f) {
  f("type", type, "shape of the learning rate after warmup")
      .one_of({"constant", "linear", "cosine", "polynomial", "wsd", "inverse_sqrt", "exponential",
               "multistep", "cosine_restarts", "stages"})
      .renamed_from({"lr_decay_style"});
  f("warmup_steps", warmup_steps, "number of updates of warmup from warmup_init_lr to optimizer.lr")
      .min(0)
      .unit("steps")
      .or_share_of("train.steps")
      .renamed_from({"lr_warmup_iters", "lr_warmup_steps"});
  f("warmup_init_lr", warmup_init_lr,
    "learning rate from which warmup rises; the first update is one step above it")
      .min(0)
      .renamed_from({"lr_warmup_init"});
  f("warmup_shape", warmup_shape, "shape of warmup").one_of({"linear", "cosine"});
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
  bind_shapes(f);
}

void ScheduleConfig::bind_shapes(Fields& f) {
  f("wsd_decay", wsd_decay, "type=wsd: shape of the final decay")
      .one_of({"linear", "cosine", "exponential", "minus_sqrt"})
      .renamed_from({"lr_wsd_decay_style"});
  f("power", power, "type=polynomial: exponent of the share of steps that is left")
      .exclusive_min(0);
  f("gamma", gamma,
    "type=exponential: factor of each step; type=multistep: factor at each milestone")
      .exclusive_min(0)
      .max(1)
      .example("0.1");
  f("milestones", milestones,
    "type=multistep: numbers of steps, warmup included, after which the learning rate is "
    "multiplied by gamma")
      .min(1)
      .unit("steps")
      .example("[6000, 9000]");
  f("cycle_steps", cycle_steps, "type=cosine_restarts: length of the first cycle")
      .min(0)
      .unit("steps")
      .or_share_of("train.steps")
      .example("1000");
  f("cycle_factor", cycle_factor,
    "type=cosine_restarts: length of a cycle, divided by that of the one before")
      .min(1);
  f("stages", stages,
    "type=stages: a list of maps with type (constant, linear, cosine or exponential), steps, and "
    "from and to, the rates at its start and end as shares of optimizer.lr; without from, a stage "
    "starts where the one before ended")
      .example("[{type: constant, steps: 800}, {type: cosine, steps: 200, to: 0.1}]")
      .merge_replace();
}

void ScheduleStage::bind(Fields& f) {
  f("type", type, "shape").one_of({"constant", "linear", "cosine", "exponential"});
  f("steps", steps, "length").required().min(1).unit("steps").example("1000");
  f("from", from, "share of optimizer.lr at the start").min(0);
  f("to", to, "share of optimizer.lr at the end").min(0).example("0.1");
}

std::string ScheduleStage::fault() const {
  if (type == "constant")
    return from && to && *from != *to ? "a constant stage has one rate: set from or to" : "";
  if (!to) return cat("a ", type, " stage needs to, the share of optimizer.lr at its end");
  if (type == "exponential" && (*to == 0 || from == 0))
    return "an exponential stage neither starts nor ends at 0";
  return {};
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

double warmup_rate(const ScheduleConfig& c, double lr, int64_t step, int64_t warmup) {
  const auto done = static_cast<double>(step + 1), all = static_cast<double>(warmup);
  if (c.warmup_shape == "linear" && c.warmup_init_lr == 0) return lr * done / all;
  const double share =
      c.warmup_shape == "cosine" ? 1 - share_left("cosine", done / all) : done / all;
  return c.warmup_init_lr + (lr - c.warmup_init_lr) * share;
}

/// The finished fraction of the cycle at `t` steps after warmup.
double cycle_progress(const ScheduleConfig& c, int64_t t) {
  int64_t length = std::max<int64_t>(1, c.cycle_steps);
  if (c.cycle_factor == 1) t %= length;
  while (t >= length) t -= length, length *= c.cycle_factor;
  return static_cast<double>(t) / static_cast<double>(length);
}

double stage_share(const ScheduleStage& stage, double from, double to, double progress) {
  if (stage.type == "constant") return to;
  if (stage.type == "exponential") return from * std::pow(to / from, progress);
  return to + (from - to) * share_left(stage.type, progress);
}

/// The share of the peak at `t` steps after warmup.
double staged_share(const ScheduleConfig& c, int64_t t) {
  double at = 1;
  for (const ScheduleStage& stage : require_items<ScheduleStage>(c.stages, "scheduler.stages")) {
    const double from = stage.from.value_or(at), to = stage.to.value_or(from);
    if (t < stage.steps)
      return stage_share(stage, from, to,
                         static_cast<double>(t) / static_cast<double>(stage.steps));
    t -= stage.steps;
    at = to;
  }
  return at;
}

/// The rate of a type without an end, `t` steps after warmup.
double endless_rate(const ScheduleConfig& c, double lr, int64_t step, int64_t warmup) {
  const auto t = static_cast<double>(step - warmup);
  if (c.type == "stages") return lr * staged_share(c, step - warmup);
  if (c.type == "cosine_restarts")
    return between(lr, c.min_lr, cycle_progress(c, step - warmup), "cosine");
  double factor = 1;
  if (c.type == "inverse_sqrt") {
    const auto first = static_cast<double>(std::max<int64_t>(1, warmup));
    factor = std::sqrt(first / (first + t));
  } else if (c.type == "exponential") {
    factor = std::pow(c.gamma.value_or(1), t);
  } else if (c.type == "multistep") {
    const auto passed = std::ranges::count_if(c.milestones, [&](int64_t m) { return m <= step; });
    factor = std::pow(c.gamma.value_or(1), static_cast<double>(passed));
  } else {
    return lr;
  }
  return std::max(c.min_lr, lr * factor);
}

}  // namespace

double learning_rate(const ScheduleConfig& c, double lr, int64_t step, int64_t total_steps) {
  const bool decays_by_end =
      c.type == "linear" || c.type == "cosine" || c.type == "polynomial" || c.type == "wsd";
  const int64_t end = c.decay_steps > 0 ? c.decay_steps : total_steps;
  const int64_t warmup = decays_by_end && end > 0 ? std::min(c.warmup_steps, end) : c.warmup_steps;
  if (step < warmup) return warmup_rate(c, lr, step, warmup);
  if (!decays_by_end) return endless_rate(c, lr, step, warmup);
  if (end > 0 && step >= end) return c.min_lr;  // also if warmup takes all steps before
  auto t = static_cast<double>(step - warmup);
  auto span = static_cast<double>(std::max<int64_t>(1, end - warmup));
  if (c.type == "wsd") {
    double stable = c.stable_steps >= 0 ? static_cast<double>(c.stable_steps) : 0.8 * span;
    return between(lr, c.min_lr, (t - stable) / std::max(1.0, span - stable), c.wsd_decay);
  }
  if (c.type == "polynomial")
    return c.min_lr + (lr - c.min_lr) * std::pow(1 - std::clamp(t / span, 0.0, 1.0), c.power);
  return between(lr, c.min_lr, t / span, c.type);
}

}  // namespace mtrain
