// Mismatched answers: those of one record after the prompt of another one, for estimates of how far
// a model is from its reference (Objective::needs_divergence()). Stateless; safe from any thread.
#pragma once
#include "mtrain/base/export.h"
#include "mtrain/data/loader.h"

namespace mtrain {

/// Replaces `out` by the samples of `own`, of Dataset::kPreferences, in which the prompt of each
/// answer is followed by the answer at the same place of the sample before: of row r, that of row
/// r - 1, and of row 0, that of `before`, which has one row. A prompt is what precedes the first
/// trained token; an answer is what follows it, up to the last trained token. The longest answers
/// are shortened at their ends, but never to nothing, where a row would be longer than seq_length,
/// as PyPI's trl does with max_length. Throws Error(data) if two such samples do not have the same
/// number of answers, or have none.
MT_API void mismatch(const MicroBatch& own, const MicroBatch& before, MicroBatch& out);

}  // namespace mtrain
