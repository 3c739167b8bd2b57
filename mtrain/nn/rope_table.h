// Tables of cosines and sines for rotary position embedding. Stateless.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/autograd/ops.h"
#include "mtrain/config/fields.h"

namespace mtrain {

/// The frequencies of rotary position embedding: pair i of the r rotated dimensions turns by
/// theta^(-2i/r) per position, and `scaling` slows it down for longer contexts. Kinds and formulas
/// are those of Hugging Face's rope_type:
///   linear    all frequencies are divided by `factor` (Chen et al. 2023, arXiv:2306.15595)
///   dynamic   theta grows with the length beyond original_max_positions (NTK-aware scaling)
///   yarn      low frequencies are divided, middle ones blended, and queries and keys scaled by an
///             attention factor (Peng et al. 2023, arXiv:2309.00071)
///   longrope  each frequency is divided by its own factor, from one list up to
///             original_max_positions and from another beyond (Ding et al. 2024, arXiv:2402.13753)
///   llama3    low frequencies are divided, middle ones blended (Llama 3.1)
struct MT_API RopeConfig {
  double theta = 10000, local_theta = 0;  // local_theta: for blocks with a window; 0: none
  std::string scaling = "none";
  double factor = 8, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_max_positions = 8192;
  double beta_fast = 32, beta_slow = 1, mscale = 1, mscale_all_dim = 0;
  bool truncate = true;
  std::optional<double> attention_factor;  // null: from the other settings of yarn and longrope
  std::vector<double> short_factor, long_factor;
  double percent = 1;        // fraction of a head's dimensions (0 to 1) that are rotated
  bool interleaved = false;  // pairs of adjacent dimensions
  void bind(Fields& f);

  /// The factor by which DeepSeek-V3 multiplies the softmax scale under yarn:
  /// (0.1 · mscale_all_dim · ln(factor) + 1)². 1 without yarn, if mscale_all_dim is 0, or if factor
  /// is at most 1.
  double softmax_factor() const;
  /// How many dimensions of a head are rotated.
  int64_t rotary_dim(int64_t head_dim) const;
  /// The settings of blocks whose attention has a window: local_theta without scaling, if it is
  /// set.
  RopeConfig local() const;
  /// Throws Error(config) if the rotated dimensions do not form pairs, or if a list of longrope
  /// does not have one factor for each pair.
  void check(int64_t head_dim) const;

 private:
  void bind_yarn(Fields& f);
};
/// Tables [max_positions, rotary_dim / 2] in float, allocated in `ctx`. `max_positions` is also the
/// length for which dynamic and longrope choose their frequencies.
MT_API RopeTable make_rope_table(ExecutionContext& ctx, const RopeConfig& config,
                                 int64_t max_positions, int64_t head_dim);

}  // namespace mtrain
