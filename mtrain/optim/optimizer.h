// Optimizer: the plugin kind that says how one parameter moves. Its state lives outside, in named
// float tensors shaped like the parameter, so that checkpointing and sharding need to know nothing
// about it. Where ranks share out the state (dist.zero), each updates its own parameters, or parts
// of them. For the rank's own thread.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/nn/parameter.h"

namespace mtrain {

struct OptimizerContext {
  Run& run;
};

/// One parameter's update, or that of a stretch of its elements. `master`, `grad` and each of
/// `state` are float, contiguous and of equal shape: the parameter's, or one dimension for a
/// stretch.
struct ParamUpdate {
  Run& run;
  std::string_view name;
  Tensor master;                  // to be changed
  Tensor grad;                    // the summed gradient; multiply by `grad_scale` before use
  std::span<const Tensor> state;  // in the order of state_names(); zero before the first step
  Tensor value;  // the compute copy to refresh from master; undefined when master itself is used
  double lr = 0, weight_decay = 0;
  float grad_scale = 1;  // clipping and loss scale
  int64_t step = 1;      // 1 for the first update
};

class MT_API Optimizer {
 public:
  static constexpr std::string_view kKind = "optimizer";
  using Context = OptimizerContext;
  virtual ~Optimizer();
  /// Names of the state tensors of each parameter, as the checkpoint shows them: {"exp_avg",
  /// "exp_avg_sq"}.
  virtual std::vector<std::string> state_names() const = 0;
  virtual void update(const ParamUpdate& update) = 0;
  /// True when each element moves by its own gradient and state alone, so that a parameter may be
  /// cut anywhere. Otherwise update() is given whole parameters only (as a tensor-parallel rank has
  /// them), and dist.zero beyond 1 is refused.
  virtual bool elementwise() const { return false; }
};

}  // namespace mtrain
