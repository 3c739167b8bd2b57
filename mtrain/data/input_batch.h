// What a preparation reads: the lines or documents of its inputs in batches, cut without looking at
// more than line ends, so that one thread can feed many. For one thread at a time.
#pragma once
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "mtrain/data/line_reader.h"
#include "mtrain/data/prepare.h"

namespace mtrain {

/// A broken line that was met: left out or mended, or, when the policy is to stop, the end of the
/// work.
struct BadLine {
  int64_t line = 0;
  bool mended = false;
  std::string fault, hint;
};

struct InputBatch {
  /// Bytes behind the last item that may be read, for parsers that look ahead.
  static constexpr size_t kPadding = 64;
  struct Item {
    size_t begin, size;
    int64_t line;  // where it begins in its file
  };
  bool json = false;   // items are lines of JSON, otherwise documents of valid UTF-8
  std::string source;  // of the items, for messages
  std::string bytes;
  std::vector<Item> items;
  std::vector<BadLine> bad;                 // of texts
  uint64_t file_bytes = 0, text_bytes = 0;  // of all inputs up to here
  std::string_view text(const Item& item) const {
    return std::string_view(bytes).substr(item.begin, item.size);
  }
};

/// Reads all inputs, one after the other.
class MT_API BatchReader {
 public:
  /// Opens every input once, so that faults in names and starts come before the work.
  explicit BatchReader(const PrepareOptions& options);
  ~BatchReader();
  /// Gets the next batch; false at the end. A fault of the input is thrown after all that came
  /// before it was given.
  bool next(InputBatch& batch);
  /// Of all files; 0 when one cannot tell (standard input, a pipe).
  uint64_t file_bytes_total() const { return total_; }
  /// Whether all inputs are JSON lines.
  bool json_only() const { return json_only_; }
  /// Whether none of them is.
  bool text_only() const { return text_only_; }

 private:
  class Source;
  class Lines;
  class Text;
  void fill(InputBatch& batch);
  std::unique_ptr<Source> open(const fs::path& path) const;

  const PrepareOptions& options_;
  std::vector<fs::path> inputs_;
  size_t next_input_ = 0;
  std::unique_ptr<Source> source_;
  bool json_only_ = true, text_only_ = true;
  uint64_t total_ = 0, file_bytes_before_ = 0, text_bytes_before_ = 0;
  std::exception_ptr fault_;
};

/// The files that the inputs name: folders are replaced by the files below them whose names say
/// that they are text or JSON lines, in the order of their paths. Error(data) for a folder without
/// any.
MT_API std::vector<fs::path> input_files(const PrepareOptions& options);

}  // namespace mtrain
