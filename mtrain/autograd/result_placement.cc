#include "mtrain/autograd/result_placement.h"

#include <array>

#include "mtrain/base/error.h"

namespace mtrain {

void ResultPlacement::refuse(std::string_view message, std::string_view hint) const {
  throw Error(ErrorClass::bug, cat(op_, " of ", shape_, ": ", message), std::string(hint));
}

ResultPlacement& ResultPlacement::with(PlacementRule rule, const Tensor& input) {
  if (!input.defined()) return *this;
  if (!placed_ || !input.placement()) return placed_.reset(), *this;
  try {
    placed_ = mix(rule, std::array{*placed_, *input.placement()});
  } catch (const Error& error) {
    refuse(error.message(), error.hint());
  }
  return *this;
}

ResultPlacement& ResultPlacement::with(PlacementRule rule) {
  if (!placed_) return *this;
  try {
    placed_ = mix(rule, std::array{*placed_});
  } catch (const Error& error) {
    refuse(error.message(), error.hint());
  }
  return *this;
}

ResultPlacement& ResultPlacement::unsharded(int dim, std::string_view why) {
  if (placed_ && *placed_ == Placement::S(dim))
    refuse(cat("its input is placed ", *placed_, ", but ", why),
           cat("redistribute ", *placed_, " -> R or I before it"));
  return *this;
}

ResultPlacement& ResultPlacement::turn(Placement from, Placement to, std::string_view why) {
  if (!placed_) return *this;
  if (*placed_ != from)
    refuse(cat("it is placed ", *placed_, ", not ", from, ": ", why),
           cat("redistribute to ", from, " before it"));
  placed_ = to;
  return *this;
}

}  // namespace mtrain
