#include "mtrain/tokenize/byte_bpe.h"

#include <unistd.h>

#include <cctype>
#include <fstream>

#include "mtrain/base/file.h"
#include "mtrain/base/text.h"

namespace mtrain::tokenize {

namespace fs = std::filesystem;

PipelineParts byte_level_parts(std::unique_ptr<const TokenTable> tokens,
                               std::vector<BpeMerge> merges, bool whole_words,
                               const std::string& pattern, const std::string& where) {
  PipelineParts parts;
  BpeOptions options;
  options.by_bytes = true;
  options.whole_words = whole_words;
  parts.model = std::make_unique<Bpe>(*tokens, std::move(merges), std::move(options), where);
  parts.tokens = std::move(tokens);
  parts.tokens_are_bytes = true;
  parts.pattern = recognize_pattern(pattern);
  if (parts.pattern == KnownPattern::none)
    parts.pre_tokenizer = split_regex(Regex(pattern, where), SplitBehavior::isolated, false);
  return parts;
}

void add_special_tokens(PipelineParts& parts, const std::vector<std::string>& texts,
                        int64_t first) {
  for (const auto& text : texts) {
    const int32_t known = parts.tokens->find(text);
    MT_USER_CHECK(known >= 0 || first < TokenTable::kMaxTokens, ErrorClass::config,
                  "too many special tokens", "");
    AddedToken token{
        .text = text, .id = known >= 0 ? known : static_cast<int32_t>(first++), .special = true};
    parts.added.add(std::move(token));
  }
  parts.added.sort();
}

std::optional<int32_t> token_named(const PipelineParts& parts, const std::string& text,
                                   const char* setting) {
  if (text.empty()) return std::nullopt;
  for (const auto& token : parts.added.all())
    if (token.text == text) return token.id;
  const int32_t id = parts.tokens->find(text);
  MT_USER_CHECK(id >= 0, ErrorClass::config,
                cat(setting, ": there is no token '", printable(text, 60), "'"),
                "use a special token or a token of the vocabulary");
  return id;
}

std::string read_file(const fs::path& file, const std::string& hint) {
  std::error_code ignored;
  const auto size = fs::file_size(file, ignored);
  if (fs::exists(file, ignored) && !fs::is_directory(file, ignored))
    ::close(open_regular_file(file));  // refuses named pipes, for which a stream would block
  std::ifstream in(file, std::ios::binary);
  MT_USER_CHECK(in.good() && !fs::is_directory(file, ignored), ErrorClass::io,
                cat("cannot read ", file.string()), hint);
  MT_USER_CHECK(
      ignored || size <= (uint64_t{1} << 30), ErrorClass::data,
      cat(file.string(), " has ", human_bytes(size), ", which is too large for a tokenizer's file"),
      hint);
  std::string out(std::istreambuf_iterator<char>(in), {});
  MT_USER_CHECK(!in.bad(), ErrorClass::io, cat("cannot read ", file.string()), hint);
  return out;
}

std::string plugin_of_files(const fs::path& path) {
  std::error_code ignored;
  auto has = [&](const char* name) { return fs::is_regular_file(path / name, ignored); };
  if (fs::is_directory(path, ignored)) {
    if (has("tokenizer.json")) return "hf";
    if ((has("vocab.json") && has("merges.txt")) || (has("encoder.json") && has("vocab.bpe")))
      return "gpt2_bpe";
    for (const char* name : {"spiece.model", "sentencepiece.bpe.model", "sentencepiece.model",
                             "tokenizer.model", "tiktoken.model"})
      if (has(name)) return plugin_of_files(path / name);
    return {};
  }
  if (!fs::is_regular_file(path, ignored)) return {};
  const std::string name = path.filename().string();
  if (name == "encoder.json" || name == "vocab.json" || name == "vocab.bpe") return "gpt2_bpe";
  std::ifstream in(path, std::ios::binary);
  std::string text(4096, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  // A SentencePiece model starts with the tag of the first piece, its size, and the tag of its
  // text.
  if (text.size() > 2 && text[0] == '\n' && text[2] == '\n' &&
      !std::isspace(static_cast<unsigned char>(text[1])))
    return "sentencepiece";
  if (text.starts_with('{')) return text.find("\"added_tokens\"") != std::string::npos ? "hf" : "";
  const std::string line = text.substr(0, text.find('\n'));
  const size_t blank = line.find(' ');
  const bool ranks = blank != std::string::npos && blank > 0 && blank + 1 < line.size() &&
                     line.find_first_not_of("0123456789", blank + 1) == std::string::npos;
  return ranks ? "tiktoken" : "";
}

void throw_naming_plugin(const Error& fault, const std::string& name, const fs::path& path) {
  const std::string other = plugin_of_files(path);
  if (other.empty() || other == name) throw fault;
  throw Error(fault.error_class(), fault.message(),
              cat("this is a file of the tokenizer ", other, ": use --tokenizer ", other,
                  " or tokenizer.type=", other, " in a recipe"));
}

fs::path file_in(const fs::path& path, const std::vector<std::string>& names) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path;
  for (const auto& name : names)
    if (fs::is_regular_file(path / name, ignored)) return path / name;
  throw Error(ErrorClass::io,
              cat("the folder ", path.string(), " contains none of ", join(names, ", ")),
              "give the path of the file");
}

}  // namespace mtrain::tokenize
