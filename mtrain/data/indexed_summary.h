// Summaries and checks of an indexed file. Pure functions; safe from any thread.
#pragma once
#include <cstdint>
#include <vector>

#include "mtrain/data/indexed_file.h"

namespace mtrain {

struct IndexedSummary {
  int64_t sequences = 0, documents = 0, tokens = 0;
  int64_t empty_documents = 0;
  int64_t shortest = 0, median = 0, longest = 0;  // tokens per document
};
MT_API IndexedSummary summarize(const IndexedFile& file);

/// The number of documents with 0, 1, 2-3, 4-7, … tokens, and the sum of their tokens: entry i > 0
/// counts lengths from 2^(i-1) to 2^i - 1.
struct LengthClass {
  int64_t documents = 0, tokens = 0;
};
MT_API std::vector<LengthClass> length_histogram(const IndexedFile& file);

/// Documents that are identical to an earlier one, and their tokens. Reads every token; takes 32 to
/// 64 bytes of memory per document. Ignores empty documents.
struct Duplicates {
  int64_t documents = 0, tokens = 0;
};
MT_API Duplicates count_duplicates(const IndexedFile& file);

struct TokenRange {
  int32_t smallest = 0, largest = 0;
};
/// Reads every token. Error(data) that names document and position of the first id that is negative
/// or, when vocab_size > 0, not less than `vocab_size`.
MT_API TokenRange scan_tokens(const IndexedFile& file, int64_t vocab_size = 0);
/// Error(data) that names the first document that does not end with `eod`. Ignores empty documents.
MT_API void check_ends(const IndexedFile& file, int32_t eod);
/// Whether some token is `id`. Looks at the ends of sequences first, so an end of document is found
/// at once; reads every token where it is absent.
MT_API bool contains_token(const IndexedFile& file, int32_t id);

}  // namespace mtrain
