// ResultPlacement: computes the placement of an op's result along the axis of
// ExecutionContext::tracked_axis, and refuses inputs that cannot be combined, before anything is
// computed. An op with placement rules has a member
//   MaybePlacement placed(const Tensor& …) const;   // same inputs as forward()
// that uses ResultPlacement, and its result then carries the placement. The result of another op
// keeps what forward() set, usually nothing. If the placement of an input is unknown, the placement
// of the result is unknown and nothing is refused. A value type; does not own the names it refers
// to.
#pragma once
#include <optional>
#include <string_view>

#include "mtrain/tensor/mixing.h"
#include "mtrain/tensor/tensor.h"

namespace mtrain {

using MaybePlacement = std::optional<Placement>;

class MT_API ResultPlacement {
 public:
  /// `op` is the name for messages; `x` is the first input of the op.
  ResultPlacement(std::string_view op, const Tensor& x)
      : op_(op), shape_(x.shape()), placed_(x.placement()) {}

  /// Combines the placement so far with another input by a rule; does nothing if that input is
  /// undefined. Throws Error(bug) that names the op, both placements and which input to
  /// redistribute.
  ResultPlacement& with(PlacementRule rule, const Tensor& input);
  /// The same for rules with one input.
  ResultPlacement& with(PlacementRule rule);
  /// Throws if the tensor is sharded along this dim; `why` says why the op needs the whole.
  ResultPlacement& unsharded(int dim, std::string_view why);
  /// Continues with placement `to` if the current one is `from`; throws if the current one is known
  /// and different.
  ResultPlacement& turn(Placement from, Placement to, std::string_view why);
  operator MaybePlacement() const { return placed_; }  // NOLINT: the end of a chain

 private:
  [[noreturn]] void refuse(std::string_view message, std::string_view hint) const;
  std::string_view op_;
  Shape shape_;
  MaybePlacement placed_;
};

}  // namespace mtrain
