// What attention may do besides softmax(QK^T)V over all earlier tokens: settings that models of
// several families share, under `attention.` of their section. None is built yet; a recipe that
// asks for one is told so. A value.
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
};

}  // namespace mtrain
