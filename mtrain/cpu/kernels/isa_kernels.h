// The kernels of one instruction-set level. This folder is compiled once per level with MT_ISA set
// to the level's name. Everything is in that namespace (and templates take a type from it), so that
// no two levels share a symbol. Thread-safe for different streams.
#pragma once
#include "mtrain/tensor/kernel_table.h"

#ifndef MT_ISA
#define MT_ISA base
#endif

namespace mtrain::cpu::MT_ISA {

// Entries of the table that a level has no function for.
void gemm(Stream&, const GemmArgs&) = delete;  // the same at every level: mtrain/cpu/gemm.h
void quantized_gemm(Stream&,
                    const QuantizedGemmArgs&) = delete;  // absent: CPUs have no unit for it

/// Every other kernel of the table, under the name of its entry. One that is declared here and
/// defined nowhere does not link.
#define MT_DECLARE(entry, Args) void entry(Stream&, const Args&);
MT_KERNELS(MT_DECLARE)
#undef MT_DECLARE

/// KernelTable::gemm for one matrix, with this level's own kernel: every type and layout. REQUIRES:
/// batch is 1; m, n and k are positive. Shapes: GemmArgs.
void packed_gemm(Stream&, const GemmArgs&);

/// Fills the entries that this level has a function for.
void fill_kernels(KernelTable& table);

}  // namespace mtrain::cpu::MT_ISA
