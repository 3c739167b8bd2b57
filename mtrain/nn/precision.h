// PrecisionPlan: which layers of a model compute matrix products in FP8 or FP4, and how, according
// to the recipe's mixed_precision. Owns the state of these layers between steps. Must outlive the
// model; for the rank's own thread.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "mtrain/autograd/quantized_products.h"
#include "mtrain/comm/communicator.h"
#include "mtrain/nn/parameter.h"

namespace mtrain {

class Scope;

/// A weight with one scale for each of its matrices, so that its value may be stored as codes
/// (optim/quantized_weights.h).
struct QuantizedWeight {
  QuantizedProducts* products = nullptr;
  std::vector<const Axis*> axes;  // axes over which the matrices are sharded
};

struct PrecisionOptions {
  bool quantized = false;  // products of blocks are in a low-precision type
  QuantRule rule;
  bool head = false;   // also quantize the output head's product
  int64_t layers = 0;  // number of blocks of the whole model
  int64_t first_plain = 0,
          last_plain = 0;       // numbers of first and last blocks that are not quantized
  int64_t amax_history = 1024;  // delayed: number of steps
  DelayedScales::Algorithm amax_algorithm = DelayedScales::Algorithm::max;
};

class MT_API PrecisionPlan {
 public:
  PrecisionPlan() = default;
  explicit PrecisionPlan(const PrecisionOptions& options) : options_(options) {}
  PrecisionPlan(const PrecisionPlan&) = delete;
  PrecisionPlan& operator=(const PrecisionPlan&) = delete;

  /// How the layer at this scope, with this weight [out, in] or [experts, out, in], computes its
  /// products; null: in the dtype of its weight. `head`: the layer is the output head. Also sets
  /// weight.quantized, except for the head, whose weight may be a tied embedding table.
  const QuantizedProducts* of(const Scope& scope, Parameter& weight, bool head = false);
  /// The number of layers with low-precision products.
  size_t size() const { return layers_.size(); }

  /// Call it at the end of a step and before the update, because the update quantizes weights for
  /// the next step with the new scales. If there is an update, appends the amax over all ranks of
  /// the stage to the history. Collective over `replicas` and `tensor`, whose product is all ranks
  /// of the stage; does nothing without delayed scales.
  void end_step(ExecutionContext& ctx, bool updated, Communicator& replicas, Communicator* tensor);

 private:
  struct Layer {
    QuantizedProducts products;
    std::unique_ptr<DelayedScales> delayed;
    QuantizedWeight weight;
  };
  bool takes(const Scope& scope, bool head) const;

  PrecisionOptions options_;
  std::deque<Layer> layers_;  // references stay valid
};

}  // namespace mtrain
