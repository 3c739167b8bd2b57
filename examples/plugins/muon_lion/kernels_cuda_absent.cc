#include "kernels.h"

namespace muon_lion {

const Kernels* const kCudaKernels = nullptr;

}  // namespace muon_lion
