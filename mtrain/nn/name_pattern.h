// Patterns for names of weights and parameters, as in peft.targets and optimizer.groups. Stateless
// functions; safe from any thread.
#pragma once
#include <string>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain {

/// "attn.qkv" of "layers.3.attn.qkv"; the whole path of a name outside of blocks.
MT_API std::string within_block(const std::string& path);
/// "layers.*.attn.qkv" of "layers.3.attn.qkv": for messages.
MT_API std::string general_name(std::string_view name);
/// Whether a pattern matches `name`, the path within the block, or `path`, the whole one: * matches
/// any characters. q_proj and the other names of Hugging Face's Llama, all-linear, embed_tokens and
/// lm_head stand for such patterns, also with the path of a Hugging Face module before them.
MT_API bool name_match(std::string_view pattern, std::string_view name, std::string_view path);

}  // namespace mtrain
