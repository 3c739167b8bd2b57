// The GPU as the only backend on which the contract is tested.
#include "contract/test_backends.h"
#include "cuda_backend.h"

namespace mtrain::contract {

std::vector<TestBackend> test_backends() {
  return {{"cuda", [](int) { return std::make_unique<cuda::CudaBackend>(); }}};
}

}  // namespace mtrain::contract
