// Mixtures of experts.
#include "mtrain/train/rules/rules.h"

namespace mtrain {
namespace {

constexpr Rule kRules[] = {
    {"ep-needs-experts", "dist.ep", "dist.ep > 1 or dist.etp > 1", "experts > 0",
     "the model has no experts to spread", "", "dist.ep=1, dist.etp=1"},
};

}  // namespace

std::span<const Rule> moe_rules() {
  return kRules;
}

}  // namespace mtrain
