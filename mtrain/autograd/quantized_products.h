// QuantizedProducts: how the three products of a linear layer are computed in FP8 or FP4. Their
// operands are rounded to the low-precision type with scales as a recipe has them; what is
// multiplied are the codes, on the device's unit for them or (times scales of tiles, which bf16
// holds exactly) as bf16, sums are in float, and scales of whole tensors join in behind them.
// Everything else — bias, residual, gradients, weights that are updated — is as without. Owned by
// the layer's model; for the rank's own thread.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "mtrain/autograd/tape.h"
#include "mtrain/base/quant_format.h"

namespace mtrain {

/// Where scales come from.
enum class QuantRecipe : uint8_t {
  tensorwise,  // one per tensor, from its own largest value
  delayed,     // one per tensor, from those of earlier steps
  blockwise,   // of 1x128 values along the sum, weights 128x128; powers of two
  mxfp8,       // of 32 values along the sum; powers of two as e8m0
  nvfp4,       // of 16 values along the sum, weights 16x16, in e4m3 beside one per tensor
};

/// What a layer's operands are to a recipe.
enum class QuantOperand : uint8_t { input, weight, gradient };
inline constexpr size_t kQuantOperands = 3;

struct QuantRule {
  QuantRecipe recipe = QuantRecipe::tensorwise;
  QuantFormat forward = QuantFormat::e4m3,
              backward = QuantFormat::e5m2;  // of inputs and weights; of gradients of outputs
  float headroom = 1;                        // delayed: room above the largest value that is known
  bool stochastic = true;  // nvfp4: gradients are rounded to one of their neighbours by chance
                           // (Philox, by element)
  bool hadamard =
      true;  // nvfp4: both operands of a weight's gradient are rotated first, 16 tokens at a time
};

/// Delayed scaling: the largest values of earlier steps, and those of the step in flight.
class MT_API DelayedScales {
 public:
  enum class Algorithm : uint8_t { max, most_recent };
  /// `history` holds, for each operand, those of the last steps, newest first; 0 where there was
  /// none. It is its owner's, alike on all ranks, and may be written (by a checkpoint) until it is
  /// first used.
  DelayedScales(std::vector<float>& history, Algorithm algorithm)
      : history_(&history), algorithm_(algorithm) {}

  /// The largest value that this operand's scale is made for; undefined where nothing is known yet.
  Tensor known(Run& run, QuantOperand operand);
  /// Takes in a tensor's largest value.
  void see(Run& run, QuantOperand operand, const Tensor& amax);
  /// What was seen since end_step(), on this rank; 0 where nothing was.
  std::array<float, kQuantOperands> seen(Run& run) const;
  /// Ends a step with the largest values over all ranks; `keep` false forgets them.
  void end_step(std::span<const float> seen, bool keep);

 private:
  std::vector<float>* history_;
  Algorithm algorithm_;
  Tensor seen_, used_;  // [3], float
  std::array<bool, kQuantOperands> is_known_{};
  bool stale_ = true;  // used_ is not that of the history
};

/// Of a weight whose value is codes (optim/quantized_weights.h), one float for each of its
/// matrices: the largest value of all of it, and what its codes are to be multiplied by.
struct WeightScales {
  Tensor measured, factors;
};

class MT_API QuantizedProducts {
 public:
  QuantizedProducts(const QuantRule& rule, uint64_t name_key) : rule_(rule), name_key_(name_key) {}
  const QuantRule& rule() const { return rule_; }

  /// How largest values of an operand become those over all ranks that have a part of it, in place.
  /// Collective; empty: one rank.
  std::function<void(const Tensor& amax, QuantOperand operand)> share;
  DelayedScales* delayed = nullptr;  // of `delayed`
  WeightScales coded;                // undefined: the weight's value is not codes
  /// Where the columns of gradients lie in the whole that draws count over; 0: they are the whole.
  int64_t first_output = 0, outputs = 0;

  /// The largest value of an operand, over all ranks: what its scale is made from. Undefined where
  /// the recipe needs none.
  Tensor measure(Run& run, const Tensor& x, QuantOperand operand) const;

  /// An operand with what measure() said of it; or codes (u8), with what they are to be multiplied
  /// by.
  struct Operand {
    Tensor x, amax, factor = {};
  };
  /// `matrix`: of a weight of several, which one.
  Operand take(Run& run, const Tensor& x, QuantOperand operand, int64_t matrix = 0) const;

  /// Codes of any of a weight's values, where the recipe has one scale per matrix, and that scale's
  /// factor: the same as products would make of them. `amax`: the largest value of the matrix that
  /// codes are made for. `codes` may be undefined.
  void encode(Run& run, const Tensor& values, const Tensor& amax, const Tensor& codes,
              const Tensor& factor) const;

  /// The products of products.h; `draw` sets the micro-batch and row that random rounding counts
  /// from.
  void forward(Run& run, const Operand& x, const Operand& w, const Tensor& b, const Tensor& addend,
               const Tensor& y) const;
  void input_gradient(Run& run, const Operand& dy, const Operand& w, const Tensor& dx,
                      bool accumulate, int64_t draw) const;
  void weight_gradient(Run& run, const Operand& dy, const Operand& x, const Tensor& dw,
                       bool accumulate, int64_t draw) const;

 private:
  enum class Along : uint8_t { cols, rows };  // the dimension that a product adds up
  /// An operand as a product takes it. Where the device has a unit for the recipe: codes and scales
  /// as that reads them; else their values in bf16.
  struct Codes {
    Tensor values;          // bf16 [as x]
    Tensor packed, scales;  // bytes, in this layout
    QuantLayout layout;
    Tensor factor;  // float [1], undefined: 1
  };
  Codes quantize(Run& run, const Operand& operand, QuantOperand kind, Along along,
                 int64_t draw) const;
  QuantScale scale() const;
  Operand rotate(Run& run, const Tensor& x, QuantOperand kind) const;

  QuantRule rule_;
  uint64_t name_key_;
};

}  // namespace mtrain
