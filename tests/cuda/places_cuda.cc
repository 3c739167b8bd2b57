// The GPU as the one place of the contract.
#include "contract/places.h"
#include "cuda_backend.h"

namespace mtrain::contract {

std::vector<Place> places() {
  return {{"cuda", [](int) { return std::make_unique<cuda::CudaBackend>(); }}};
}

}  // namespace mtrain::contract
