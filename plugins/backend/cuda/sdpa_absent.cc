#ifndef MT_HAVE_CUDNN
#include "sdpa.h"

namespace mtrain::cuda {

std::unique_ptr<SdpaPlans> make_sdpa_plans() { return nullptr; }
bool run_sdpa(SdpaPlans&, CudaStream&, const AttentionArgs&) { return false; }
bool run_sdpa_backward(SdpaPlans&, CudaStream&, const AttentionBackwardArgs&) { return false; }

}  // namespace mtrain::cuda
#endif
