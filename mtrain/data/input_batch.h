// BatchReader reads the inputs of `mtrain data prepare` as batches of lines or documents. It only
// searches for line ends, so that one thread can feed many. Not synchronised: one thread at a time.
#pragma once
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "mtrain/data/line_reader.h"
#include "mtrain/data/prepare.h"

namespace mtrain {

/// A broken line: skipped or repaired, or, when the policy is to stop, the end of the work.
struct BadLine {
  int64_t line = 0;
  bool repaired = false;  // repaired (OnBad::replace)
  std::string fault, hint;
};

struct InputBatch {
  /// Readable bytes after the last item, for parsers that look ahead.
  static constexpr size_t kPadding = 64;
  struct Item {
    size_t begin, size;
    int64_t line;  // the line number of its beginning in the file
  };
  bool json = false;   // items are lines of JSON, otherwise documents of valid UTF-8
  std::string source;  // the source of the items, for messages
  std::string bytes;
  std::vector<Item> items;
  std::vector<BadLine> bad;                 // broken lines of texts
  uint64_t file_bytes = 0, text_bytes = 0;  // read from all inputs so far
  std::string_view text(const Item& item) const {
    return std::string_view(bytes).substr(item.begin, item.size);
  }
};

/// Reads all inputs, one after the other. Refers to its options.
class MT_API BatchReader {
 public:
  /// Opens every input once, so that wrong names and file formats are reported before the work
  /// starts.
  explicit BatchReader(const PrepareOptions& options);
  ~BatchReader();
  /// Reads the next batch; false at the end. Throws a fault of the input only after all items
  /// before it were returned.
  bool next(InputBatch& batch);
  /// The size of all files; 0 when it is not known (standard input, a pipe).
  uint64_t file_bytes_total() const { return total_; }
  /// True when all inputs are JSON lines.
  bool json_only() const { return json_only_; }
  /// True when no input is JSON lines.
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

/// The input files. Folders are replaced by the files below them whose names have an extension of
/// text or JSON lines, except hidden ones, in the order of their paths. Error(data) for a folder
/// without such files.
MT_API std::vector<fs::path> input_files(const PrepareOptions& options);

}  // namespace mtrain
