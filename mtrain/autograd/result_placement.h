// ResultPlacement: how an op's result is placed along the axis of Run::typed, and whether its
// inputs mix at all, before anything is computed. An op that knows has a member
//   MaybePlacement placed(const Tensor& …) const;                        of the inputs of
//   forward(); written with ResultPlacement
// and its result then carries the letter; the result of another op has what forward() gave it,
// usually nothing. Where an input's placement is not known the result's is not, and nothing is
// refused. Values.
#pragma once
#include <optional>
#include <string_view>

#include "mtrain/tensor/mixing.h"
#include "mtrain/tensor/tensor.h"

namespace mtrain {

using MaybePlacement = std::optional<Placement>;

class MT_API ResultPlacement {
 public:
  /// `op` names it in messages; `x` is its first input.
  ResultPlacement(std::string_view op, const Tensor& x)
      : op_(op), shape_(x.shape()), placed_(x.placement()) {}

  /// What comes of mixing so far with another input by a rule; as it is where that input is absent.
  /// Throws Error(bug) that names the op, both letters and what to redistribute.
  ResultPlacement& with(PlacementRule rule, const Tensor& input);
  /// The same of rules with one input.
  ResultPlacement& with(PlacementRule rule);
  /// Throws where it is cut along this dim, with why the op needs the whole.
  ResultPlacement& uncut(int dim, std::string_view why);
  /// Goes on with another placement where the present one is `from`; throws where it is known and
  /// another.
  ResultPlacement& turn(Placement from, Placement to, std::string_view why);
  operator MaybePlacement() const { return placed_; }  // NOLINT: the end of a chain

 private:
  [[noreturn]] void refuse(std::string_view message, std::string_view hint) const;
  std::string_view op_;
  Shape shape_;
  MaybePlacement placed_;
};

}  // namespace mtrain
