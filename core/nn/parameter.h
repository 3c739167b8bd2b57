// Parameter: a named tensor that training changes. Owned by the ParamList of its rank; modules hold references, which stay
// valid for the list's life. For the rank's own thread.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/autograd/tape.h"

namespace mtrain {

/// A dimension by name with its *global* size: {"mlp", 11008}.
struct Dim {
  std::string name;
  int64_t size = 0;
};
using Dims = std::vector<Dim>;

struct Parameter {
  std::string name;  // the path of scopes: "layers.0.attn.qkv.weight"
  Dims dims;
  bool decay = false;  // weight decay applies
  Tensor master;       // float: what the optimizer updates and the checkpoint keeps
  Tensor value;        // what the model computes with; the master itself in fp32
  Tensor main_grad;    // float, a view into the list's one gradient buffer
  std::shared_ptr<Leaf> leaf;

  int64_t numel() const { return master.numel(); }
  /// The value with its place on the tape.
  Tensor use() const {
    Tensor t = value;
    if (t.run().grad_enabled) t.set_node(leaf);
    return t;
  }
};

class MT_API ParamList {
 public:
  Parameter& add(Parameter parameter);
  /// Allocates the gradient buffer. REQUIRES: all parameters added; called once.
  void allocate_gradients(Run& run);
  /// Forgets the gradients of the last step; the next backward overwrites them.
  void clear_gradients();
  /// Zeroes those that no backward touched since clear_gradients(), so that every gradient is defined.
  void settle_gradients(Run& run);

  std::deque<Parameter>& all() { return parameters_; }
  const std::deque<Parameter>& all() const { return parameters_; }
  Parameter* find(std::string_view name);
  int64_t numel() const;
  /// All main gradients, in the order of the parameters.
  const Tensor& gradient_buffer() const { return gradients_; }

 private:
  std::deque<Parameter> parameters_;
  Tensor gradients_;
};

}  // namespace mtrain
