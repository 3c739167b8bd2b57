// JsonLine: extracts text fields from one line of JSON. A fast parser handles ordinary lines; any
// other line is parsed again by an exact parser that reports what is wrong and where. Not
// synchronised: one thread at a time.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

class MT_API JsonLine {
 public:
  /// `keys`: the fields to extract.
  explicit JsonLine(std::vector<std::string> keys);
  ~JsonLine();

  /// Reads a line that is followed by at least InputBatch::kPadding readable bytes. Returns "" when
  /// every field was found, otherwise the fault ("has no field 'text'").
  std::string read(std::string_view line);
  /// The same with only the exact parser, which does not read beyond the line. Exposed for tests.
  std::string read_exactly(std::string_view line);
  /// True when the fast parser accepts the line; then texts() is valid. Exposed for tests.
  bool read_fast(std::string_view line);

  /// The texts of field number `key`: one, or those of a list. Valid until the next line is read.
  const std::vector<std::string_view>& texts(size_t key) const { return texts_[key]; }

 private:
  struct Parser;
  std::vector<std::string> keys_;
  std::vector<std::vector<std::string_view>> texts_;
  std::vector<std::vector<std::string>> held_;  // the memory of texts_ after read_exactly()
  std::unique_ptr<Parser> parser_;
};

/// Replaces unpaired \uD800 … \uDFFF escapes by \uFFFD; true when there were any.
MT_API bool repair_surrogates(std::string_view json, std::string& out);

}  // namespace mtrain
