// Attention of the CUDA backend: cuDNN's fused kernels where they take the call, plain kernels
// everywhere else. For one thread at a time.
#pragma once
#include <memory>
#include <vector>

#include "mtrain/tensor/kernel_table.h"

namespace mtrain::cuda {

class CudaStream;
class SdpaPlans;

/// KernelTable::attention and attention_backward.
void attention(CudaStream& stream, const AttentionArgs& args);
void attention_backward(CudaStream& stream, const AttentionBackwardArgs& args);

/// Which queries look at which keys, one span per sequence, whichever way the arguments say it.
std::vector<AttentionSpan> spans_of(const AttentionArgs& args);

/// The cuDNN handle and plans of one stream; nothing where the plugin was built without cuDNN.
class AttentionPlans {
 public:
  AttentionPlans();
  ~AttentionPlans();
  SdpaPlans* sdpa() { return sdpa_.get(); }

 private:
  std::unique_ptr<SdpaPlans> sdpa_;
};

}  // namespace mtrain::cuda
