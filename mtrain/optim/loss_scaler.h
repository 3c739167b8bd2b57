// Loss scale for fp16 (Micikevicius et al. 2018, arXiv:1710.03740): the loss is multiplied by the
// scale, so that small gradients do not underflow. A step with an overflow is skipped; after
// `hysteresis` overflows the scale is halved, and again at each further overflow until it has
// grown; after `growth_interval` consecutive steps without overflow it is doubled. A value; for the
// rank's own thread.
#pragma once
#include <algorithm>
#include <cstdint>

namespace mtrain {

struct LossScaleRule {
  double start = 1;
  double least = 1;             // lower bound of the scale
  int64_t growth_interval = 0;  // 0: the scale is a constant
  int64_t hysteresis =
      1;  // overflows before the scale is halved; good steps in between do not reset the count
};

class LossScaler {
 public:
  static constexpr double kLargest = 0x1p24;
  explicit LossScaler(const LossScaleRule& rule) : rule_(rule), scale_(rule.start) {}
  double scale() const { return scale_; }
  int64_t good_steps() const { return good_steps_; }
  int64_t bad_steps() const { return bad_steps_; }
  bool dynamic() const { return rule_.growth_interval > 0; }
  /// Whether a lower scale could avoid an overflow: false if the scale is constant or at its
  /// minimum.
  bool can_fall() const { return dynamic() && scale_ > rule_.least; }
  /// Records whether the step's gradients were finite.
  void update(bool finite) {
    if (!dynamic()) return;
    if (!finite) {
      good_steps_ = 0;
      if (++bad_steps_ < rule_.hysteresis) return;
      // Once used up, every further overflow halves until the scale has grown again.
      scale_ = std::max(rule_.least, scale_ / 2);
      bad_steps_ = rule_.hysteresis - 1;
    } else if (++good_steps_ >= rule_.growth_interval) {
      scale_ = std::max(scale_, std::min(scale_ * 2, kLargest));
      good_steps_ = bad_steps_ = 0;
    }
  }
  void restore(double scale, int64_t good_steps, int64_t bad_steps) {
    if (dynamic()) scale_ = scale, good_steps_ = good_steps, bad_steps_ = bad_steps;
  }

 private:
  LossScaleRule rule_;
  double scale_;
  int64_t good_steps_ = 0, bad_steps_ = 0;
};

}  // namespace mtrain
