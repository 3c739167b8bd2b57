// Parameter: a named trainable tensor. Owned by the ParamList of its rank; modules hold references,
// which stay valid during the list's lifetime. For the rank's own thread.
#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "mtrain/autograd/coded_weight.h"
#include "mtrain/autograd/tape.h"
#include "mtrain/base/box.h"
#include "mtrain/nn/init.h"
#include "mtrain/nn/logical_matrix.h"
#include "mtrain/nn/parallel.h"
#include "mtrain/nn/state_buffer.h"

namespace mtrain {

/// A dimension by name with its *global* size: {"mlp", 11008}.
struct Dim {
  std::string name;
  int64_t size = 0;
  std::vector<ShardPiece> pieces =
      {};  // what this rank holds; empty: the even split by the axis of the name
};
using Dims = std::vector<Dim>;

/// A box of a parameter that this rank holds, in coordinates of the whole and of the local tensor.
struct ParamBox {
  Box global, local;  // of equal extents
  bool is_primary = true;
};

/// The boxes of a tensor with sharded dimensions: one for each combination of pieces. A box is
/// primary if `is_primary` is true and all its pieces are primary.
MT_API std::vector<ParamBox> shard_boxes(const Shape& global, std::span<const DimShard> shards,
                                         bool is_primary);

/// The role of a parameter in the model, by which optimizers may treat it differently.
enum class ParamRole : uint8_t {
  other,      // none of these: a scalar, a table of learned scales
  matrix,     // a linear layer's weight, or several of them fused
  embedding,  // a table of vectors by token, position or segment; also if the output head is tied
              // to it
  head,       // the output matrix, unless it is tied to the embedding
  norm,       // scale and bias of a normalization
  bias,       // the bias of a linear layer
  expert_matrix,  // the weights of all experts of a mixture
  router          // the weight that chooses experts, or scales a shared one
};

struct QuantizedWeight;

struct MT_API Parameter {
  std::string name;  // the path: "layers.0.attn.qkv.weight"
  ParamRole role = ParamRole::other;
  Dims dims;
  std::vector<LogicalMatrix> matrices;  // of the whole tensor; none for a vector
  bool decay = false;                   // weight decay applies
  Shape global;                         // shape of the whole
  Shape local;                          // of this rank's part
  DType dtype = DType::f32;             // of the value; u8: codes
  Init init;                            // the initial values
  std::vector<DimShard>
      shards;  // the sharded dimensions, ascending; empty: this rank holds the whole tensor
  std::vector<PartialSum> partial;  // elements of the gradient that are partial sums
  bool is_primary =
      true;  // false: a copy; another rank of the same replica counts it in norms and saves it
  int64_t stage = 0;                   // the pipeline stage that added it
  int16_t part = -1;                   // the part of the stage, if the model declares its parts
                                       // (Model::parts)
  bool expert = false;                 // its replicas are the ranks of edp, not those of dp and cp
  const Axis* tensor_axis = nullptr;   // the tensor-parallel axis (tp, or etp for experts) if it
                                       // shards a dimension
  int tensor_dim = -1;                 // the sharded dimension
  std::optional<Placement> placement;  // on tp, if that has more than one rank; absent for experts
  bool trained = true;   // false: frozen. It has a value in the model's dtype (and `master`, the
                         // same tensor, if that is float), but no gradient and no optimizer state,
                         // and checkpoints do not have it
  bool adapter = false;  // added to a weight of the model (nn/adapter.h): model.init_from lacks it
  int64_t unused = 0;    // elements of `global` that no computation uses: they stay zero
  const QuantizedWeight* quantized =
      nullptr;  // not null: the value may be stored as low-precision codes (nn/precision.h)
  std::shared_ptr<CodedWeight> coded;  // not null: frozen and quantized; `value` has the codes
  // With ZeRO, these are sharded over data-parallel ranks (optim/param_buckets.h): then `master` is
  // undefined, and value and gradient have memory only while it is needed.
  Tensor master;     // float: updated by the optimizer, saved in checkpoints
  Tensor value;      // used by the model; the master itself in fp32
  Tensor main_grad;  // float, a view into a buffer of many parameters' gradients
  std::shared_ptr<Leaf> leaf;

  int64_t numel() const { return local.numel(); }
  /// Writes the initial values of local elements begin, begin + 1, …
  void init_values(uint64_t seed, int64_t begin, std::span<float> values) const;
  /// Ranges [begin, end) of the local elements that this rank counts in norms, ascending and not
  /// adjacent.
  std::vector<std::pair<int64_t, int64_t>> primary_ranges() const;
  /// The boxes that this rank holds: one, or one for each combination of pieces.
  std::vector<ParamBox> boxes() const;
  /// The values of this rank's part, from those of the whole parameter [global].
  std::vector<float> own_part(std::span<const float> whole) const;
  /// The boxes of local elements [begin, end); a few more if the range ends within a row.
  std::vector<ParamBox> boxes_of(int64_t begin, int64_t end) const;
  /// The value, attached to the tape unless it is frozen.
  Tensor use() const {
    if (!trained) return frozen_value();
    if (leaf->watch) leaf->watch->before_value(leaf->number);
    Tensor t = value;
    if (t.context().tracked_axis) t.set_placement(placement);
    if (t.context().grad_enabled) t.set_node(leaf);
    return t;
  }

 private:
  Tensor frozen_value() const {
    Tensor t = value;
    if (t.context().tracked_axis) t.set_placement(placement);
    return t;
  }
};

/// Writes the value of a frozen parameter, which is not quantized, from floats of its local
/// elements: piece by piece, so that memory never holds a whole weight in float.
MT_API void write_frozen(Parameter& p, std::span<const float> own);

class MT_API ParamList {
 public:
  /// Parameters that are added from now on belong to this pipeline stage.
  void begin_stage(int64_t stage) { stage_ = stage; }
  Parameter& add(Parameter parameter);
  /// Allocates one buffer for all gradients, for a model on one rank (data-parallel ranks use
  /// ParamBuckets). REQUIRES: all parameters are added; called once.
  void allocate_gradients(ExecutionContext& ctx);
  /// Marks all gradients as unset; the next backward overwrites them.
  void clear_gradients();
  /// Zeroes the gradients that no backward has written since clear_gradients(). REQUIRES: all
  /// gradients have memory.
  void zero_unwritten_gradients(ExecutionContext& ctx);

  std::deque<Parameter>& all() { return parameters_; }
  const std::deque<Parameter>& all() const { return parameters_; }
  Parameter* find(std::string_view name);
  StateBuffer& add_buffer(StateBuffer buffer);
  std::deque<StateBuffer>& buffers() { return buffers_; }
  int64_t numel() const;
  /// Elements of the parameters that are trained.
  int64_t trained_numel() const;
  /// All main gradients, in the order of the parameters.
  const Tensor& gradient_buffer() const { return gradients_; }

 private:
  std::deque<Parameter> parameters_;
  std::deque<StateBuffer> buffers_;
  std::unordered_map<std::string, size_t> places_, buffer_places_;  // by name
  Tensor gradients_;
  int64_t stage_ = 0;
};

}  // namespace mtrain
