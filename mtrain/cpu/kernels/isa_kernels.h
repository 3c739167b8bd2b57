// The kernels of one instruction-set level. This folder is compiled once per level with MT_ISA set
// to the level's name. Everything is in that namespace (and templates take a type from it), so that
// no two levels share a symbol. Thread-safe for different streams.
#pragma once
#include "mtrain/tensor/kernel_table.h"

#ifndef MT_ISA
#define MT_ISA base
#endif

namespace mtrain::cpu::MT_ISA {

void rms_norm(Stream&, const RmsNormArgs&);
void rms_norm_backward(Stream&, const RmsNormBackwardArgs&);
void layer_norm(Stream&, const LayerNormArgs&);
void layer_norm_backward(Stream&, const LayerNormBackwardArgs&);
void rope(Stream&, const RopeArgs&);
void attention(Stream&, const AttentionArgs&);
void attention_backward(Stream&, const AttentionBackwardArgs&);
void silu_mul(Stream&, const SiluMulArgs&);
void silu_mul_backward(Stream&, const SiluMulBackwardArgs&);
void gelu(Stream&, const GeluArgs&);
void gelu_backward(Stream&, const GeluBackwardArgs&);
void embedding(Stream&, const EmbeddingArgs&);
void embedding_backward(Stream&, const EmbeddingBackwardArgs&);
void gather_sum(Stream&, const GatherSumArgs&);
void row_dots(Stream&, const RowDotsArgs&);
void cross_entropy(Stream&, const CrossEntropyArgs&);
void cross_entropy_backward(Stream&, const CrossEntropyBackwardArgs&);
void add(Stream&, const AddArgs&);
void cast(Stream&, const CastArgs&);
void copy_blocks(Stream&, const CopyBlocksArgs&);
void column_sum(Stream&, const ColumnSumArgs&);
void dropout(Stream&, const DropoutArgs&);
void amax(Stream&, const AmaxArgs&);
void quantize(Stream&, const QuantizeArgs&);
void hadamard(Stream&, const HadamardArgs&);
void squared_norm(Stream&, const SquaredNormArgs&);
void adamw(Stream&, const AdamWArgs&);

/// KernelTable::gemm for one matrix, with this level's own kernel: every type and layout. REQUIRES:
/// batch 1, m, n, k > 0. Shapes: GemmArgs.
void packed_gemm(Stream&, const GemmArgs&);

/// Fills every entry except gemm, which does not depend on the level.
void fill_kernels(KernelTable& table);

}  // namespace mtrain::cpu::MT_ISA
