#include "mtrain/optim/objective.h"

#include "mtrain/base/error.h"

namespace mtrain {

Objective::~Objective() = default;

ObjectiveValue Objective::of_pair(const Answer&, const Answer&) const {
  throw Error(ErrorClass::plugin, "the objective learns from pairs, but has no of_pair()", "");
}

ObjectiveValue Objective::of_label(const Answer&, bool) const {
  throw Error(ErrorClass::plugin, "the objective learns from labels, but has no of_label()", "");
}

ClassValue Objective::of_class(std::span<const double>, int64_t) const {
  throw Error(ErrorClass::plugin, "the objective learns from classes, but has no of_class()", "");
}

}  // namespace mtrain
