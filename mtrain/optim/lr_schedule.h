// Learning-rate schedules: pure functions of the step.
#pragma once
#include <cstdint>
#include <string>

#include "mtrain/config/fields.h"

namespace mtrain {

/// The `scheduler` section.
struct ScheduleConfig {
  std::string type = "cosine";
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;    // end of the decay; 0: the end of training
  int64_t stable_steps = -1;  // wsd: length of the plateau; -1: 80 % of the steps after warmup
  double min_lr = 0;
  std::string wsd_decay = "cosine";
  void bind(Fields& f);
};

/// The learning rate of update number `step` (0 for the first): during warmup lr * (step + 1) /
/// warmup_steps, then, by type:
///   constant      lr
///   linear        linear to min_lr at decay_steps
///   cosine        half a cosine to min_lr at decay_steps
///                 (Loshchilov & Hutter 2017, arXiv:1608.03983)
///   wsd           plateau, then decay (Hu et al. 2024, arXiv:2404.06395): with x the finished
///                 fraction of the decay, min_lr + (lr - min_lr) * f(x), f by wsd_decay:
///                 linear 1 - x, cosine (1 + cos(pi x)) / 2, exponential 2 * 0.5^x - 1,
///                 minus_sqrt 1 - sqrt(x)
///   inverse_sqrt  lr * sqrt(warmup / step) (Vaswani et al. 2017), never below min_lr; without
///                 warmup lr / sqrt(step + 1)
/// For linear, cosine and wsd, warmup ends at the end of the decay at the latest, and the rate is
/// min_lr from that end on.
MT_API double learning_rate(const ScheduleConfig& config, double lr, int64_t step,
                            int64_t total_steps);

}  // namespace mtrain
