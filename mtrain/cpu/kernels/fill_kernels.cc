#include "mtrain/cpu/kernels/isa_kernels.h"

namespace mtrain::cpu::MT_ISA {

void fill_kernels(KernelTable& table) {
  table.rms_norm = rms_norm;
  table.rms_norm_backward = rms_norm_backward;
  table.layer_norm = layer_norm;
  table.layer_norm_backward = layer_norm_backward;
  table.rope = rope;
  table.attention = attention;
  table.attention_backward = attention_backward;
  table.silu_mul = silu_mul;
  table.silu_mul_backward = silu_mul_backward;
  table.gelu = gelu;
  table.gelu_backward = gelu_backward;
  table.embedding = embedding;
  table.embedding_backward = embedding_backward;
  table.gather_sum = gather_sum;
  table.row_dots = row_dots;
  table.cross_entropy = cross_entropy;
  table.cross_entropy_backward = cross_entropy_backward;
  table.add = add;
  table.cast = cast;
  table.copy_blocks = copy_blocks;
  table.column_sum = column_sum;
  table.dropout = dropout;
  table.amax = amax;
  table.quantize = quantize;
  table.hadamard = hadamard;
  table.squared_norm = squared_norm;
  table.adamw = adamw;
}

}  // namespace mtrain::cpu::MT_ISA
