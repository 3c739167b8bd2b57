// Writes generation_config.json of an exported folder. Stateless functions; safe from any thread.
#pragma once
#include <cstdint>
#include <string>

#include "mtrain/base/export.h"

namespace mtrain {

/// Adapts `source`, the generation_config.json of the folder from which the run started, to an
/// embedding with `vocab_size` rows: ids of tokens without a row are replaced by those in
/// config.json, or left out if that has none, and the token with which a decoder starts is that of
/// config.json. Everything else is unchanged.
MT_API std::string hf_generation_text(const std::string& config_json, const std::string& source,
                                      int64_t vocab_size);
/// The text of generation_config.json: the ids of special tokens that config.json names.
MT_API std::string hf_generation_text(const std::string& config_json);

}  // namespace mtrain
