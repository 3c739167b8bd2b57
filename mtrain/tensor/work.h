// Counts the work of each kernel call from its arguments: a multiply-add is two operations, and the
// memory of each operand counts once. Stateless; thread-safe.
#pragma once
#include <string>

#include "mtrain/tensor/kernel_table.h"
#include "mtrain/tensor/profile.h"

namespace mtrain {

struct CountedWork {
  Work work;
  std::string shape;
};

CountedWork count(const GemmArgs&);
CountedWork count(const QuantizedGemmArgs&);
CountedWork count(const RmsNormArgs&);
CountedWork count(const RmsNormBackwardArgs&);
CountedWork count(const LayerNormArgs&);
CountedWork count(const LayerNormBackwardArgs&);
CountedWork count(const RopeArgs&);
CountedWork count(const AttentionArgs&);
CountedWork count(const AttentionBackwardArgs&);
CountedWork count(const SiluMulArgs&);
CountedWork count(const SiluMulBackwardArgs&);
CountedWork count(const GeluArgs&);
CountedWork count(const GeluBackwardArgs&);
CountedWork count(const EmbeddingArgs&);
CountedWork count(const EmbeddingBackwardArgs&);
CountedWork count(const GatherSumArgs&);
CountedWork count(const RowDotsArgs&);
CountedWork count(const CrossEntropyArgs&);
CountedWork count(const CrossEntropyBackwardArgs&);
CountedWork count(const AddArgs&);
CountedWork count(const CastArgs&);
CountedWork count(const CopyBlocksArgs&);
CountedWork count(const ColumnSumArgs&);
CountedWork count(const DropoutArgs&);
CountedWork count(const AmaxArgs&);
CountedWork count(const QuantizeArgs&);
CountedWork count(const HadamardArgs&);
CountedWork count(const SquaredNormArgs&);
CountedWork count(const AdamWArgs&);

}  // namespace mtrain
