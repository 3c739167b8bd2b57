// Optimizer: the plugin kind for update rules of parameters. Its state is stored outside of it, in
// named float tensors, so that checkpointing and sharding do not depend on the algorithm. An
// optimizer declares how much of a parameter it needs at once (UpdateScope), and gets that in every
// parallel layout. For the rank's own thread.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/nn/parameter.h"

namespace mtrain {

struct OptimizerContext {
  ExecutionContext& ctx;
  DType compute_dtype = DType::f32;  // in which the model computes
};

/// The properties of a parameter, equal on all ranks that hold a part of it. Refers to the
/// parameter.
struct ParamInfo {
  std::string_view name;  // for messages only; updates must not depend on it
  ParamRole role;
  const Dims& dims;    // names and sizes of the whole: {"heads", 6144}, {"embed", 4096}
  const Shape& shape;  // only the sizes
  std::span<const LogicalMatrix> matrices;  // of the whole; none for a vector
  int tensor_dim = -1;  // the dimension that tensor-parallel ranks shard; -1: none
  int tensor_ranks = 1;
};
MT_API ParamInfo info_of(const Parameter& parameter);

/// How much of a parameter one update needs.
enum class UpdateScope : uint8_t {
  elements,        // each element depends only on its own gradient and state: any part is enough
  whole_matrices,  // whole logical matrices; the whole parameter if it has no matrices
};

/// A float state tensor of one logical matrix, with a shape that the optimizer chooses. Zero before
/// the first step.
struct MatrixState {
  std::string name;  // as in the checkpoint
  Shape shape;
};

/// One update of a parameter, of some of its whole matrices, or of a range of its elements.
/// `master`, `grad` and each of `state` are float, contiguous and of equal shape.
struct ParamUpdate {
  ExecutionContext& ctx;
  const ParamInfo& param;
  UpdateScope scope;  // the result of Optimizer::scope()
  /// whole_matrices: the matrices in `master`, with rows relative to `master`: all matrices of the
  /// parameter, or with expert parallelism those of this rank's experts.
  std::span<const LogicalMatrix> matrices;
  /// The parts of the whole tensor in this update: ParamBox::global in the whole, ParamBox::local
  /// in a tensor of shape `local`. `master` holds its elements from `begin` on. There are several
  /// if a range ends within a row. An elementwise optimizer does not need them.
  std::span<const ParamBox> boxes;
  const Shape& local;
  int64_t begin = 0;

  Tensor master;                  // updated in place
  Tensor grad;                    // the summed gradient; multiply by `grad_scale` before use
  std::span<const Tensor> state;  // in the order of state_names(); zero before the first step
  /// whole_matrices: for each of `matrices` the tensors of Optimizer::matrix_state(), in its order.
  std::span<const std::vector<Tensor>> matrix_state;
  Tensor value;  // the compute copy, to be updated from master; undefined if there is none
  double lr = 0, weight_decay = 0;
  float grad_scale = 1;  // clipping and loss scale
  int64_t step = 1;      // 1 for the first update
};

class MT_API Optimizer {
 public:
  static constexpr std::string_view kKind = "optimizer";
  using Context = OptimizerContext;
  virtual ~Optimizer();
  /// Names of the state tensors of this parameter, as in the checkpoint: {"exp_avg",
  /// "exp_avg_sq"}. The result must be the same on all ranks.
  virtual std::vector<std::string> state_names(const ParamInfo& param) const = 0;
  /// How much of this parameter update() needs; called once, before the first step. With
  /// `elements`, update() gets what the rank holds: the parameter's local shape, or a flat range.
  /// With `whole_matrices`, the parts are gathered before each update and scattered after it, for
  /// any sharding by tensor parallelism and dist.zero. The result must be the same on all ranks.
  virtual UpdateScope scope(const ParamInfo& /*param*/) const {
    return UpdateScope::whole_matrices;
  }
  /// State in other shapes than the parameter's: called once for each logical matrix of a parameter
  /// with scope whole_matrices. Example, Shampoo: {{"left", {rows, rows}}, {"right", {cols,
  /// cols}}}. Only the ranks that update the parameter allocate it. The result must be the same on
  /// all ranks.
  virtual std::vector<MatrixState> matrix_state(const ParamInfo& /*param*/,
                                                const LogicalMatrix& /*matrix*/) const {
    return {};
  }
  /// The shapes of the float tensors that update() allocates for one logical matrix and has at the
  /// same time, so that `mtrain check` and the memory check before a run count them, such as the
  /// matrix products of Muon. Without this declaration, an update that allocates may run out of
  /// memory in the first step.
  virtual std::vector<Shape> workspace(const ParamInfo& /*param*/,
                                       const LogicalMatrix& /*matrix*/) const {
    return {};
  }
  virtual void update(const ParamUpdate& update) = 0;
};

}  // namespace mtrain
