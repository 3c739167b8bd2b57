// The shrunken twin of a recipe: the same model and the same settings in a size that trains in milliseconds, with what
// decides about layouts kept — shared key/value heads, tied embeddings, biases, experts, dropout, clipping, the dtype.
// Stateless.
#pragma once
#include <cstdint>
#include <string>

#include "mtrain/train/recipe.h"

namespace mtrain {

/// The twin's text: on made-up data, without files, checkpoints or logs, and of one rank. Its sizes allow every way to
/// cut it over `ranks`: heads, widths and samples are multiples of them, the sequence of twice as many, blocks as many
/// as there can be stages (8 at most). The vocabulary is the byte tokenizer's 257, which nothing divides. Throws
/// Error(config) when the recipe is faulty, or needs what this build lacks, on one rank already; of its `dist` section
/// nothing but the order is kept.
MT_API std::string twin_recipe(const Recipe& recipe, int64_t ranks, int64_t steps);

}  // namespace mtrain
