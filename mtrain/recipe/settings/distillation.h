// The settings of objective.type=distillation. A value.
#pragma once
#include <string>

#include "mtrain/config/fields.h"

namespace mtrain {

struct DistillationSettings {
  std::string teacher, kind = "forward_kl", store;
  int64_t top_k = 0;
  double beta = 0.5, temperature = 1, alpha = 0;
  void bind(Fields& f);
  /// The weight of the mixture: 0: KL(teacher ‖ student), 1: KL(student ‖ teacher), else JSD.
  double mixture() const { return kind == "forward_kl" ? 0 : kind == "reverse_kl" ? 1 : beta; }
};

}  // namespace mtrain
