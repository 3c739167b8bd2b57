// Tables of cosines and sines for rotary position embedding. Stateless.
#pragma once
#include <cstdint>
#include <string>

#include "mtrain/autograd/ops.h"
#include "mtrain/config/fields.h"

namespace mtrain {

/// The frequencies of rotary position embedding, scaled as in Llama 3.1 if `scaling` is "llama3"
/// (Hugging Face rope_type "llama3": low frequencies are divided by `factor`, middle ones blended).
struct MT_API RopeConfig {
  double theta = 10000;
  std::string scaling = "none";  // or "llama3"
  double factor = 8, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_max_positions = 8192;
  double beta_fast = 32, beta_slow = 1, mscale = 1, mscale_all_dim = 0;  // yarn
  double percent = 1;
  bool interleaved = false;
  void bind(Fields& f);
};
/// Tables [max_positions, head_dim / 2] in float, allocated in `ctx`.
MT_API RopeTable make_rope_table(ExecutionContext& ctx, const RopeConfig& config,
                                 int64_t max_positions, int64_t head_dim);

}  // namespace mtrain
