// GPT-2's own files: vocab.json with ids, merges.txt with the merges in order.
#include <nlohmann/json.hpp>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/plugin/plugin.h"
#include "mtrain/tokenize/byte_alphabet.h"
#include "mtrain/tokenize/byte_bpe.h"

namespace mtrain {
namespace {

using namespace tokenize;
namespace fs = std::filesystem;

constexpr const char* kHint =
    "vocab.json and merges.txt of one model belong together: get both again";

struct Gpt2Config {
  std::string path, merges, eod = "<|endoftext|>";
  void bind(Fields& f) {
    f("path", path, "vocab.json, or a folder with vocab.json and merges.txt")
        .required()
        .example("/models/gpt2")
        .resume(ResumeClass::safe)  // the identity compares the contents
        .renamed_from({"vocab_file"})
        .input_path();
    f("merges", merges, "merges.txt; empty: the one next to the vocabulary")
        .resume(ResumeClass::safe)
        .renamed_from({"merge_file"})
        .input_path();
    f("eod", eod, "text of the end-of-document token")
        .resume(ResumeClass::safe);  // the identity contains the token
  }
};

/// {"token": id, …}, read as a stream, without building a tree.
class VocabReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  VocabReader(TokenTable& out, const std::string& where, const std::string& eod)
      : out_(out), where_(where), eod_(eod) {}
  bool key(string_t& text) override { return key_ = text, true; }
  bool number_unsigned(number_unsigned_t id) override {
    if (depth_ != 1) return other("a number");
    std::string bytes;
    const bool reachable = chars_to_bytes(key_, bytes) && key_ != eod_;
    out_.add(reachable ? bytes : key_,
             static_cast<int64_t>(std::min<number_unsigned_t>(id, INT64_MAX)), where_, reachable);
    return true;
  }
  bool number_integer(number_integer_t id) override { return out_.add(key_, id, where_), true; }
  bool number_float(number_float_t, const string_t&) override { return other("a fraction"); }
  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("a boolean"); }
  bool string(string_t&) override { return other("a text"); }
  bool binary(binary_t&) override { return other("bytes"); }
  bool start_object(size_t) override { return ++depth_ == 1 || other("an object"); }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return other("a list"); }
  bool end_array() override { return true; }
  bool parse_error(size_t at, const std::string&, const nlohmann::json::exception&) override {
    throw Error(ErrorClass::data, cat(where_, " is not valid JSON at byte ", at), kHint);
  }

 private:
  bool other(const char* what) {
    throw Error(ErrorClass::data,
                cat(where_, ": '", printable(key_, 60), "' has ", what, " where an id is required"),
                kHint);
  }
  TokenTable& out_;
  const std::string& where_;
  const std::string& eod_;
  std::string key_;
  int depth_ = 0;
};

std::vector<BpeMerge> read_merges(std::string_view text, const TokenTable& tokens,
                                  const std::string& where) {
  std::vector<BpeMerge> out;
  int64_t line_number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty() || (line_number == 1 && line.starts_with("#version"))) continue;
    const size_t blank = line.find(' ');
    auto fail = [&](const std::string& what) {
      throw Error(ErrorClass::data, cat(where, ":", line_number, ": ", what), kHint);
    };
    if (blank == std::string_view::npos || line.find(' ', blank + 1) != std::string_view::npos)
      fail(cat("two tokens with one space between them are required, not '", printable(line, 60),
               "'"));
    auto token = [&](std::string_view chars) {
      std::string bytes;
      const int32_t id = chars_to_bytes(chars, bytes) ? tokens.find(bytes) : -1;
      if (id < 0) fail(cat("'", printable(chars, 60), "' is not a token of the vocabulary"));
      return id;
    };
    const int32_t left = token(line.substr(0, blank)), right = token(line.substr(blank + 1));
    const int32_t result =
        tokens.find(std::string(tokens.text(left)) + std::string(tokens.text(right)));
    if (result < 0)
      fail(cat("the result of '", printable(line, 60), "' is not a token of the vocabulary"));
    out.push_back({left, right, result, static_cast<uint32_t>(out.size())});
  }
  return out;
}

PipelineParts read(const Gpt2Config& config, const TokenizerContext& context) {
  const fs::path vocab =
      file_in(context.base_directory / config.path, {"vocab.json", "encoder.json"});
  const fs::path merges = config.merges.empty()
                              ? file_in(vocab.parent_path(), {"merges.txt", "vocab.bpe"})
                              : context.base_directory / config.merges;
  const std::string vocab_text = read_file(vocab, kHint), merges_text = read_file(merges, kHint);
  auto tokens = std::make_unique<TokenTable>(50257);
  const std::string where = vocab.string();
  VocabReader reader(*tokens, where, config.eod);
  nlohmann::json::sax_parse(vocab_text, &reader);
  tokens->check_gaps(where);
  auto list = read_merges(merges_text, *tokens, merges.string());
  const int64_t size = tokens->size();
  std::optional<int32_t> eod;
  for (int64_t id = size - 1; id >= 0 && !eod; --id)
    if (tokens->has(id) && !tokens->findable(id) &&
        tokens->text(static_cast<int32_t>(id)) == config.eod)
      eod = static_cast<int32_t>(id);
  auto parts = byte_level_parts(std::move(tokens), std::move(list), false,
                                std::string(pattern_text(KnownPattern::gpt2)), where);
  if (!config.eod.empty())
    parts.added.add(
        {.text = config.eod, .id = eod.value_or(static_cast<int32_t>(size)), .special = true});
  parts.added.sort();
  parts.eod = token_named(parts, config.eod, "tokenizer.eod");
  parts.name = "gpt2_bpe";
  parts.folder = vocab.parent_path();
  parts.identity =
      cat("gpt2_bpe: ", parts.tokens->count(), " tokens, files ", hex(hash_bytes(vocab_text)), " ",
          hex(hash_bytes(merges_text)), ", eod ", config.eod);
  return parts;
}

class Gpt2Tokenizer final : public TextPipeline {
 public:
  Gpt2Tokenizer(const Gpt2Config& config, TokenizerContext& context)
      : TextPipeline(read_files("gpt2_bpe", context.base_directory / config.path,
                                [&] { return read(config, context); })) {}
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("gpt2_bpe", "GPT-2's vocab.json and merges.txt") {
  using namespace mtrain;
  registry.add<Tokenizer, Gpt2Tokenizer, Gpt2Config>("gpt2_bpe",
                                                     "GPT-2's vocab.json and merges.txt");
}
