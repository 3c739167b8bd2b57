// check_sample(): whether a source filled a sample as SampleSource::get() requires. Kernels do not
// check ids and positions again: an id outside the vocabulary would read as zeros, a position
// outside the sample would read past the end of the RoPE table. Stateless; safe from any thread.
#pragma once
#include <cstdint>

#include "mtrain/base/export.h"
#include "mtrain/data/dataset.h"

namespace mtrain {

/// The memory of the sample, and the upper bounds of its values.
struct SampleBounds {
  std::span<const int32_t> tokens, targets, positions;  // [seq_length] each
  int64_t vocab_size = 0;  // ids must be less than this; 0: only negative ids are refused
};

/// Throws Error(plugin) that names the plugin that defines the source, the sample, the first wrong
/// position, its value and the range. Reads each value once.
MT_API void check_sample(const SampleSource& source, int64_t index, const Sample& sample,
                         const SampleBounds& bounds);

}  // namespace mtrain
