// What is in an indexed file, for people and checks. Pure functions.
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

/// How many documents have 0, 1, 2-3, 4-7, … tokens, and how many tokens these have together: entry
/// i is of lengths below 2^i.
struct LengthClass {
  int64_t documents = 0, tokens = 0;
};
MT_API std::vector<LengthClass> length_histogram(const IndexedFile& file);

/// Documents that have been there before, token for token, and the tokens of these. Reads every
/// token; takes 32 to 64 bytes of memory for each document. Empty ones do not count.
struct Duplicates {
  int64_t documents = 0, tokens = 0;
};
MT_API Duplicates count_duplicates(const IndexedFile& file);

struct TokenRange {
  int32_t smallest = 0, largest = 0;
};
/// Reads every token. Error(data) naming document and position for the first that is negative or,
/// when `vocab_size` is above 0, not below it.
MT_API TokenRange scan_tokens(const IndexedFile& file, int64_t vocab_size = 0);
/// Error(data) naming the first document that does not end with `eod`; empty ones need not.
MT_API void check_ends(const IndexedFile& file, int32_t eod);

}  // namespace mtrain
