// The kernel table of the CUDA backend. Stateless.
#pragma once
#include "mtrain/tensor/kernel_table.h"

namespace mtrain::cuda {

KernelTable cuda_kernels();
/// What the unit of a compute capability (90: 9.0) multiplies by, as KernelTable::quant_scales: 8.9
/// whole tensors, 9.0 also blocks with float scales, 10.0 and later the microscaling formats
/// instead.
uint32_t quant_scales_of(int architecture);

}  // namespace mtrain::cuda
