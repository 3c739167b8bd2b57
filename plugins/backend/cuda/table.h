// The kernel table of the CUDA backend. Stateless; thread-safe.
#pragma once
#include "mtrain/tensor/kernel_table.h"

namespace mtrain::cuda {

KernelTable cuda_kernels();
/// The scale types that the matrix unit of a compute capability (90: 9.0) supports, as in
/// KernelTable::quant_scales: 8.9 whole tensors, 9.0 also blocks with float scales, 10.0 and later
/// the microscaling formats instead of these.
uint32_t quant_scales_of(int architecture);

}  // namespace mtrain::cuda
