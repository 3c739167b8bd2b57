// QuantizedProducts: the three matrix products of a linear layer (forward and the two gradients) in
// FP8 or FP4. Operands are rounded to the low-precision type with scales according to a recipe. The
// products multiply codes on the device's low-precision unit, or otherwise their bf16 values (code
// times tile scale, which bf16 represents exactly). Sums are in float, and scales of whole tensors
// are applied after the sum. Everything else (bias, residual, gradients, master weights) is
// unaffected. Owned by the layer's model; for the rank's own thread.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "mtrain/autograd/tape.h"
#include "mtrain/base/quant_format.h"

namespace mtrain {

/// How scales are computed.
enum class QuantRecipe : uint8_t {
  tensorwise,  // one per tensor, from its current amax (largest absolute value)
  delayed,     // one per tensor, from the amax of earlier steps
  blockwise,   // per 1x128 elements along the contraction dimension, weights per 128x128; powers of
               // two
  mxfp8,       // per 32 elements along the contraction dimension; e8m0 powers of two
  nvfp4,       // per 16 elements along the contraction dimension, weights per 16x16; e4m3, with one
               // float scale per tensor
};

/// The role of an operand in a recipe.
enum class QuantOperand : uint8_t { input, weight, gradient };
inline constexpr size_t kQuantOperands = 3;

struct QuantRule {
  QuantRecipe recipe = QuantRecipe::tensorwise;
  QuantFormat forward = QuantFormat::e4m3,
              backward = QuantFormat::e5m2;  // forward: format of inputs and weights; backward:
                                             // format of output gradients
  float headroom = 1;                        // delayed: factor of room above the known amax
  bool stochastic = true;  // nvfp4: stochastic rounding of gradients (Philox, by element)
  bool hadamard = true;    // nvfp4: both operands of the weight gradient are first rotated by a
                           // random Hadamard transform, 16 tokens at a time
};

/// Delayed scaling: the amax of each operand in earlier steps, and in the current step. Does not
/// own the history.
class MT_API DelayedScales {
 public:
  enum class Algorithm : uint8_t { max, most_recent };
  /// `history` [kQuantOperands, steps] holds, for each operand, the amax of the last steps, newest
  /// first; 0 where there was none. The caller owns it. It is the same on all ranks; a checkpoint
  /// may be loaded into it until it is first used.
  DelayedScales(std::vector<float>& history, Algorithm algorithm)
      : history_(&history), algorithm_(algorithm) {}

  /// The amax from which this operand's scale is computed, float [1]; undefined if there is none in
  /// the history yet.
  Tensor from_history(ExecutionContext& ctx, QuantOperand operand);
  /// Records the amax of a tensor in the current step.
  void record(ExecutionContext& ctx, QuantOperand operand, const Tensor& amax);
  /// The amax of each operand since end_step(), on this rank; 0 if nothing was recorded.
  std::array<float, kQuantOperands> recorded(ExecutionContext& ctx) const;
  /// Ends a step. `recorded` holds the maxima over all ranks; `keep` false discards them.
  void end_step(std::span<const float> recorded, bool keep);

 private:
  std::vector<float>* history_;
  Algorithm algorithm_;
  Tensor recorded_, used_;  // [3], float
  std::array<bool, kQuantOperands> is_known_{};
  bool stale_ = true;  // used_ does not match the history
};

/// Scales of a weight that is stored as codes (optim/quantized_weights.h), one float per matrix:
/// the amax of the whole matrix, and the factor of its codes.
struct WeightScales {
  Tensor amax, factors;
};

class MT_API QuantizedProducts {
 public:
  QuantizedProducts(const QuantRule& rule, uint64_t name_key) : rule_(rule), name_key_(name_key) {}
  const QuantRule& rule() const { return rule_; }

  /// Turns the amax of an operand's shard into the maximum over all ranks that hold a shard of it,
  /// in place. Collective; empty: one rank.
  std::function<void(const Tensor& amax, QuantOperand operand)> all_reduce_amax;
  DelayedScales* delayed = nullptr;  // for recipe `delayed`; not owned
  WeightScales coded;                // undefined unless the weight is stored as codes
  /// Position of this rank's columns of output gradients in the whole matrix, and the width of the
  /// whole matrix, for stochastic rounding; outputs 0: this rank has all columns.
  int64_t first_output = 0, outputs = 0;

  /// The amax from which an operand's scale is computed: that of x over all ranks or, with delayed
  /// scaling, that of earlier steps if there is one. Undefined if the recipe needs none. With
  /// delayed scaling and in training, also records the amax of x.
  Tensor measure(ExecutionContext& ctx, const Tensor& x, QuantOperand operand) const;

  /// An operand x with its amax; or codes (u8) with their factor.
  struct Operand {
    Tensor x, amax, factor = {};
  };
  /// Prepares x as an operand of the products below: calls measure(), or finds the factor of a
  /// weight that is stored as codes and records its amax in the same way. `matrix`: the index of
  /// the matrix in a weight that holds several.
  Operand prepare(ExecutionContext& ctx, const Tensor& x, QuantOperand operand,
                  int64_t matrix = 0) const;

  /// Quantizes any elements of a weight, for recipes with one scale per matrix, and returns the
  /// factor of the codes: the same codes and factor as in products. `amax`: the amax of the matrix.
  /// `codes` may be undefined.
  void encode(ExecutionContext& ctx, const Tensor& values, const Tensor& amax, const Tensor& codes,
              const Tensor& factor) const;

  /// The products of ops/products.h, with its shapes. `first_row`: the global index of the first
  /// row, by which stochastic rounding addresses its random numbers.
  void forward(ExecutionContext& ctx, const Operand& x, const Operand& w, const Tensor& b,
               const Tensor& addend, const Tensor& y) const;
  void input_gradient(ExecutionContext& ctx, const Operand& dy, const Operand& w, const Tensor& dx,
                      bool accumulate, int64_t first_row) const;
  void weight_gradient(ExecutionContext& ctx, const Operand& dy, const Operand& x, const Tensor& dw,
                       bool accumulate, int64_t first_row) const;

 private:
  enum class Along : uint8_t { cols, rows };  // the contraction dimension of the product
  /// An operand as products read it: codes and scales in the layout of the device's unit if it
  /// supports the recipe, otherwise bf16 values.
  struct Codes {
    Tensor values;          // bf16, shape of x
    Tensor packed, scales;  // bytes, in `layout`
    QuantLayout layout;
    Tensor factor;  // float [1]; undefined: 1
  };
  Codes quantize(ExecutionContext& ctx, const Operand& operand, QuantOperand kind, Along along,
                 int64_t first_row) const;
  QuantScale scale() const;
  Operand rotate(ExecutionContext& ctx, const Tensor& x, QuantOperand kind) const;

  QuantRule rule_;
  uint64_t name_key_;
};

}  // namespace mtrain
