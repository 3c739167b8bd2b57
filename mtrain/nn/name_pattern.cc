#include "mtrain/nn/name_pattern.h"

#include <algorithm>
#include <utility>

#include "mtrain/base/text.h"
#include "mtrain/nn/model_parts.h"

namespace mtrain {
namespace {

/// Names that Hugging Face's Llama and its relatives have for these weights, and for T5's.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"q_proj", "attn.qkv.q"},
    {"k_proj", "attn.qkv.k"},
    {"v_proj", "attn.qkv.v"},
    {"qkv_proj", "attn.qkv"},
    {"query_key_value", "attn.qkv"},
    {"c_attn", "attn.qkv"},
    {"o_proj", "attn.out"},
    {"gate_proj", "mlp.gate"},
    {"up_proj", "mlp.up"},
    {"down_proj", "mlp.down"},
    {"gate_up_proj", "mlp.gate"},
    {"gate_up_proj", "mlp.up"},
    {"q_proj", "attn.q"},
    {"k_proj", "attn.k"},
    {"v_proj", "attn.v"},
    {"q_proj", "cross.q"},
    {"k_proj", "cross.k"},
    {"v_proj", "cross.v"},
    {"all-linear", "attn.*"},
    {"all-linear", "mlp.*"},
    {"all-linear", "cross.*"}};

/// The same for modules outside of blocks.
constexpr std::pair<std::string_view, std::string_view> kOtherModules[] = {
    {"embed_tokens", "embed.weight"}, {"wte", "embed.weight"}, {"lm_head", "head.*"}};

/// Whether a pattern is the whole name of a module in a Hugging Face folder, such as
/// model.layers.3.self_attn.q_proj, and the weight is in that block and has the name's last part.
template <class Names>
bool is_module(std::string_view pattern, std::string_view name, std::string_view path,
               const Names& names) {
  const size_t last = pattern.rfind('.');
  const std::string_view block = block_of(path);
  if (last == std::string_view::npos || block.empty()) return false;
  const std::string_view number = block.substr(block.rfind('.') + 1);
  return pattern.substr(0, last).find(cat(".", number, ".")) != std::string_view::npos &&
         std::ranges::any_of(names, [&](const auto& other) {
           return other.first == pattern.substr(last + 1) && glob_match(other.second, name);
         });
}

}  // namespace

bool name_match(std::string_view pattern, std::string_view name, std::string_view path) {
  auto among = [&](const auto& names) {
    return std::ranges::any_of(names, [&](const auto& other) {
      return other.first == pattern && glob_match(other.second, name);
    });
  };
  return glob_match(pattern, name) || glob_match(pattern, path) || among(kOtherNames) ||
         among(kOtherModules) || is_module(pattern, name, path, kOtherNames);
}

std::string within_block(const std::string& path) {
  const std::string_view block = block_of(path);
  return block.empty() || block.size() == path.size() ? path : path.substr(block.size() + 1);
}

std::string general_name(std::string_view name) {
  std::string out;
  for (const std::string& part : split(name, '.')) {
    const bool number = part.find_first_not_of("0123456789") == std::string::npos;
    out += cat(out.empty() ? "" : ".", number ? "*" : part);
  }
  return out;
}

}  // namespace mtrain
