// Learning-rate schedules: pure functions of the step.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/config/fields.h"
#include "mtrain/config/tree.h"

namespace mtrain {

/// The `scheduler` section.
struct ScheduleConfig {
  std::string type = "cosine";
  int64_t warmup_steps = 0;
  double warmup_init_lr = 0;
  std::string warmup_shape = "linear";
  int64_t decay_steps = 0;    // end of the decay; 0: the end of training
  int64_t stable_steps = -1;  // wsd: length of the plateau; -1: 80 % of the steps after warmup
  double min_lr = 0;
  std::string wsd_decay = "cosine";
  double power = 1;                 // polynomial
  std::optional<double> gamma;      // exponential, multistep
  std::vector<int64_t> milestones;  // multistep
  int64_t cycle_steps = 0;          // cosine_restarts: length of the first cycle
  int64_t cycle_factor = 1;         // cosine_restarts: length of a cycle / length of that before
  Node stages;                      // stages: a list of ScheduleStage
  void bind(Fields& f);

 private:
  void bind_shapes(Fields& f);
};

/// An item of scheduler.stages. Rates are shares of the peak.
struct ScheduleStage {
  std::string type = "linear";
  int64_t steps = 0;
  std::optional<double> from;  // absent: the end of the stage before; of the first one: 1
  std::optional<double> to;    // at the end of the stage
  void bind(Fields& f);
  /// What is wrong with valid values; empty: nothing.
  std::string fault() const;
};

/// The learning rate of update number `step` (0 for the first): during warmup it rises from
/// warmup_init_lr to lr, with x = (step + 1) / warmup_steps by x (linear) or (1 - cos(pi x)) / 2
/// (cosine). Then, with t = step - warmup_steps, by type:
///   constant      lr
///   linear        linear to min_lr at decay_steps
///   cosine        half a cosine to min_lr at decay_steps
///                 (Loshchilov & Hutter 2017, arXiv:1608.03983)
///   polynomial    min_lr + (lr - min_lr) * (1 - x)^power, x the finished fraction of the decay
///   wsd           plateau, then decay (Hu et al. 2024, arXiv:2404.06395): with x the finished
///                 fraction of the decay, min_lr + (lr - min_lr) * f(x), f by wsd_decay:
///                 linear 1 - x, cosine (1 + cos(pi x)) / 2, exponential 2 * 0.5^x - 1,
///                 minus_sqrt 1 - sqrt(x)
///   inverse_sqrt  lr * sqrt(warmup / step) (Vaswani et al. 2017), never below min_lr; without
///                 warmup lr / sqrt(step + 1)
///   exponential   lr * gamma^t, never below min_lr
///   multistep     lr * gamma^n, n the milestones up to `step`, never below min_lr
///   cosine_restarts  half a cosine to min_lr in cycle_steps steps, then again from lr in cycles
///                 that are cycle_factor times as long (arXiv:1608.03983)
///   stages        the stages one after the other, then the rate at the end of the last one
/// For linear, cosine, polynomial and wsd, warmup ends at the end of the decay at the latest, and
/// the rate is min_lr from that end on.
MT_API double learning_rate(const ScheduleConfig& config, double lr, int64_t step,
                            int64_t total_steps);

}  // namespace mtrain
