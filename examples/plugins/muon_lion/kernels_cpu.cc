#include <cmath>

#include "formulas.h"

namespace muon_lion {
namespace {

template <class Args>
const char* each(void* /*queue*/, const Args& args) {
  for (int64_t i = 0; i < args.count; ++i) apply(args, i);
  return nullptr;
}

const char* normalize(void* /*queue*/, const NormalizeArgs& a) {
  float sum = 0;
  for (int k = 0; k < kPartials; ++k) {
    float part = 0;
    for (int64_t i = k; i < a.count; i += kPartials) part += a.x[i] * a.x[i];
    sum += a.partials[k] = part;
  }
  const float factor = 1 / (std::sqrt(sum) + a.eps);
  for (int64_t i = 0; i < a.count; ++i) a.x[i] *= factor;
  return nullptr;
}

}  // namespace

const Kernels kCpuKernels = {each<MomentumArgs>, normalize, each<StepArgs>, each<LionArgs>};

}  // namespace muon_lion
