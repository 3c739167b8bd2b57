#include "mtrain/optim/objective.h"

#include <algorithm>
#include <cmath>

#include "mtrain/base/error.h"

namespace mtrain {

Objective::~Objective() = default;

ObjectiveValue Objective::of_pair(const Answer&, const Answer&) const {
  throw Error(ErrorClass::plugin, "the objective learns from pairs, but has no of_pair()", "");
}

ObjectiveValue Objective::of_label(const Answer&, bool) const {
  throw Error(ErrorClass::plugin, "the objective learns from labels, but has no of_label()", "");
}

ClassValue class_cross_entropy(std::span<const double> scores, int64_t number,
                               double label_smoothing) {
  const auto wanted = static_cast<size_t>(number);
  const auto largest = std::ranges::max_element(scores);
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - *largest);
  const double lse = *largest + std::log(sum),
               each = label_smoothing / static_cast<double>(scores.size());
  ClassValue out;
  out.d_scores.resize(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    const double share = each + (i == wanted ? 1 - label_smoothing : 0);
    out.loss += share * (lse - scores[i]);
    out.d_scores[i] = std::exp(scores[i] - lse) - share;
  }
  out.figures = {static_cast<size_t>(largest - scores.begin()) == wanted ? 1.0 : 0.0};
  return out;
}

std::vector<Share> Objective::of_sequence(std::span<const int32_t>,
                                          std::span<const int32_t>) const {
  throw Error(ErrorClass::plugin, "the objective has sequence_figures(), but has no of_sequence()",
              "");
}

ClassValue Objective::of_class(std::span<const double>, int64_t) const {
  throw Error(ErrorClass::plugin, "the objective learns from classes, but has no of_class()", "");
}

}  // namespace mtrain
