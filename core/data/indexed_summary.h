// What is in an indexed file, for people and checks. Pure functions.
#pragma once
#include <cstdint>

#include "mtrain/data/indexed_file.h"

namespace mtrain {

struct IndexedSummary {
  int64_t sequences = 0, documents = 0, tokens = 0;
  int64_t empty_documents = 0;
  int64_t shortest = 0, median = 0, longest = 0;  // tokens per document
};
MT_API IndexedSummary summarize(const IndexedFile& file);

struct TokenRange {
  int32_t smallest = 0, largest = 0;
};
/// Reads every token. Error(data) naming document and position for the first that is negative or, when
/// `vocab_size` is above 0, not below it.
MT_API TokenRange scan_tokens(const IndexedFile& file, int64_t vocab_size = 0);

}  // namespace mtrain
