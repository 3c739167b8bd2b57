// Variants of attention beyond softmax(QK^T)V over all earlier tokens: settings that several model
// families share, under `attention.` in their section. bind() marks those that are not built by
// needs() with the part that computes them, and a recipe that sets one is refused with that part's
// name. A value.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/config/fields.h"
#include "mtrain/nn/qk_norm.h"

namespace mtrain {

struct MT_API AttentionVariants {
  int64_t window = 0, global_interval = 0, no_rope_interval = 0;
  std::vector<int64_t> rope_pattern;
  bool bias = false, qkv_bias = false, out_bias = false, qk_norm = false, output_gate = false;
  std::string qk_norm_scope = "head", qk_norm_kind = "rms";
  double clip_qkv = 0;
  std::string softmax = "standard";
  std::optional<double> softmax_scale;
  double logit_cap = 0, dropout = 0;
  void bind(Fields& f);

  bool has_qkv_bias() const { return bias || qkv_bias; }
  bool has_out_bias() const { return bias || out_bias; }
  /// Whether a block of the model has rotary positions.
  bool has_rope(int64_t block) const;
  /// The norms of queries and keys, if there are any.
  std::optional<QkNormOptions> norm_options(float eps) const;
  /// Throws Error(config) for settings that exclude each other.
  void check() const;
};

}  // namespace mtrain
