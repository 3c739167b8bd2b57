#include "mtrain/data/input_batch.h"

#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/data/foreign_files.h"

namespace mtrain {
namespace {

constexpr size_t kBatchBytes = size_t{1} << 18;

bool blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\v\f") == std::string_view::npos;
}

bool is_input_stream(const fs::path& path) {
  std::error_code ignored;
  return path == "-" || fs::is_fifo(path, ignored);
}

/// The format by the file name without ".gz" or ".zst"; by_extension when it is not known.
InputFormat format_of_name(const fs::path& path) {
  std::string name = without_compression(path).extension().string();
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  if (name == ".jsonl" || name == ".ndjson") return InputFormat::jsonl;
  return name == ".txt" || name == ".text" || name == ".md" ? InputFormat::text
                                                            : InputFormat::by_extension;
}

InputFormat format_of(const fs::path& path, InputFormat wanted) {
  if (wanted != InputFormat::by_extension) return wanted;
  const InputFormat format = format_of_name(path);
  if (const auto foreign = foreign_file_of_name(without_compression(path)))
    throw Error(ErrorClass::config,
                cat(printable(path.string()), " is, by its name, ", foreign->format,
                    "; text or JSON lines are required"),
                foreign->help);
  MT_USER_CHECK(
      format != InputFormat::by_extension, ErrorClass::config,
      path == "-"
          ? std::string("cannot tell whether standard input is text or JSON lines")
          : cat("cannot tell from its name whether ", path.string(), " is text or JSON lines"),
      path.extension() == ".json" ? "if each line is an object, add --format jsonl; the objects of "
                                    "a list become lines with "
                                    "`jq -c '.[]' FILE.json > FILE.jsonl`"
                                  : "add --format text or --format jsonl");
  return format;
}

std::vector<fs::path> files_below(const fs::path& folder, InputFormat wanted) {
  std::vector<fs::path> out, others;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().filename().string().starts_with('.')) {
      if (at->is_directory()) at.disable_recursion_pending();
      continue;
    }
    if (!at->is_regular_file()) continue;
    const InputFormat format = format_of_name(at->path());
    if (format != InputFormat::by_extension &&
        (wanted == InputFormat::by_extension || wanted == format))
      out.push_back(at->path());
    else
      others.push_back(at->path());
  }
  MT_USER_CHECK(!error, ErrorClass::io,
                cat("cannot read the folder ", folder.string(), ": ", error.message()), "");
  std::sort(others.begin(), others.end());
  if (out.empty())
    for (const fs::path& other : others)
      if (const auto foreign = foreign_file_of_name(without_compression(other)))
        throw Error(ErrorClass::data,
                    cat("the folder ", folder.string(), " holds no text or JSON lines, but ",
                        foreign->format, ": ", printable(other.string())),
                    foreign->help);
  MT_USER_CHECK(!out.empty(), ErrorClass::data,
                cat("the folder ", folder.string(), " holds no text or JSON lines"),
                "a folder's files are read if they end in .txt, .text, .md, .jsonl or .ndjson, "
                "also with .gz or .zst");
  std::sort(out.begin(), out.end());
  return out;
}

/// The content of the folder of a missing file, in case its name is mistyped.
[[noreturn]] void no_input(const fs::path& path) {
  constexpr size_t kMostListed = 1000;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::vector<std::string> names;
  std::error_code fault;
  for (fs::directory_iterator it(folder, fault), end;
       !fault && it != end && names.size() < kMostListed; it.increment(fault))
    names.push_back(it->path().filename().string());
  const auto near = nearest(path.filename().string(), names, 1);
  const bool no_folder = !fs::is_directory(folder, fault);
  throw Error(
      ErrorClass::io,
      cat("--input ", printable(path.string()), ": ",
          no_folder ? cat("there is no folder ", printable(folder.string()))
                    : std::string("there is no such file or folder")),
      near.empty()
          ? "name a file of text or of JSON lines, a folder of them, or - for standard input"
          : cat("did you mean ",
                printable(path.has_parent_path() ? (folder / near.front()).string() : near.front()),
                "?"));
}

}  // namespace

std::vector<fs::path> input_files(const PrepareOptions& options) {
  std::vector<fs::path> out;
  for (const auto& input : options.inputs) {
    std::error_code ignored;
    if (input != "-" && fs::status(input, ignored).type() == fs::file_type::not_found)
      no_input(input);
    if (!fs::is_directory(input, ignored)) {
      out.push_back(input);
      continue;
    }
    auto files = files_below(input, options.format);
    out.insert(out.end(), files.begin(), files.end());
  }
  MT_USER_CHECK(!out.empty(), ErrorClass::config, "no input file",
                "name at least one: --input FILE");
  return out;
}

/// One input.
class BatchReader::Source {
 public:
  Source(const fs::path& path, const PrepareOptions& options)
      : options_(options), reader_(path, options.max_document_bytes) {}
  virtual ~Source() = default;
  /// Adds items until the batch is full; false when the input has ended.
  virtual bool fill(InputBatch& batch) = 0;
  const LineReader& reader() const { return reader_; }

 protected:
  static bool full(const InputBatch& batch) { return batch.bytes.size() >= kBatchBytes; }

  const PrepareOptions& options_;
  LineReader reader_;
};

class BatchReader::Lines final : public BatchReader::Source {
 public:
  using Source::Source;
  bool fill(InputBatch& batch) override {
    batch.json = true;
    std::string_view line;
    while (!full(batch)) {
      if (!reader_.next(line)) return false;
      if (blank(line)) continue;
      batch.items.push_back({batch.bytes.size(), line.size(), reader_.line_number()});
      batch.bytes.append(line);
    }
    return true;
  }
};

class BatchReader::Text final : public BatchReader::Source {
 public:
  using Source::Source;
  bool fill(InputBatch& batch) override {
    while (!full(batch)) {
      if (!next(batch)) return false;
    }
    return true;
  }

 private:
  /// Adds one document; false if there is none or if an invalid line ends the work.
  bool next(InputBatch& batch) {
    const size_t begin = batch.bytes.size();
    batch.bytes.append(pending_);
    int64_t first = pending_line_;
    bool begun = !pending_.empty(), gap = false;
    pending_.clear();
    std::string_view line;
    while (reader_.next(line)) {
      if (!accept(line, batch)) {
        if (options_.on_bad != OnBad::skip) return false;
        continue;
      }
      const bool is_blank = blank(line);
      if (begun && !is_blank && ends_before_line(batch.bytes.size() - begin, gap)) {
        append(pending_, line);
        pending_line_ = reader_.line_number();
        batch.items.push_back({begin, batch.bytes.size() - begin, first});
        return true;
      }
      if (first == 0) first = reader_.line_number();
      begun = begun || !is_blank;
      gap = begun && is_blank;
      append(batch.bytes, line);
      check_size(batch.bytes.size() - begin);
    }
    if (begun)
      batch.items.push_back({begin, batch.bytes.size() - begin, first});
    else
      batch.bytes.resize(begin);  // only blank lines are not a document
    pending_line_ = 0;
    return begun;
  }

  /// True when the line is used, repaired if necessary.
  bool accept(std::string_view& line, InputBatch& batch) {
    size_t at = 0;
    const size_t zero = line.find('\0');
    const bool valid = valid_utf8(line, &at);
    if (valid && zero == std::string_view::npos) return true;
    const bool repair = options_.on_bad == OnBad::replace;
    batch.bad.push_back({reader_.line_number(), repair,
                         valid ? cat("has a zero byte at byte ", zero,
                                     " of the line, as files that are no text have")
                               : cat("is not valid UTF-8 at byte ", at, " of the line"),
                         cat(valid ? "check that the file is a text" : "convert the file to UTF-8",
                             ", or use --bad-lines replace or --bad-lines skip")});
    if (repair) line = repaired_ = without_zeros(repair_utf8(line));
    return repair;
  }
  static std::string without_zeros(const std::string& line) {
    std::string out;
    for (const char c : line) c == '\0' ? out.append("\xEF\xBF\xBD") : out.append(1, c);
    return out;
  }

  bool ends_before_line(size_t size, bool gap) const {
    if (options_.document_bytes > 0 && size >= options_.document_bytes) return true;
    return options_.split_on == SplitOn::lines ||
           (options_.split_on == SplitOn::blank_lines && gap);
  }
  void append(std::string& text, std::string_view line) const {
    text.append(line);
    if (reader_.had_end()) text += '\n';
  }
  void check_size(size_t size) const {
    MT_USER_CHECK(size <= options_.max_document_bytes, ErrorClass::data,
                  cat(reader_.place(), ": the document is longer than the limit of ",
                      human_bytes(options_.max_document_bytes)),
                  cat("split it: ", ways_to_split(), "; or raise --max-document-bytes"));
  }
  /// The options with shorter documents than those given.
  std::string ways_to_split() const {
    std::vector<std::string> ways;
    if (options_.split_on == SplitOn::file) ways.emplace_back("--split-on blank-lines");
    if (options_.split_on != SplitOn::lines) ways.emplace_back("--split-on lines");
    if (options_.document_bytes == 0 && options_.split_on != SplitOn::lines)
      ways.emplace_back("--document-bytes 65536");
    return ways.empty() ? "break the line into shorter ones" : join(ways, " or ");
  }

  std::string pending_, repaired_;  // pending_: the first line of the next document
  int64_t pending_line_ = 0;
};

BatchReader::BatchReader(const PrepareOptions& options)
    : options_(options), inputs_(input_files(options)) {
  bool known = true;
  for (const auto& input : inputs_) {
    (format_of(input, options.format) == InputFormat::jsonl ? text_only_ : json_only_) = false;
    if (is_input_stream(input)) {
      known = false;
      continue;
    }
    open(input);
    std::error_code ignored;
    total_ += fs::file_size(input, ignored);
  }
  if (!known) total_ = 0;
}

BatchReader::~BatchReader() = default;

std::unique_ptr<BatchReader::Source> BatchReader::open(const fs::path& path) const {
  if (format_of(path, options_.format) == InputFormat::jsonl)
    return std::make_unique<Lines>(path, options_);
  return std::make_unique<Text>(path, options_);
}

void BatchReader::fill(InputBatch& batch) {
  while (batch.items.empty() && batch.bad.empty()) {
    if (!source_) {
      if (next_input_ == inputs_.size()) return;
      source_ = open(inputs_[next_input_++]);
    }
    batch.source = source_->reader().name();
    batch.json = false;
    const bool more = source_->fill(batch);
    batch.file_bytes = file_bytes_before_ + source_->reader().file_bytes();
    batch.text_bytes = text_bytes_before_ + source_->reader().text_bytes();
    if (more) continue;
    file_bytes_before_ = batch.file_bytes;
    text_bytes_before_ = batch.text_bytes;
    source_.reset();
  }
}

bool BatchReader::next(InputBatch& batch) {
  if (fault_) std::rethrow_exception(fault_);
  batch = {};
  batch.bytes.reserve(kBatchBytes + kBatchBytes / 4);
  batch.file_bytes = file_bytes_before_;
  batch.text_bytes = text_bytes_before_;
  try {
    fill(batch);
  } catch (...) {
    fault_ = std::current_exception();
    if (batch.items.empty() && batch.bad.empty()) throw;
  }
  if (batch.items.empty() && batch.bad.empty()) return false;
  batch.bytes.append(InputBatch::kPadding, '\0');
  return true;
}

}  // namespace mtrain
