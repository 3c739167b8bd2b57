#include "mtrain/data/tokenizer_record.h"

#include <nlohmann/json.hpp>

#include "mtrain/base/error.h"

namespace mtrain {
namespace {

/// An identity counts a file's tokens in its own way; the ids are those of the vocabulary.
std::string in_words(const TokenizerRecord& record) {
  return cat(printable(record.identity),
             record.packed ? std::string() : cat(" (", record.vocab_size, " ids)"));
}

/// Reads the file of a record; nothing when it does not exist.
std::optional<TokenizerRecord> read_record(const fs::path& path, bool packed) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  try {
    const auto json = nlohmann::json::parse(read_file(path));
    TokenizerRecord out{.identity = json.at(packed ? "tokenizer" : "identity"),
                        .tokens = json.at("tokens"),
                        .packed = packed};
    if (!packed) out.name = json.at("tokenizer"), out.vocab_size = json.at("vocab_size");
    return out;
  } catch (const nlohmann::json::exception& e) {
    throw Error(ErrorClass::data, cat(path.string(), " is damaged: ", printable(e.what())),
                packed ? "pack the records again: mtrain data pack"
                       : "prepare the pair again; without this file its tokenizer is unknown, and "
                         "any tokenizer is accepted");
  }
}

}  // namespace

fs::path tokenizer_record_path(const fs::path& prefix) {
  return fs::path(prefix) += ".tokenizer.json";
}

fs::path packed_record_path(const fs::path& prefix) { return fs::path(prefix) += ".packed.json"; }

TokenizerRecord tokenizer_record(const Tokenizer& tokenizer, int64_t tokens) {
  return {.name = tokenizer.name(),
          .vocab_size = tokenizer.vocab_size(),
          .identity = tokenizer.text_identity(),
          .tokens = tokens};
}

void write_tokenizer_record(const fs::path& prefix, const TokenizerRecord& record) {
  const fs::path path = tokenizer_record_path(prefix);
  std::error_code ignored;
  fs::remove(packed_record_path(prefix), ignored);  // of packs that this pair replaces
  if (record.identity.empty()) {
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
  for (const bool packed : {false, true}) {
    const fs::path path =
        packed ? packed_record_path(file.prefix()) : tokenizer_record_path(file.prefix());
    auto record = read_record(path, packed);
    if (record && record->tokens == file.num_tokens()) return record;
  }
  return std::nullopt;
}

void check_tokenizer(const IndexedFile& file, const Tokenizer& tokenizer,
                     const TokenizerWords& words) {
  const auto made_by = read_tokenizer_record(file);
  TokenizerRecord ours = tokenizer_record(tokenizer, file.num_tokens());
  if (!made_by || ours.identity.empty()) return;
  if (made_by->packed) ours.identity = tokenizer.identity();
  if (*made_by == ours) return;
  throw Error(
      ErrorClass::data,
      cat(printable(file.prefix().string()), " was prepared with another tokenizer:\n  then ",
          in_words(*made_by), ",\n  now ", in_words(ours)),
      cat(made_by->packed
              ? std::string("choose that tokenizer with its settings, pack the records again")
              : cat(words.name, printable(made_by->name),
                    " with the settings and files used then, prepare the text again"),
          ", or accept its ids by ", words.accept));
}

}  // namespace mtrain
