// Variants of attention beyond softmax(QK^T)V over all earlier tokens: settings that several model
// families share, under `attention.` in their section. bind() marks each by needs() with the
// part that computes it, and a recipe that sets it is refused with that part's name. A value.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "mtrain/config/fields.h"

namespace mtrain {

struct MT_API AttentionVariants {
  int64_t window = 0, global_interval = 0, no_rope_interval = 0;
  bool qk_norm = false, qkv_bias = false, output_gate = false;
  std::string softmax = "standard";
  std::optional<double> softmax_scale;
  double logit_cap = 0, dropout = 0;
  void bind(Fields& f);

  /// Number of positions that a token of this block attends to; 0: all earlier ones.
  int64_t window_of(int64_t block) const;
};

}  // namespace mtrain
