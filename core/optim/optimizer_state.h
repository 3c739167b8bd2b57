// OptimizerState: every parameter's state tensors, and one step over all parameters — norm, clipping, update.
// Owns the state; refers to the parameters and the optimizer. For the rank's own thread.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "mtrain/comm/communicator.h"
#include "mtrain/optim/optimizer.h"

namespace mtrain {

class MT_API OptimizerState {
 public:
  OptimizerState(Run& run, ParamList& parameters, Optimizer& optimizer);

  /// L2 norm of all gradients times `grad_scale`, summed in a fixed order. `copy`: the ranks that hold one copy of the
  /// parameters together; each element counts once.
  double grad_norm(double grad_scale, Communicator* copy = nullptr) const;
  struct Step {
    double lr = 0, weight_decay = 0;
    double grad_scale = 1;  // 1 / loss scale
    double clip = 0;        // largest norm; 0: no clipping
    double grad_norm = 0;   // as grad_norm() gave it
    int64_t step = 1;
  };
  /// Updates all parameters. Weight decay applies to those marked for it.
  void update(const Step& step);

  struct Entry {
    Parameter* parameter;
    std::vector<Tensor> state;
  };
  std::vector<Entry>& entries() { return entries_; }
  const std::vector<std::string>& names() const { return names_; }

 private:
  Run& run_;
  ParamList& parameters_;
  Optimizer& optimizer_;
  std::vector<std::string> names_;
  std::vector<Entry> entries_;
  std::vector<std::pair<int64_t, int64_t>> counted_;  // of the gradient buffer
};

/// The factor that brings a gradient of this norm within `clip` (torch.nn.utils.clip_grad_norm_: clip/(norm + 1e-6)).
MT_API double clip_factor(double grad_norm, double clip);

}  // namespace mtrain
