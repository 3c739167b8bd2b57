#include "mtrain/data/tokenizer_record.h"

#include <nlohmann/json.hpp>

#include "mtrain/base/error.h"

namespace mtrain {
namespace {

/// An identity counts a file's tokens in its own way; the ids are those of the vocabulary.
std::string in_words(const TokenizerRecord& record) {
  return cat(printable(record.identity), " (", record.vocab_size, " ids)");
}

}  // namespace

fs::path tokenizer_record_path(const fs::path& prefix) {
  return fs::path(prefix) += ".tokenizer.json";
}

TokenizerRecord tokenizer_record(const Tokenizer& tokenizer, int64_t tokens) {
  return {.name = tokenizer.name(),
          .vocab_size = tokenizer.vocab_size(),
          .identity = tokenizer.text_identity(),
          .tokens = tokens};
}

void write_tokenizer_record(const fs::path& prefix, const TokenizerRecord& record) {
  const fs::path path = tokenizer_record_path(prefix);
  if (record.identity.empty()) {
    std::error_code ignored;
    fs::remove(path, ignored);
    return;
  }
  const nlohmann::ordered_json out{{"tokenizer", record.name},
                                   {"vocab_size", record.vocab_size},
                                   {"identity", record.identity},
                                   {"tokens", record.tokens}};
  write_file_atomic(path, out.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

std::optional<TokenizerRecord> read_tokenizer_record(const IndexedFile& file) {
  const fs::path path = tokenizer_record_path(file.prefix());
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  TokenizerRecord out;
  try {
    const auto json = nlohmann::json::parse(read_file(path));
    out = {.name = json.at("tokenizer"),
           .vocab_size = json.at("vocab_size"),
           .identity = json.at("identity"),
           .tokens = json.at("tokens")};
  } catch (const nlohmann::json::exception& e) {
    throw Error(ErrorClass::data, cat(path.string(), " is damaged: ", printable(e.what())),
                "prepare the pair again; without this file its tokenizer is unknown, and any "
                "tokenizer is accepted");
  }
  if (out.tokens != file.num_tokens()) return std::nullopt;
  return out;
}

void check_tokenizer(const IndexedFile& file, const Tokenizer& tokenizer,
                     const TokenizerWords& words) {
  const auto made_by = read_tokenizer_record(file);
  const TokenizerRecord ours = tokenizer_record(tokenizer, file.num_tokens());
  if (!made_by || *made_by == ours || ours.identity.empty()) return;
  throw Error(
      ErrorClass::data,
      cat(printable(file.prefix().string()), " was prepared with another tokenizer:\n  then ",
          in_words(*made_by), ",\n  now ", in_words(ours)),
      cat(words.name, printable(made_by->name),
          " with the files used then, prepare the text again, or accept its ids by ",
          words.accept));
}

}  // namespace mtrain
