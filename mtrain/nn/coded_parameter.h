// Frozen parameters that are stored as codes (peft.base). Scales depend on the whole matrix, never
// on the layout: each rank has the codes of its shard of a matrix that one rank would have. Each of
// the matrices that a parameter holds (queries, keys, values) has scales of its own, as if it were
// a layer of its own. For the rank's own thread.
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

/// Gives a frozen parameter [out,in] the memory of codes, `coded` and `value`. Error(config) if a
/// shard's rows are not whole blocks.
MT_API void store_as_codes(Parameter& p, ExecutionContext& ctx, const CodedFormat& format);

/// Encodes the shard of this rank, of the values of the whole parameter.
MT_API void set_values(Parameter& p, std::span<const float> whole);

/// The values of this rank's shard.
MT_API std::vector<float> decoded_values(const Parameter& p);

}  // namespace mtrain
