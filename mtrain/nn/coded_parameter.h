// Frozen parameters that are stored quantized (peft.base). Scales are computed from the whole
// matrix and do not depend on the layout: each rank holds the part of the codes that belongs to its
// shard. The matrices of a fused parameter (queries, keys, values) have separate scales, as if they
// were separate layers. For the rank's own thread.
#pragma once
#include <span>
#include <vector>

#include "mtrain/base/export.h"
#include "mtrain/kernel/weight_codes.h"

namespace mtrain {

class ExecutionContext;
struct Parameter;

struct CodedFormat {
  WeightFormat format = WeightFormat::nf4;
  bool double_quant = true;  // nf4: scales are codes, too
};

/// Allocates the codes of a frozen parameter [out,in] and sets its `coded` and `value`.
/// Error(config) if the rows of a shard do not consist of whole blocks.
MT_API void store_as_codes(Parameter& p, ExecutionContext& ctx, const CodedFormat& format);

/// Quantizes the shard of this rank, given the values of the whole parameter.
MT_API void set_values(Parameter& p, std::span<const float> whole);

/// The dequantized values of this rank's shard.
MT_API std::vector<float> decoded_values(const Parameter& p);

}  // namespace mtrain
