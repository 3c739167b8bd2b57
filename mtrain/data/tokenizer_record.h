// TokenizerRecord: records the tokenizer of a prepared pair in PREFIX.tokenizer.json, so that ids
// are never read with another vocabulary. Packs record it in PREFIX.packed.json
// (mtrain/finetune/packed_file.h). Pairs of other programs have no record. Stateless functions;
// safe from any thread.
#pragma once
#include <optional>
#include <string>

#include "mtrain/base/file.h"
#include "mtrain/data/indexed_file.h"
#include "mtrain/data/tokenizer.h"

namespace mtrain {

struct TokenizerRecord {
  std::string name;  // "hf"
  int64_t vocab_size = 0;
  std::string identity;  // Tokenizer::text_identity(); of packs: Tokenizer::identity()
  int64_t tokens = 0;  // tokens of the pair; detects the record of an earlier pair of the same name
  bool packed = false;  // of packs; without name and vocab_size
  bool operator==(const TokenizerRecord& other) const { return identity == other.identity; }
};

MT_API fs::path tokenizer_record_path(const fs::path& prefix);
/// The record of packs, which is also their manifest.
MT_API fs::path packed_record_path(const fs::path& prefix);
/// Replaces the record of the pair at `prefix`, which is not packed; a record without identity
/// removes it. Throws Error(io).
MT_API void write_tokenizer_record(const fs::path& prefix, const TokenizerRecord& record);
/// The record of a pair with this tokenizer and number of tokens.
MT_API TokenizerRecord tokenizer_record(const Tokenizer& tokenizer, int64_t tokens);
/// Reads the record, or that of packs; nothing when there is none, or when it belongs to another
/// pair. Throws Error(data) when it is damaged.
MT_API std::optional<TokenizerRecord> read_tokenizer_record(const IndexedFile& file);
/// What the help text of check_tokenizer() suggests: how to choose a tokenizer by its name, and how
/// to accept a pair that was prepared with another one. The defaults are for a recipe.
struct TokenizerWords {
  std::string name = "set tokenizer.type=", accept = "dataset.any_tokenizer=true";
};
/// Throws Error(data) that names both tokenizers when the pair has the record of another tokenizer.
MT_API void check_tokenizer(const IndexedFile& file, const Tokenizer& tokenizer,
                            const TokenizerWords& words = {});

}  // namespace mtrain
