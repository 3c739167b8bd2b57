// The twin of a recipe: the same model and settings in a size that trains in milliseconds. Keeps
// the properties that matter for layouts: shared key/value heads, tied embeddings, biases, windows,
// latents, experts, dropout, clipping, the dtype. Stateless functions; safe from any thread.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "mtrain/recipe/recipe.h"
#include "mtrain/verify/layout_list.h"

namespace mtrain {

/// The size of a twin.
struct TwinSize {
  int64_t blocks = 0, samples = 0;  // of the model, of a global batch
  std::string blocks_setting = {};  // the setting of the number of blocks: "model.layers"
  auto operator<=>(const TwinSize&) const = default;
};

/// The text of the twin's recipe: with synthetic data, without files, checkpoints or logs, for one
/// rank. Its sizes allow every layout on `ranks` ranks: heads, widths and samples are multiples of
/// `ranks`, the sequence length of 2 * ranks, and there is a block for every possible stage (at
/// most 8). Windows end within a sequence, and blocks with and without one alternate if the recipe
/// has both. Adapters (peft) have a small rank and belong to random weights. The vocabulary has the
/// 257 ids of the byte tokenizer, a prime number. Throws Error(config) when the recipe is invalid
/// on one rank or needs a part that this build does not have. Keeps only the order of axes from the
/// `dist` section.
MT_API std::string twin_recipe(const Recipe& recipe, int64_t ranks, int64_t steps);

/// The size of the twin for a layout, at most `whole`: four blocks or one per stage, and per
/// replica two micro-batches, or two per stage so that a schedule reaches its steady state. A
/// larger size would not cover more cases.
MT_API TwinSize twin_size(const TwinSize& whole, const RankLayout& layout);
/// The overrides that set the twin's size.
MT_API std::vector<std::string> overrides(const TwinSize& size);

}  // namespace mtrain
