// Optimizer: the plugin kind that says how one parameter moves. Its state is kept outside, in named
// float tensors, so that checkpointing and sharding need to know nothing about it. An optimizer
// says how much of a parameter it must see at once (UpdateScope), and gets that in every layout of
// ranks. For the rank's own thread.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/nn/parameter.h"

namespace mtrain {

struct OptimizerContext {
  ExecutionContext& ctx;
};

/// What a parameter is: the same on all ranks that hold a part of it. Refers to the parameter.
struct ParamInfo {
  std::string_view name;  // for messages: what a parameter is does not depend on its name
  ParamRole role;
  const Dims& dims;    // names and sizes of the whole: {"heads", 6144}, {"embed", 4096}
  const Shape& shape;  // the sizes alone
  std::span<const LogicalMatrix> matrices;  // of the whole; none for a vector
  int tensor_dim = -1;  // the dimension that tensor-parallel ranks shard; -1: none
  int tensor_ranks = 1;
};
MT_API ParamInfo info_of(const Parameter& parameter);

/// How much of a parameter one update must see.
enum class UpdateScope : uint8_t {
  elements,        // each element moves by its own gradient and state alone: any part will do
  whole_matrices,  // every logical matrix is whole; a parameter without matrices is whole
};

/// A float tensor that an optimizer keeps for one logical matrix, in a shape of its own. Zero
/// before the first step.
struct MatrixState {
  std::string name;  // as the checkpoint shows it
  Shape shape;
};

/// One update: of a parameter, of whole matrices of it, or of a range of its elements. `master`,
/// `grad` and each of `state` are float, contiguous and of equal shape.
struct ParamUpdate {
  ExecutionContext& ctx;
  const ParamInfo& param;
  UpdateScope scope;  // as Optimizer::scope() said
  /// whole_matrices: the matrices that `master` holds, their rows counted in `master`. These are
  /// all of the parameter's, except that a rank of expert parallelism has only its own experts'.
  std::span<const LogicalMatrix> matrices;
  /// Which parts of the whole the update has: ParamBox::global in the whole, ParamBox::local in a
  /// tensor of shape `local`, of which `master` holds the elements from `begin` on. Several where a
  /// range ends within a row. An elementwise optimizer does not need them.
  std::span<const ParamBox> boxes;
  const Shape& local;
  int64_t begin = 0;

  Tensor master;                  // to be changed
  Tensor grad;                    // the summed gradient; multiply by `grad_scale` before use
  std::span<const Tensor> state;  // in the order of state_names(); zero before the first step
  /// whole_matrices: for each of `matrices` the tensors of Optimizer::matrix_state(), in its order.
  std::span<const std::vector<Tensor>> matrix_state;
  Tensor value;  // the compute copy to refresh from master; undefined when there is none here
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
  /// How much of this parameter update() must see; asked once, before the first step. By `elements`
  /// it gets what the rank holds: the parameter's local shape, or one dimension for a range.
  /// By `whole_matrices` the parts come together before each update and go back after it, whatever
  /// tensor parallelism and dist.zero shard. The answer must be the same on all ranks.
  virtual UpdateScope scope(const ParamInfo& /*param*/) const {
    return UpdateScope::whole_matrices;
  }
  /// State in other shapes than the parameter's: asked once for each logical matrix of the
  /// parameters of scope whole_matrices. Shampoo's: {{"left", {rows, rows}}, {"right", {cols,
  /// cols}}}. Only the ranks that update the parameter have it. The answer must be the same on all
  /// ranks.
  virtual std::vector<MatrixState> matrix_state(const ParamInfo& /*param*/,
                                                const LogicalMatrix& /*matrix*/) const {
    return {};
  }
  /// The shapes of the float tensors that update() allocates for one logical matrix and has at the
  /// same time, so that `mtrain check` and the memory check before a run count them: Muon's
  /// products. Without it, an update that allocates may run out of memory in the first step.
  virtual std::vector<Shape> workspace(const ParamInfo& /*param*/,
                                       const LogicalMatrix& /*matrix*/) const {
    return {};
  }
  virtual void update(const ParamUpdate& update) = 0;
};

}  // namespace mtrain
