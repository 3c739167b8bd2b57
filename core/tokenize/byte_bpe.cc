#include "mtrain/tokenize/byte_bpe.h"

#include <unistd.h>

#include <fstream>

#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "mtrain/base/text.h"

namespace mtrain::tokenize {

namespace fs = std::filesystem;

PipelineParts byte_level_parts(std::unique_ptr<const TokenTable> tokens, std::vector<BpeMerge> merges,
                               bool whole_words, const std::string& pattern, const std::string& where) {
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

void add_special_tokens(PipelineParts& parts, const std::vector<std::string>& texts, int64_t first) {
  for (const auto& text : texts) {
    const int32_t known = parts.tokens->find(text);
    MT_USER_CHECK(known >= 0 || first < TokenTable::kMaxTokens, ErrorClass::config, "too many special tokens",
                  "");
    AddedToken token{.text = text, .id = known >= 0 ? known : static_cast<int32_t>(first++), .special = true};
    parts.added.add(std::move(token));
  }
  parts.added.sort();
}

std::optional<int32_t> token_named(const PipelineParts& parts, const std::string& text, const char* setting) {
  if (text.empty()) return std::nullopt;
  for (const auto& token : parts.added.all())
    if (token.text == text) return token.id;
  const int32_t id = parts.tokens->find(text);
  MT_USER_CHECK(id >= 0, ErrorClass::config, cat(setting, ": there is no token '", printable(text, 60), "'"),
                "name a special token or one of the vocabulary");
  return id;
}

std::string read_file(const fs::path& file, const std::string& hint) {
  std::error_code ignored;
  const auto size = fs::file_size(file, ignored);
  if (fs::exists(file, ignored) && !fs::is_directory(file, ignored)) ::close(open_regular_file(file));  // a stream would wait for a pipe's writer
  std::ifstream in(file, std::ios::binary);
  MT_USER_CHECK(in.good() && !fs::is_directory(file, ignored), ErrorClass::io,
                cat("cannot read ", file.string()), hint);
  MT_USER_CHECK(ignored || size <= (uint64_t{1} << 30), ErrorClass::data,
                cat(file.string(), " has ", human_bytes(size), "; no tokenizer's file is that large"), hint);
  std::string out(std::istreambuf_iterator<char>(in), {});
  MT_USER_CHECK(!in.bad(), ErrorClass::io, cat("cannot read ", file.string()), hint);
  return out;
}

fs::path file_in(const fs::path& path, const std::vector<std::string>& names) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path;
  for (const auto& name : names)
    if (fs::is_regular_file(path / name, ignored)) return path / name;
  throw Error(ErrorClass::io, cat("the folder ", path.string(), " holds none of ", join(names, ", ")),
              "name the file itself");
}

}  // namespace mtrain::tokenize
