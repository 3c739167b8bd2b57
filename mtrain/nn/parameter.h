// Parameter: a named tensor that training changes. Owned by the ParamList of its rank; modules hold
// references, which stay valid for the list's life. For the rank's own thread.
#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

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
      {};  // what this rank holds; empty: the even cut by the axis of the name
};
using Dims = std::vector<Dim>;

/// A box of a parameter that this rank holds: in the whole, and in the local tensor.
struct ParamBox {
  Box global, local;  // of equal extents
  bool is_primary = true;
};

/// The boxes of a tensor of which some dimensions are sharded: one for each combination of pieces.
/// A box is primary where `is_primary` and all its pieces are.
MT_API std::vector<ParamBox> shard_boxes(const Shape& global, std::span<const DimShard> shards,
                                         bool is_primary);

/// What a parameter is to the model: optimizers choose by it.
enum class ParamRole : uint8_t {
  other,      // none of these: a scalar, a table of learned scales
  matrix,     // a linear layer's weight, or several of them fused
  embedding,  // a table of vectors by token, position or segment; also where a head is tied to it
  head,       // the output matrix, where it is not the embedding's table
  norm,       // scale and bias of a normalization
  bias,       // a linear layer's
  expert_matrix,  // the weights of all experts of a mixture
  router          // the weight that chooses experts, or scales a shared one
};

struct QuantizedWeight;

struct MT_API Parameter {
  std::string name;  // the path of scopes: "layers.0.attn.qkv.weight"
  ParamRole role = ParamRole::other;
  Dims dims;
  std::vector<LogicalMatrix> matrices;  // of the whole tensor; none for a vector
  bool decay = false;                   // weight decay applies
  Shape global;                         // shape of the whole
  Shape local;                          // of this rank's part
  DType dtype = DType::f32;             // of the value; u8: codes
  Init start;                           // what elements begin as
  std::vector<DimShard>
      shards;  // the dimensions that are cut, rising; none: this rank holds all of it
  std::vector<PartialSum> partial;  // elements of the gradient that other ranks have summands of
  bool is_primary =
      true;             // false: a copy of what another rank of the same replica holds and counts
  int64_t stage = 0;    // of the pipeline: the one that has added it
  bool expert = false;  // its replicas are the ranks of edp, not those of dp and cp
  const Axis* tensor_axis = nullptr;  // of tensor parallelism (tp, of experts etp), where it shards
                                      // a dimension
  int tensor_dim = -1;                // that dimension
  std::optional<Placement>
      placement;  // along tp, where that cuts anything; nothing for an expert's
  const QuantizedWeight* quantized =
      nullptr;  // not null: the value may be codes of a low-precision type (nn/precision.h)
  // Data-parallel ranks may share these out (optim/param_buckets.h): then there is no master here,
  // and value and gradient have their memory only while it is needed.
  Tensor master;     // float: what the optimizer updates and the checkpoint keeps
  Tensor value;      // what the model computes with; the master itself in fp32
  Tensor main_grad;  // float, a view into a buffer of many parameters' gradients
  std::shared_ptr<Leaf> leaf;

  int64_t numel() const { return local.numel(); }
  /// Writes the start values of local elements begin, begin + 1, …
  void start_values(uint64_t seed, int64_t begin, std::span<float> values) const;
  /// Ranges [begin, end) of the local elements that this rank counts in norms, rising and not
  /// touching.
  std::vector<std::pair<int64_t, int64_t>> primary_ranges() const;
  /// What this rank holds, as boxes: one, or one for each combination of pieces.
  std::vector<ParamBox> boxes() const;
  /// The same of local elements [begin, end), which take a few boxes more where they end within a
  /// row.
  std::vector<ParamBox> boxes_of(int64_t begin, int64_t end) const;
  /// The value with its place on the tape.
  Tensor use() const {
    if (leaf->watch) leaf->watch->before_value(leaf->number);
    Tensor t = value;
    if (t.context().typed) t.set_placement(placement);
    if (t.context().grad_enabled) t.set_node(leaf);
    return t;
  }
};

class MT_API ParamList {
 public:
  /// Parameters that are added from here on belong to this stage of the pipeline.
  void begin_stage(int64_t stage) { stage_ = stage; }
  Parameter& add(Parameter parameter);
  /// Allocates one gradient buffer, for a model that is alone (data-parallel ranks have
  /// ParamBuckets). REQUIRES: all parameters added; called once.
  void allocate_gradients(ExecutionContext& ctx);
  /// Forgets the gradients of the last step; the next backward overwrites them.
  void clear_gradients();
  /// Zeroes those that no backward touched since clear_gradients(), so that every gradient is
  /// defined. REQUIRES: memory for all of them is there.
  void settle_gradients(ExecutionContext& ctx);

  std::deque<Parameter>& all() { return parameters_; }
  const std::deque<Parameter>& all() const { return parameters_; }
  Parameter* find(std::string_view name);
  StateBuffer& add_buffer(StateBuffer buffer);
  std::deque<StateBuffer>& buffers() { return buffers_; }
  int64_t numel() const;
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
