// DecoderBlock: what the blocks of all decoders have in common. Owned by the model; for the rank's
// own thread. Dimensions: T tokens (batch folded in), D embed.
#pragma once
#include "mtrain/nn/model.h"

namespace mtrain {

/// A block of a model family: maps the residual stream to the residual stream. With recomputation,
/// backward calls it again, and it must return the same values.
class MT_API DecoderBlock {
 public:
  virtual ~DecoderBlock();
  virtual Tensor operator()(Tensor x_TD, const ModelInput& input) const = 0;
};

}  // namespace mtrain
