// PrecisionPlan: which layers of a model have their products in FP8 or FP4, and how, as the
// recipe's mixed_precision says it. Owns what those layers need from step to step. Outlives the
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

/// A weight whose products have one scale for each of its matrices, so that its value may be codes
/// (optim/quantized_weights.h).
struct QuantizedWeight {
  QuantizedProducts* products = nullptr;
  std::vector<const Axis*> axes;  // whose ranks have other parts of the matrices
};

struct PrecisionOptions {
  bool quantized = false;  // products of blocks are in a low-precision type
  QuantRule rule;
  bool head = false;                        // the head's product too
  int64_t layers = 0;                       // blocks of the whole model, of which
  int64_t first_plain = 0, last_plain = 0;  // so many at either end are left out
  int64_t amax_history = 1024;              // delayed: steps
  DelayedScales::Algorithm amax_algorithm = DelayedScales::Algorithm::max;
};

class MT_API PrecisionPlan {
 public:
  PrecisionPlan() = default;
  explicit PrecisionPlan(const PrecisionOptions& options) : options_(options) {}
  PrecisionPlan(const PrecisionPlan&) = delete;
  PrecisionPlan& operator=(const PrecisionPlan&) = delete;

  /// How the layer at this place, with this weight [out, in] or [experts, out, in], computes its
  /// products; null: in the type of its values. `head`: of the model's end. Says so in
  /// weight.quantized where nobody else reads the weight: that of a head may be a table.
  const QuantizedProducts* of(const Scope& scope, Parameter& weight, bool head = false);
  /// How many layers compute theirs in a low-precision type.
  size_t size() const { return layers_.size(); }

  /// At the end of a step, before its update, which makes codes for the next one: if there is an
  /// update, largest values over all ranks of the stage become history. Collective over both
  /// groups, which together are those ranks; nothing without delayed scales.
  void end_step(ExecutionContext& ctx, bool updated, Communicator& replicas, Communicator* tensor);

 private:
  struct Layer {
    QuantizedProducts products;
    std::unique_ptr<DelayedScales> delayed;
    QuantizedWeight weight;
  };
  bool takes(const Scope& scope, bool head) const;

  PrecisionOptions options_;
  std::deque<Layer> layers_;  // references to them stay good
};

}  // namespace mtrain
