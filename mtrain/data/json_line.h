// JsonLine: the texts of one line of JSON. Fast where the line is plain, exact where it is not:
// whatever the fast parser does not take is looked at again by one that says what is wrong and
// where. For one thread at a time.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

class MT_API JsonLine {
 public:
  /// The fields whose texts are wanted.
  explicit JsonLine(std::vector<std::string> keys);
  ~JsonLine();

  /// Reads a line that is followed by at least InputBatch::kPadding readable bytes. Empty when
  /// every field was found, otherwise what is wrong ("has no field 'text'").
  std::string read(std::string_view line);
  /// The same without haste, and with no bytes behind the line. Exposed for tests.
  std::string read_exactly(std::string_view line);
  /// Whether the fast parser takes the line; then texts() are there. Exposed for tests.
  bool read_fast(std::string_view line);

  /// The texts of field `key`: one, or those of a list. Valid until the next line is read.
  const std::vector<std::string_view>& texts(size_t key) const { return texts_[key]; }

 private:
  struct Parser;
  std::vector<std::string> keys_;
  std::vector<std::vector<std::string_view>> texts_;
  std::vector<std::vector<std::string>> held_;  // what texts_ shows after read_exactly()
  std::unique_ptr<Parser> parser_;
};

/// Replaces \uD800 … \uDFFF escapes that are no pair by \uFFFD; true when there were any.
MT_API bool repair_surrogates(std::string_view json, std::string& out);

}  // namespace mtrain
