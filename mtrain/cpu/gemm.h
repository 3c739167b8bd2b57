// Matrix multiplication on the CPU.
#pragma once
#include "mtrain/tensor/kernel_table.h"

namespace mtrain::cpu {

/// KernelTable::gemm of the CPU backend: every floating type and layout, by the kernels of the
/// stream's level. The same bits for any number of threads.
void gemm(Stream& stream, const GemmArgs& args);

}  // namespace mtrain::cpu
