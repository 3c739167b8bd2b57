// The kernel table of the CUDA backend. Stateless; thread-safe.
#pragma once
#include "mtrain/tensor/kernel_table.h"

namespace mtrain::cuda {

KernelTable cuda_kernels();
/// The scale types that the matrix unit of a compute capability (90: 9.0) supports, as in
/// KernelTable::quant_scales. 8.9: `tensor`; 9.0: `tensor` and `power_of_two`; 10.0 and later:
/// `tensor`, `e8m0` and `nvfp4`; before 8.9: none.
uint32_t quant_scales_of(int architecture);

}  // namespace mtrain::cuda
