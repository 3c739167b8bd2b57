// Dynamic loss scale for fp16 (Micikevicius et al. 2018, arXiv:1710.03740): the loss is multiplied so that small gradients
// survive; an overflow halves the scale and skips the update, `growth_interval` good steps double it.
#pragma once
#include <algorithm>
#include <cstdint>

namespace mtrain {

class LossScaler {
 public:
  /// `start` 1 and `growth_interval` 0 make it a constant 1 (bf16, fp32).
  LossScaler(double start, int64_t growth_interval) : scale_(start), growth_interval_(growth_interval) {}
  double scale() const { return scale_; }
  int64_t good_steps() const { return good_steps_; }
  bool dynamic() const { return growth_interval_ > 0; }
  /// Records whether the step's gradients were finite.
  void update(bool finite) {
    if (!dynamic()) return;
    if (!finite) {
      scale_ = std::max(1.0, scale_ / 2);
      good_steps_ = 0;
    } else if (++good_steps_ >= growth_interval_) {
      scale_ = std::min(scale_ * 2, 0x1p24);
      good_steps_ = 0;
    }
  }
  void restore(double scale, int64_t good_steps) { scale_ = scale, good_steps_ = good_steps; }

 private:
  double scale_;
  int64_t growth_interval_, good_steps_ = 0;
};

}  // namespace mtrain
