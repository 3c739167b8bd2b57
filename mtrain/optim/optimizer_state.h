// OptimizerState: the state tensors of what this rank updates — every parameter, or its shard of
// them — and one step over it: norm, clipping, update. Brings together what the optimizer needs
// whole. Owns the state; refers to the parameters, their buckets and the optimizer. For the rank's
// own thread.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "mtrain/comm/communicator.h"
#include "mtrain/optim/optimizer.h"
#include "mtrain/optim/param_buckets.h"

namespace mtrain {

class MT_API OptimizerState {
 public:
  /// All parameters, on one rank. REQUIRES: allocated gradients.
  OptimizerState(ExecutionContext& ctx, ParamList& parameters, Optimizer& optimizer);
  /// What this rank updates.
  OptimizerState(ExecutionContext& ctx, ParamBuckets& buckets, Optimizer& optimizer);
  ~OptimizerState();
  OptimizerState(const OptimizerState&) = delete;
  OptimizerState& operator=(const OptimizerState&) = delete;

  /// L2 norm of all gradients times `grad_scale`, summed in a fixed order. `world`: the ranks of
  /// the job; each element counts once over all of them. Null: those of this rank.
  double grad_norm(double grad_scale, Communicator* world = nullptr) const;
  /// The same of the masters of all parameters.
  double params_norm(Communicator* world = nullptr) const;
  struct Step {
    double lr = 0, weight_decay = 0;
    double grad_scale = 1;  // 1 / loss scale
    double clip = 0;        // largest norm; 0: no clipping
    double grad_norm = 0;   // as grad_norm() gave it
    int64_t step = 1;
  };
  /// Updates the parameters, and hands the other ranks their values. Weight decay applies to those
  /// marked for it. Collective.
  void update(const Step& step);
  /// Takes the memory of an update, with Optimizer::workspace(), and changes nothing: for a dry
  /// run.
  void rehearse_update();

  /// After masters were written: values follow.
  void masters_changed();

  struct Entry : ParamSlice {
    std::vector<Tensor> state;  // shaped like its master
  };
  std::vector<Entry>& entries() { return entries_; }
  /// A tensor of Optimizer::matrix_state(), which the ranks that update its parameter hold whole.
  struct MatrixEntry {
    std::string name;  // "<parameter>.<matrix>.<state>"; a matrix without a name is left out
    Tensor tensor;
    bool is_primary;  // false: another rank holds the same values and saves them
  };
  const std::vector<MatrixEntry>& matrix_entries() const { return matrix_entries_; }
  const std::vector<std::string>& names() const { return names_; }

 private:
  struct Plan;       // of one parameter: its scope, and where its parts are
  struct WholePlan;  // of the parameters that are updated as whole matrices
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
  std::vector<std::string> names_;
  std::vector<Entry> entries_;
  std::vector<MatrixEntry> matrix_entries_;
  std::vector<std::vector<std::pair<int64_t, int64_t>>>
      counted_;                               // of each entry: ranges of its elements
  std::vector<std::unique_ptr<Plan>> plans_;  // of all parameters, in the order of buckets
  std::vector<WholePlan> whole_;              // in the order in which all ranks take them
};

/// The factor that brings a gradient of this norm within `clip` (torch.nn.utils.clip_grad_norm_:
/// clip/(norm + 1e-6)).
MT_API double clip_factor(double grad_norm, double clip);

}  // namespace mtrain
