// TokenizerRecord: which tokenizer made a prepared pair, kept in PREFIX.tokenizer.json, so that ids
// are never read as those of another vocabulary. Pairs of other programs have none. Stateless.
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
  std::string identity;  // Tokenizer::text_identity()
  int64_t tokens =
      0;  // of the pair, by which a record of an earlier pair of the same name is known
  bool operator==(const TokenizerRecord& other) const { return identity == other.identity; }
};

MT_API fs::path tokenizer_record_path(const fs::path& prefix);
/// Replaces the record of the pair at `prefix`; one without identity removes it. Throws Error(io).
MT_API void write_tokenizer_record(const fs::path& prefix, const TokenizerRecord& record);
/// Of a pair of so many tokens made by this tokenizer.
MT_API TokenizerRecord tokenizer_record(const Tokenizer& tokenizer, int64_t tokens);
/// Absent where there is none, or where it is not of this pair. Throws Error(data) for one that is
/// damaged.
MT_API std::optional<TokenizerRecord> read_tokenizer_record(const IndexedFile& file);
/// Throws Error(data) naming both where the pair says that another tokenizer made it.
MT_API void check_tokenizer(const IndexedFile& file, const Tokenizer& tokenizer);

}  // namespace mtrain
