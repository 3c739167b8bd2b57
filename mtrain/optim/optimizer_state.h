// OptimizerState: the optimizer state of the parameters or shards that this rank updates, and the
// optimizer step: norm, clipping, update. Gathers parameters that the optimizer needs as a whole.
// Owns the state; refers to the parameters, their buckets and the optimizer. For the rank's own
// thread.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mtrain/comm/communicator.h"
#include "mtrain/optim/optimizer.h"
#include "mtrain/optim/param_buckets.h"
#include "mtrain/optim/param_rates.h"

namespace mtrain {

class MT_API OptimizerState {
 public:
  /// For one rank, which updates all parameters. REQUIRES: allocated gradients.
  OptimizerState(ExecutionContext& ctx, ParamList& parameters, Optimizer& optimizer);
  /// For a data-parallel rank, which updates its slices of the buckets.
  OptimizerState(ExecutionContext& ctx, ParamBuckets& buckets, Optimizer& optimizer);
  ~OptimizerState();
  OptimizerState(const OptimizerState&) = delete;
  OptimizerState& operator=(const OptimizerState&) = delete;

  /// L2 norm of all gradients times `grad_scale`, summed in a fixed order. `world`: the ranks of
  /// the job, over which each element counts once; null: only this rank.
  double grad_norm(double grad_scale, Communicator* world = nullptr) const;
  /// The same for the master weights of all parameters.
  double params_norm(Communicator* world = nullptr) const;
  struct Step {
    double lr = 0, weight_decay = 0;
    double grad_scale = 1;  // 1 / loss scale
    double clip = 0;        // maximum norm; 0: no clipping
    double grad_norm = 0;   // the result of grad_norm()
    int64_t step = 1;
    /// Of a parameter; empty: `lr`, and `weight_decay` if it is decayed by default.
    std::function<ParamRate(const Parameter&)> rates = {};
  };
  /// Updates the parameters and calls ParamBuckets::sync_values(). Collective.
  void update(const Step& step);
  /// Allocates the memory of an update, with Optimizer::workspace(), and changes nothing: for a dry
  /// run.
  void rehearse_update();

  /// Call it after writing to master weights: updates the values from them.
  void masters_changed();

  struct Entry : ParamSlice {
    std::vector<std::string> names;  // of its state: Optimizer::state_names()
    std::vector<Tensor> state;       // shaped like its master
  };
  std::vector<Entry>& entries() { return entries_; }
  /// A tensor of Optimizer::matrix_state(); each rank that updates the parameter holds the whole
  /// tensor.
  struct MatrixEntry {
    std::string name;  // "<parameter>.<matrix>.<state>"; without <matrix> if that has no name
    Tensor tensor;
    bool is_primary;  // false: another rank holds the same values and saves them
  };
  const std::vector<MatrixEntry>& matrix_entries() const { return matrix_entries_; }

 private:
  struct Plan;       // of one parameter: its scope and its parts
  struct WholePlan;  // of parameters that are updated as whole matrices
  OptimizerState(ExecutionContext& ctx, std::vector<ParamSlice> slices, ParamBuckets* buckets,
                 Optimizer& optimizer);
  void make_plans();
  void share_whole();
  void allocate_matrix_state(WholePlan& whole);
  void update_elements(const Plan& plan, const Step& step);
  void update_whole(const WholePlan& whole, const Step* step);
  void rehearse_workspace(const Plan& plan);
  void call(const Plan& plan, const Step& step, std::span<const Tensor> tensors,
            std::span<const std::vector<Tensor>> matrix_state, const Tensor& value);
  double norm_of(Tensor ParamSlice::*tensor, Communicator* world) const;
  ExecutionContext& ctx_;
  ParamBuckets* buckets_;
  Optimizer& optimizer_;
  std::vector<Entry> entries_;
  std::vector<MatrixEntry> matrix_entries_;
  std::vector<std::vector<std::pair<int64_t, int64_t>>>
      counted_;  // by entry: the ranges of elements that count in norms
  std::vector<std::unique_ptr<Plan>> plans_;  // of all parameters, in the order of buckets
  std::vector<WholePlan> whole_;              // in the same order on all ranks
};

/// Optimizer::state_names(), called as a plugin.
MT_API std::vector<std::string> state_names_of(Optimizer& optimizer, const ParamInfo& param);

/// The factor that scales a gradient of this norm down to `clip` (torch.nn.utils.clip_grad_norm_:
/// clip/(norm + 1e-6)).
MT_API double clip_factor(double grad_norm, double clip);

}  // namespace mtrain
