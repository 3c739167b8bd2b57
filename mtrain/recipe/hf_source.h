// The Hugging Face folder from which a recipe's model starts, and whether the model can be exported
// as such a folder. Stateless functions; safe from any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// The largest size of a file of weights, unless another one is given.
inline constexpr uint64_t kHfShardBytes = 5'000'000'000;

/// The bytes of 5GB, 500MB, 100KB or 4096; nothing for any other text.
MT_API std::optional<uint64_t> hf_shard_bytes(const std::string& text);

/// The folder of model.init_from, if it is a Hugging Face folder that still exists; else empty.
MT_API fs::path hf_source_folder(const Recipe& recipe);
/// The text of its config.json; empty if there is none.
MT_API std::string hf_source_config(const Recipe& recipe);
/// The token with which transformers pads sequences of the folder that `mtrain export` writes:
/// config.json of the folder from which the model starts decides; where it has none, or null as
/// transformers writes for Llama, the tokenizer (`own`).
MT_API std::optional<int32_t> hf_pad_token(const Recipe& recipe, std::optional<int32_t> own);
/// Reports an error if checkpoint.hf is set and no family can express the model.
void check_hf_export(Recipe& recipe, const SchemaCatalog& catalog, const PluginHost& plugins);

}  // namespace mtrain
