// DocumentReader: the documents of one input file, one after the other. For one thread at a time.
#pragma once
#include <memory>
#include <string>

#include "mtrain/data/line_reader.h"
#include "mtrain/data/prepare.h"

namespace mtrain {

/// Counts broken inputs over all files and stops when there are too many.
class BadInputs {
 public:
  BadInputs(OnBad policy, int64_t limit) : policy_(policy), limit_(limit) {}
  /// Makes the line valid UTF-8 as the policy says; false when it is to be left out. Error(data) when it is
  /// to stop.
  bool accept_utf8(const LineReader& reader, std::string_view line, std::string& repaired,
                   std::string_view& out);
  /// For any other fault: returns when the input is to be left out, else throws.
  void reject(const LineReader& reader, const std::string& fault, const std::string& hint);
  OnBad policy() const { return policy_; }
  int64_t replaced = 0, skipped = 0;

 private:
  void count(const LineReader& reader);
  OnBad policy_;
  int64_t limit_;
};

class DocumentReader {
 public:
  virtual ~DocumentReader() = default;
  /// Gets the next document; false at the end.
  virtual bool next(std::string& text) = 0;
  virtual uint64_t bytes() const = 0;
};

/// Error(config) when the format cannot be told from the file's name.
std::unique_ptr<DocumentReader> open_documents(const fs::path& path, const PrepareOptions& options,
                                               BadInputs& bad);

/// Replaces \uD800 … \uDFFF escapes that are no pair by \uFFFD; true when there were any. Exposed for its
/// test.
MT_API bool repair_surrogates(std::string_view json, std::string& out);

}  // namespace mtrain
