// The shrunken twin of a recipe: the same model and the same settings in a size that trains in
// milliseconds, with what decides about layouts kept — shared key/value heads, tied embeddings,
// biases, experts, dropout, clipping, the dtype. Stateless.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "mtrain/recipe/recipe.h"
#include "mtrain/verify/layout_list.h"

namespace mtrain {

/// How much of the twin is trained.
struct TwinSize {
  int64_t blocks = 0, samples = 0;  // of the model, of a global batch
  std::string blocks_setting = {};  // that holds the number of blocks: "model.layers"
  auto operator<=>(const TwinSize&) const = default;
};

/// The twin's text: on made-up data, without files, checkpoints or logs, and of one rank. Its sizes
/// allow every way to cut it over `ranks`: heads, widths and samples are multiples of them, the
/// sequence of twice as many, blocks as many as there can be stages (8 at most). The vocabulary is
/// the byte tokenizer's 257, which nothing divides. Throws Error(config) when the recipe is faulty,
/// or needs what this build lacks, on one rank already; of its `dist` section nothing but the order
/// is kept.
MT_API std::string twin_recipe(const Recipe& recipe, int64_t ranks, int64_t steps);

/// What a layout of a twin of size `whole` has use for: four blocks or one per stage, and per
/// replica two micro-batches, or two per stage so that a schedule reaches its steady state. More
/// would repeat what is there already.
MT_API TwinSize twin_size(const TwinSize& whole, const RankLayout& layout);
/// The settings that give the twin a size.
std::vector<std::string> overrides(const TwinSize& size);

}  // namespace mtrain
