#include "kernels.h"

namespace mtrain::optimizer_kernels {

const Kernels* const kCudaKernels = nullptr;

}  // namespace mtrain::optimizer_kernels
