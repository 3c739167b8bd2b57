// The kernel table of the CUDA backend. Stateless.
#pragma once
#include "mtrain/tensor/kernel_table.h"

namespace mtrain::cuda {

KernelTable cuda_kernels();

}  // namespace mtrain::cuda
