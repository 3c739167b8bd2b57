// The kernels of one instruction-set level. This folder is compiled once per level with MT_ISA set
// to the level's name. Everything is in that namespace (and templates take a type from it), so that
// no two levels share a symbol. Thread-safe for different streams.
#pragma once
#include <string_view>

#include "mtrain/tensor/kernel_table.h"

#ifndef MT_ISA
#define MT_ISA base
#endif

namespace mtrain::cpu::MT_ISA {

/// True for an entry of the table that a level has no function for: gemm is the same at every level
/// (mtrain/cpu/gemm.h), and CPUs have no unit for quantized_gemm. Tiles (AMX) change only the
/// products, so their level has these alone and takes the others from the level below, whose code
/// would be the same.
constexpr bool is_absent(std::string_view entry) {
#if defined(__AMX_BF16__)
  if (!entry.starts_with("attention")) return true;
#endif
  return entry == "gemm" || entry == "quantized_gemm";
}

/// A kernel for each entry of the table, under the entry's name. One that is not absent and defined
/// nowhere does not link.
#define MT_DECLARE(entry, Args) void entry(Stream&, const Args&);
MT_KERNELS(MT_DECLARE)
#undef MT_DECLARE

/// KernelTable::gemm for one matrix, with this level's own kernel: fp32, bf16 and fp16 in every
/// layout. REQUIRES: batch is 1; m, n and k are positive. Shapes: GemmArgs.
void packed_gemm(Stream&, const GemmArgs&);

/// Fills the entries that this level, or the level that it extends, has a function for.
void fill_kernels(KernelTable& table);

}  // namespace mtrain::cpu::MT_ISA
