// Byte-pair files in tiktoken's format: on each line a token in base64 and its id, which is its
// rank.
#include <charconv>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/plugin/plugin.h"
#include "mtrain/tokenize/byte_bpe.h"
#include "mtrain/tokenize/charsmap.h"

namespace mtrain {
namespace {

using namespace tokenize;
namespace fs = std::filesystem;

constexpr const char* kHint =
    "each line is a token in base64, a space and its rank: get the file again";

struct TiktokenConfig {
  std::string path, pattern = "llama3", eod;
  std::vector<std::string> special_tokens{"<|endoftext|>"};
  void bind(Fields& f) {
    f("path", path, "the file with tokens and their ranks")
        .required()
        .example("/models/Llama-3/tokenizer.model")
        .resume(ResumeClass::safe)  // the identity compares the contents
        .renamed_from({"tokenizer_model"})
        .input_path();
    f("pattern", pattern,
      "pre-tokenization pattern: gpt2, llama3 (the same as cl100k), qwen2, o200k, or a regular "
      "expression")
        .resume(ResumeClass::impossible)
        .renamed_from({"tiktoken_pattern"});
    f("special_tokens", special_tokens,
      "special tokens; their ids follow those of the file, in this order")
        .example("[\"<|begin_of_text|>\", \"<|end_of_text|>\"]")
        .resume(ResumeClass::impossible)
        .renamed_from({"tiktoken_special_tokens"});
    f("eod", eod,
      "text of the end-of-document token; empty: <|endoftext|> or <|end_of_text|>, else the first "
      "special token")
        .resume(ResumeClass::safe);  // the identity contains the token
  }
};

std::string pattern_of(const std::string& name) {
  if (name == "gpt2" || name == "r50k" || name == "p50k")
    return std::string(pattern_text(KnownPattern::gpt2));
  if (name == "llama3" || name == "cl100k") return std::string(pattern_text(KnownPattern::llama3));
  if (name == "o200k") return std::string(pattern_text(KnownPattern::o200k));
  if (name == "qwen2") return std::string(pattern_text(KnownPattern::qwen2));
  return name;
}

std::unique_ptr<TokenTable> read_ranks(std::string_view text, const std::string& where) {
  auto out = std::make_unique<TokenTable>(text.size() / 16);
  int64_t line_number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    if (line.empty()) continue;
    const std::string place = cat(where, ":", line_number);
    const size_t blank = line.find(' ');
    int64_t rank = -1;
    const std::string_view digits = line.substr(std::min(blank, line.size() - 1) + 1);
    auto [stop, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    MT_USER_CHECK(blank != std::string_view::npos && fault == std::errc() &&
                      stop == digits.data() + digits.size(),
                  ErrorClass::data,
                  cat(place, ": '", printable(line, 60), "' is not a token with a rank"), kHint);
    out->add(decode_base64(line.substr(0, blank), place), rank, place);
  }
  MT_USER_CHECK(out->count() > 0, ErrorClass::data, cat(where, " is empty"), kHint);
  out->check_gaps(where);
  return out;
}

/// All ways to make a token from two others, ordered by the rank of the token.
std::vector<BpeMerge> merges_of(const TokenTable& tokens) {
  std::vector<BpeMerge> out;
  out.reserve(tokens.count() * 3);
  for (int64_t id = 0; id < tokens.size(); ++id) {
    if (!tokens.has(id)) continue;
    const std::string_view text = tokens.text(static_cast<int32_t>(id));
    for (size_t at = 1; at < text.size(); ++at) {
      const int32_t left = tokens.find(text.substr(0, at));
      const int32_t right = left < 0 ? -1 : tokens.find(text.substr(at));
      if (right >= 0)
        out.push_back({left, right, static_cast<int32_t>(id), static_cast<uint32_t>(id)});
    }
  }
  return out;
}

PipelineParts read(const TiktokenConfig& config, const TokenizerContext& context) {
  const fs::path file =
      file_in(context.base_directory / config.path, {"tokenizer.model", "tiktoken.model"});
  const std::string text = read_file(file, kHint), where = file.string();
  auto tokens = read_ranks(text, where);
  auto merges = merges_of(*tokens);
  const int64_t first = tokens->size();
  auto parts = byte_level_parts(std::move(tokens), std::move(merges), true,
                                pattern_of(config.pattern), where);
  add_special_tokens(parts, config.special_tokens, first);
  std::string eod = config.eod;
  for (const auto& special : config.special_tokens)
    if (eod.empty() && (special == "<|endoftext|>" || special == "<|end_of_text|>")) eod = special;
  if (eod.empty() && !config.special_tokens.empty()) eod = config.special_tokens[0];
  parts.eod = token_named(parts, eod, "tokenizer.eod");
  for (const auto& special : config.special_tokens)
    if (special == "<|begin_of_text|>") parts.bos = token_named(parts, special, "");
  if (parts.bos) parts.before.push_back(*parts.bos);
  parts.name = "tiktoken";
  parts.folder = file.parent_path();
  parts.identity = cat("tiktoken: ", parts.tokens->count(), " tokens, file ", hex(hash_bytes(text)),
                       ", words ", hex(hash_bytes(pattern_of(config.pattern))), ", special ",
                       hex(hash_bytes(join(config.special_tokens, "\n"))), ", eod ", eod);
  return parts;
}

class Tiktoken final : public TextPipeline {
 public:
  Tiktoken(const TiktokenConfig& config, TokenizerContext& context)
      : TextPipeline(read_files("tiktoken", context.base_directory / config.path,
                                [&] { return read(config, context); })) {}
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("tiktoken", "byte-pair encoding by ranks, as in OpenAI's tiktoken") {
  using namespace mtrain;
  registry.add<Tokenizer, Tiktoken, TiktokenConfig>(
      "tiktoken", "byte-pair encoding by ranks, as in OpenAI's tiktoken");
}
