// Fused attention through cuDNN's graph API: graphs of plain operations that the library recognises
// and compiles to one kernel (its "scaled dot-product attention" pattern). For one thread at a
// time.
#pragma once
#include <memory>

#include "mtrain/tensor/kernel_table.h"

namespace mtrain::cuda {

class CudaStream;

/// The library's handle and the compiled plans of one stream.
class SdpaPlans {
 public:
  virtual ~SdpaPlans() = default;
};

/// Null where the plugin was built without cuDNN.
std::unique_ptr<SdpaPlans> make_sdpa_plans();

/// False, with nothing done, where the library has no kernel for the call.
bool run_sdpa(SdpaPlans& plans, CudaStream& stream, const AttentionArgs& args);
bool run_sdpa_backward(SdpaPlans& plans, CudaStream& stream, const AttentionBackwardArgs& args);

}  // namespace mtrain::cuda
