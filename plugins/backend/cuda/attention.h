// Attention of the CUDA backend: cuDNN's fused kernels where they support the call, plain kernels
// otherwise. For one thread at a time.
#pragma once
#include <memory>
#include <vector>

#include "mtrain/tensor/kernel_table.h"

namespace mtrain::cuda {

class CudaStream;
class SdpaPlans;

/// KernelTable::attention and attention_backward; shapes: AttentionArgs.
void attention(CudaStream& stream, const AttentionArgs& args);
void attention_backward(CudaStream& stream, const AttentionBackwardArgs& args);

/// The spans of queries and keys, one per sequence, from `spans` or cu_seqlens of the arguments.
std::vector<AttentionSpan> spans_of(const AttentionArgs& args);

/// The cuDNN handle and plans of one stream; empty if the plugin was built without cuDNN.
class AttentionPlans {
 public:
  AttentionPlans();
  ~AttentionPlans();
  SdpaPlans* sdpa() { return sdpa_.get(); }

 private:
  std::unique_ptr<SdpaPlans> sdpa_;
};

}  // namespace mtrain::cuda
