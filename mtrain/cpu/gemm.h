// Matrix multiplication on the CPU. Thread-safe for different streams.
#pragma once
#include "mtrain/tensor/kernel_table.h"

namespace mtrain::cpu {

/// KernelTable::gemm of the CPU backend: fp32, bf16 and fp16 in every layout, with the kernels of
/// the stream's level. The result has the same bits for any number of threads. Shapes: GemmArgs.
void gemm(Stream& stream, const GemmArgs& args);

}  // namespace mtrain::cpu
