// Internal to the generator: tokens of texts as a micro-batch. A stateless function; for any
// thread.
#pragma once
#include <cstdint>
#include <numeric>
#include <span>

#include "mtrain/data/loader.h"

namespace mtrain {

/// Adds a sequence: the tokens of a text from its position `first` on.
inline void append_text(MicroBatch& batch, std::span<const int32_t> tokens, int64_t first = 0) {
  if (batch.cu_seqlens.empty()) batch.cu_seqlens.push_back(0);
  batch.tokens.insert(batch.tokens.end(), tokens.begin(), tokens.end());
  const size_t before = batch.positions.size();
  batch.positions.resize(before + tokens.size());
  std::iota(batch.positions.begin() + static_cast<ptrdiff_t>(before), batch.positions.end(),
            static_cast<int32_t>(first));
  batch.cu_seqlens.push_back(static_cast<int32_t>(batch.tokens.size()));
}

/// One text, or its tokens from position `first` on.
inline MicroBatch batch_of(std::span<const int32_t> tokens, int64_t first = 0) {
  MicroBatch batch;
  append_text(batch, tokens, first);
  return batch;
}

}  // namespace mtrain
