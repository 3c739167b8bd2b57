#include "mtrain/data/indexed_summary.h"

#include <algorithm>
#include <bit>
#include <span>
#include <vector>

#include "mtrain/base/error.h"
#include "mtrain/base/hash.h"

namespace mtrain {
namespace {

constexpr int64_t kBlock = int64_t{1} << 16;

int64_t document_length(const IndexedFile& file, int64_t document) {
  int64_t length = 0;
  for (int64_t s = file.document_begin(document); s < file.document_begin(document + 1); ++s)
    length += file.length(s);
  return length;
}

/// The first half of the SHA-256 of a document's tokens; different documents never have the same
/// value in practice.
std::pair<uint64_t, uint64_t> document_key(const IndexedFile& file, int64_t document,
                                           std::vector<int32_t>& block) {
  Sha256 hash;
  for (int64_t s = file.document_begin(document); s < file.document_begin(document + 1); ++s) {
    for (int64_t at = 0; at < file.length(s); at += kBlock) {
      block.resize(static_cast<size_t>(std::min(kBlock, file.length(s) - at)));
      file.read(s, at, block);
      hash.update(std::as_bytes(std::span(block)));
    }
  }
  std::string digits = hash.hex();
  return {std::stoull(digits.substr(0, 16), nullptr, 16),
          std::stoull(digits.substr(16, 16), nullptr, 16)};
}

}  // namespace

std::vector<LengthClass> length_histogram(const IndexedFile& file) {
  std::vector<LengthClass> classes;
  for (int64_t d = 0; d < file.num_documents(); ++d) {
    int64_t length = document_length(file, d);
    auto index = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(length)));
    if (index >= classes.size()) classes.resize(index + 1);
    ++classes[index].documents;
    classes[index].tokens += length;
  }
  return classes;
}

Duplicates count_duplicates(const IndexedFile& file) {
  std::vector<std::pair<uint64_t, uint64_t>> seen;
  std::vector<int32_t> block;
  Duplicates out;
  auto table =
      static_cast<size_t>(std::bit_ceil(static_cast<uint64_t>(file.num_documents()) * 2 + 1));
  seen.resize(table);  // open addressing; a key of zeros is an empty slot
  for (int64_t d = 0; d < file.num_documents(); ++d) {
    int64_t length = document_length(file, d);
    if (length == 0) continue;
    auto key = document_key(file, d, block);
    size_t at = key.first & (table - 1);
    while (seen[at] != std::pair<uint64_t, uint64_t>() && seen[at] != key)
      at = (at + 1) & (table - 1);
    if (seen[at] == key)
      ++out.documents, out.tokens += length;
    else
      seen[at] = key;
  }
  return out;
}

IndexedSummary summarize(const IndexedFile& file) {
  IndexedSummary out{.sequences = file.num_sequences(),
                     .documents = file.num_documents(),
                     .tokens = file.num_tokens()};
  std::vector<int64_t> lengths;
  lengths.reserve(static_cast<size_t>(out.documents));
  for (int64_t d = 0; d < out.documents; ++d) {
    int64_t length = document_length(file, d);
    out.empty_documents += length == 0;
    lengths.push_back(length);
  }
  if (lengths.empty()) return out;
  auto middle = lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 2);
  std::nth_element(lengths.begin(), middle, lengths.end());
  out.median = *middle;
  out.shortest = *std::min_element(lengths.begin(), lengths.end());
  out.longest = *std::max_element(lengths.begin(), lengths.end());
  return out;
}

TokenRange scan_tokens(const IndexedFile& file, int64_t vocab_size) {
  const int64_t limit = vocab_size > 0 ? vocab_size : int64_t{INT32_MAX} + 1;
  std::vector<int32_t> block;
  TokenRange range{INT32_MAX, INT32_MIN};
  for (int64_t d = 0; d < file.num_documents(); ++d) {
    int64_t before = 0;  // tokens of the document before this block
    for (int64_t s = file.document_begin(d); s < file.document_begin(d + 1); ++s) {
      for (int64_t at = 0; at < file.length(s); at += kBlock) {
        block.resize(static_cast<size_t>(std::min(kBlock, file.length(s) - at)));
        file.read(s, at, block);
        auto [low, high] = std::minmax_element(block.begin(), block.end());
        range = {std::min(range.smallest, *low), std::max(range.largest, *high)};
        const auto bad = *low >= 0 && *high < limit
                             ? block.end()
                             : std::find_if(block.begin(), block.end(),
                                            [limit](int32_t id) { return id < 0 || id >= limit; });
        if (bad != block.end())
          throw Error(
              ErrorClass::data,
              cat(bin_path(file.prefix()).string(), ": document ", d, ", token ",
                  before + (bad - block.begin()), ": id ", *bad,
                  *bad < 0 ? std::string(" is negative")
                           : cat(" is outside the vocabulary of ", vocab_size)),
              "the data was prepared with another tokenizer or is damaged: prepare it again");
        before += static_cast<int64_t>(block.size());
      }
    }
  }
  return file.num_tokens() > 0 ? range : TokenRange{};
}

void check_ends(const IndexedFile& file, int32_t eod) {
  for (int64_t d = 0; d < file.num_documents(); ++d) {
    int64_t last = file.document_begin(d + 1) - 1;
    while (last >= file.document_begin(d) && file.length(last) == 0) --last;
    if (last < file.document_begin(d)) continue;
    int32_t id = 0;
    file.read(last, file.length(last) - 1, {&id, 1});
    MT_USER_CHECK(
        id == eod, ErrorClass::data,
        cat(bin_path(file.prefix()).string(), ": document ", d, " ends with id ", id,
            ", not with the end of document ", eod),
        "it was prepared without --append-eod or with another tokenizer: prepare it again");
  }
}

bool contains_token(const IndexedFile& file, int32_t id) {
  constexpr int64_t kPiece = 1 << 16;
  for (int64_t s = 0; s < file.num_sequences(); ++s) {
    if (file.length(s) == 0) continue;
    int32_t last = 0;
    file.read(s, file.length(s) - 1, {&last, 1});
    if (last == id) return true;
  }
  std::vector<int32_t> ids(static_cast<size_t>(kPiece));
  for (int64_t s = 0; s < file.num_sequences(); ++s)
    for (int64_t at = 0; at < file.length(s); at += kPiece) {
      const auto part =
          std::span(ids).first(static_cast<size_t>(std::min(kPiece, file.length(s) - at)));
      file.read(s, at, part);
      if (std::find(part.begin(), part.end(), id) != part.end()) return true;
    }
  return false;
}

}  // namespace mtrain
