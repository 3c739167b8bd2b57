#include "special_names.h"

#include <array>
#include <nlohmann/json.hpp>
#include <span>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/tokenize/byte_bpe.h"

namespace mtrain::hf {
namespace {

using Names = std::span<const std::string_view>;

constexpr std::array<std::string_view, 8> kEnds = {"<|endoftext|>",
                                                   "<|end_of_text|>",
                                                   "<|end▁of▁sentence|>",
                                                   "<｜end▁of▁sentence｜>",
                                                   "</s>",
                                                   "<eos>",
                                                   "<|eos|>",
                                                   "[SEP]"};
constexpr std::array<std::string_view, 5> kBegins = {"<|begin_of_text|>", "<｜begin▁of▁sentence｜>",
                                                     "<s>", "<bos>", "[CLS]"};
constexpr std::array<std::string_view, 4> kPads = {"<pad>", "[PAD]", "<|pad|>",
                                                   "<|finetune_right_pad_id|>"};

std::optional<int32_t> id_of(const tokenize::PipelineParts& parts, std::string_view text) {
  for (const auto& token : parts.added.all())
    if (token.text == text) return token.id;
  const int32_t id = parts.tokens->find(text);
  return id < 0 ? std::nullopt : std::optional(id);
}

/// "eos_token": "</s>" or {"content": "</s>"}.
std::optional<int32_t> named(const tokenize::PipelineParts& parts, const nlohmann::json& root,
                             const char* key) {
  auto item = root.find(key);
  if (item == root.end()) return std::nullopt;
  const nlohmann::json value = item->is_object() ? item->value("content", nlohmann::json()) : *item;
  return value.is_string() ? id_of(parts, value.get<std::string>()) : std::nullopt;
}

/// These files contain numbers beyond 64 bits, which simdjson refuses.
nlohmann::json read_config(const std::filesystem::path& path) {
  const std::string text = tokenize::read_file(path, "make it readable");
  try {
    nlohmann::json root = nlohmann::json::parse(text);
    if (root.is_object()) return root;
  } catch (const nlohmann::json::parse_error& fault) {
    throw Error(ErrorClass::data, cat(path.string(), " is not valid JSON at byte ", fault.byte),
                "get the tokenizer's files again");
  } catch (
      const nlohmann::json::exception& fault) {  // a number beyond the range of every type: 1e400
    throw Error(ErrorClass::data, cat(path.string(), " cannot be read: ", printable(fault.what())),
                "get the tokenizer's files again");
  }
  throw Error(ErrorClass::data, cat(path.string(), " holds no object"),
              "get the tokenizer's files again");
}

void first_of(const tokenize::PipelineParts& parts, Names names, std::optional<int32_t>& out) {
  for (auto name : names)
    if (!out) out = id_of(parts, name);
}

}  // namespace

void find_special_names(const std::filesystem::path& file, const std::string& eod,
                        tokenize::PipelineParts& parts) {
  for (const char* sibling : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const auto path = file.parent_path() / sibling;
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) continue;
    const nlohmann::json root = read_config(path);
    if (!parts.eod) parts.eod = named(parts, root, "eos_token");
    if (!parts.bos) parts.bos = named(parts, root, "bos_token");
    if (!parts.pad) parts.pad = named(parts, root, "pad_token");
  }
  if (!eod.empty()) {
    parts.eod = id_of(parts, eod);
    MT_USER_CHECK(
        parts.eod, ErrorClass::config,
        cat("tokenizer.eod: '", printable(eod, 60), "' is not a token of ", file.string()),
        "name one of its special tokens, or leave tokenizer.eod out");
  }
  first_of(parts, kEnds, parts.eod);
  first_of(parts, kBegins, parts.bos);
  first_of(parts, kPads, parts.pad);
}

}  // namespace mtrain::hf
