// Fused attention through cuDNN's graph API: graphs of plain operations that the library recognizes
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

/// Null if the plugin was built without cuDNN.
std::unique_ptr<SdpaPlans> make_sdpa_plans();

/// Return false and do nothing if the library has no kernel for the call. Shapes: AttentionArgs.
bool run_sdpa(SdpaPlans& plans, CudaStream& stream, const AttentionArgs& args);
bool run_sdpa_backward(SdpaPlans& plans, CudaStream& stream, const AttentionBackwardArgs& args);

}  // namespace mtrain::cuda
