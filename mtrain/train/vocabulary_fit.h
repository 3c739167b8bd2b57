// Checks that a tokenizer fits a model's embedding. Stateless functions; safe from any thread.
#pragma once
#include <cstdint>

#include "mtrain/data/tokenizer.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// Rows of the model's table of tokens: model.vocab_size, or the tokenizer's ids rounded up to
/// model.vocab_multiple. Throws Error(config) where the tokenizer has ids that have no row.
MT_API int64_t vocabulary_rows(const Settings& settings, const Tokenizer& tokenizer);
/// Logs how many rows of model.vocab_size belong to no id of the tokenizer: as a warning where they
/// are more than padding.
MT_API void log_rows_without_id(const Recipe& recipe, const Tokenizer& tokenizer);

}  // namespace mtrain
