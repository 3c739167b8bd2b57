// Variants of attention beyond softmax(QK^T)V over all earlier tokens: settings that several model
// families share, under `attention.` in their section. A value.
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
  std::vector<int64_t> window_blocks;
  void bind(Fields& f);

  /// Number of positions that a token of this block attends to; 0: all earlier ones.
  int64_t window_of(int64_t block) const;
  bool has_qkv_bias() const { return bias || qkv_bias; }
  bool has_out_bias() const { return bias || out_bias; }
  /// Whether a block of the model has rotary positions.
  bool has_rope(int64_t block) const;
  /// The norms of queries and keys, if there are any.
  std::optional<QkNormOptions> norm_options(float eps, bool zero_centered) const;
  /// Throws Error(config) if window_blocks does not have a value for each of the blocks, and for
  /// settings that exclude each other.
  void check(int64_t blocks) const;
};

}  // namespace mtrain
