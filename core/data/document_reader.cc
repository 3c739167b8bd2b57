#include "mtrain/data/document_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace {

constexpr size_t kMaxJsonDepth = 64;

bool blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\v\f") == std::string_view::npos;
}

/// Takes one string out of the top level of a JSON object without building the rest.
class TextExtractor final : public nlohmann::json_sax<nlohmann::json> {
 public:
  TextExtractor(const std::string& key, std::string& text) : key_(key), text_(text) {}

  /// Empty when the text was found.
  std::string fault;

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("a boolean"); }
  bool number_integer(number_integer_t) override { return value("a number"); }
  bool number_unsigned(number_unsigned_t) override { return value("a number"); }
  bool number_float(number_float_t, const string_t&) override { return value("a number"); }
  bool binary(binary_t&) override { return value("binary data"); }
  bool string(string_t& text) override {
    if (!wanted_) return value("a string");
    text_ = std::move(text);
    wanted_ = false;
    return true;
  }
  bool start_object(std::size_t) override { return depth_ == 0 ? enter() : value("an object") && enter(); }
  bool start_array(std::size_t) override { return value("a list") && enter(); }
  bool end_object() override { return --depth_, true; }
  bool end_array() override { return --depth_, true; }
  bool key(string_t& name) override {
    wanted_ = depth_ == 1 && name == key_;
    if (wanted_ && std::exchange(found_, true))
      return fail(cat("has the field '", printable(key_), "' twice"));
    return true;
  }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::detail::exception& error) override {
    std::string_view what = error.what();
    auto detail = what.find("; last read");
    auto begin = what.rfind(": ", detail == what.npos ? what.size() : detail);
    std::string reason(begin == what.npos
                           ? what
                           : what.substr(begin + 2, detail == what.npos ? detail : detail - begin - 2));
    return fail(cat("is no valid JSON at byte ", at, ": ", printable(reason, 100)));
  }

  void finish() {
    if (fault.empty() && !found_) fail(cat("has no field '", printable(key_), "'"));
  }

 private:
  bool fail(std::string text) { return fault = std::move(text), false; }
  bool enter() {
    if (++depth_ > kMaxJsonDepth) return fail(cat("is nested deeper than ", kMaxJsonDepth));
    return true;
  }
  bool value(const char* what) {
    if (depth_ == 0) return fail(cat("is ", what, ", not an object"));
    if (wanted_) return fail(cat("has ", what, " in the field '", printable(key_), "', not a string"));
    return true;
  }
  const std::string& key_;
  std::string& text_;
  size_t depth_ = 0;
  bool wanted_ = false, found_ = false;
};

class JsonLines final : public DocumentReader {
 public:
  JsonLines(const fs::path& path, const PrepareOptions& options, BadInputs& bad)
      : reader_(path, options.max_document_bytes), key_(options.json_key), bad_(bad) {}

  bool next(std::string& text) override {
    std::string_view line;
    while (reader_.next(line)) {
      if (blank(line) || !bad_.accept_utf8(reader_, line, repaired_, line)) continue;
      if (bad_.policy() == OnBad::replace && repair_surrogates(line, escaped_)) {
        ++bad_.replaced;
        line = escaped_;
      }
      TextExtractor extractor(key_, text);
      nlohmann::json::sax_parse(line, &extractor);
      extractor.finish();
      if (extractor.fault.empty()) return true;
      bad_.reject(reader_, extractor.fault,
                  cat("each line is an object like {\"", printable(key_), "\": \"…\"}"));
    }
    return false;
  }

  uint64_t bytes() const override { return reader_.bytes(); }

 private:
  LineReader reader_;
  std::string key_, repaired_, escaped_;
  BadInputs& bad_;
};

class TextFile final : public DocumentReader {
 public:
  TextFile(const fs::path& path, const PrepareOptions& options, BadInputs& bad)
      : reader_(path, options.max_document_bytes), options_(options), bad_(bad) {}

  bool next(std::string& text) override {
    text.swap(pending_);
    pending_.clear();
    bool begun = std::exchange(pending_begun_, false), gap = false;
    std::string_view line;
    while (reader_.next(line)) {
      if (!bad_.accept_utf8(reader_, line, repaired_, line)) continue;
      const bool is_blank = blank(line);
      if (begun && !is_blank && ends_before_line(text, gap)) {
        append(pending_, line);
        return pending_begun_ = true;
      }
      begun = begun || !is_blank;
      gap = begun && is_blank;
      append(text, line);
      MT_USER_CHECK(text.size() <= options_.max_document_bytes, ErrorClass::data,
                    cat(reader_.place(), ": the document is longer than the limit of ",
                        human_bytes(options_.max_document_bytes)),
                    "split it: --split-on blank-lines, --split-on lines or --document-bytes 65536; or raise "
                    "--max-document-bytes");
    }
    return begun;  // nothing but blank lines is no document
  }

  uint64_t bytes() const override { return reader_.bytes(); }

 private:
  bool ends_before_line(const std::string& text, bool gap) const {
    if (options_.document_bytes > 0 && text.size() >= options_.document_bytes) return true;
    return options_.split_on == SplitOn::lines || (options_.split_on == SplitOn::blank_lines && gap);
  }
  void append(std::string& text, std::string_view line) const {
    text.append(line);
    if (reader_.had_end()) text += '\n';
  }

  LineReader reader_;
  const PrepareOptions& options_;
  BadInputs& bad_;
  std::string pending_, repaired_;
  bool pending_begun_ = false;
};

InputFormat format_of(const fs::path& path, InputFormat wanted) {
  if (wanted != InputFormat::by_extension) return wanted;
  auto extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  if (extension == ".jsonl" || extension == ".ndjson") return InputFormat::jsonl;
  if (extension == ".txt" || extension == ".text" || extension == ".md") return InputFormat::text;
  throw Error(ErrorClass::config,
              cat("cannot tell from its name whether ", path.string(), " is text or JSON lines"),
              "say --format text or --format jsonl");
}

}  // namespace

bool BadInputs::accept_utf8(const LineReader& reader, std::string_view line, std::string& repaired,
                            std::string_view& out) {
  size_t at = 0;
  if (valid_utf8(line, &at)) return out = line, true;
  if (policy_ != OnBad::replace) {
    reject(reader, cat("is no valid UTF-8 at byte ", at, " of the line"),
           "convert the file to UTF-8, or use --on-bad replace or --on-bad skip");
    return false;
  }
  ++replaced;
  count(reader);
  repaired = repair_utf8(line);
  out = repaired;
  return true;
}

void BadInputs::reject(const LineReader& reader, const std::string& fault, const std::string& hint) {
  if (policy_ != OnBad::skip) throw Error(ErrorClass::data, cat(reader.place(), ": ", fault), hint);
  ++skipped;
  count(reader);
}

void BadInputs::count(const LineReader& reader) {
  MT_USER_CHECK(replaced + skipped <= limit_, ErrorClass::data,
                cat(reader.place(), ": more than ", limit_, " broken lines"),
                "look at the file, or raise --max-bad");
}

std::unique_ptr<DocumentReader> open_documents(const fs::path& path, const PrepareOptions& options,
                                               BadInputs& bad) {
  if (format_of(path, options.format) == InputFormat::jsonl)
    return std::make_unique<JsonLines>(path, options, bad);
  return std::make_unique<TextFile>(path, options, bad);
}

bool repair_surrogates(std::string_view json, std::string& out) {
  // The value of a \uXXXX escape at `at`, or -1.
  auto escape = [&](size_t at) -> int {
    if (at + 6 > json.size() || json[at] != '\\' || json[at + 1] != 'u') return -1;
    int value = 0;
    for (size_t i = at + 2; i < at + 6; ++i) {
      auto c = static_cast<unsigned char>(json[i]);
      if (!std::isxdigit(c)) return -1;
      value = value * 16 + (c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    return value;
  };
  bool changed = false;
  out.clear();
  for (size_t at = 0; at < json.size();) {
    size_t length = 1;
    if (json[at] == '\\') {
      int value = escape(at);
      bool high = value >= 0xD800 && value < 0xDC00, low = value >= 0xDC00 && value < 0xE000;
      int next = high ? escape(at + 6) : -1;
      length = value < 0 ? std::min<size_t>(2, json.size() - at) : next >= 0xDC00 && next < 0xE000 ? 12 : 6;
      if ((high || low) && length == 6) {
        out += "\\uFFFD";
        changed = true;
        at += 6;
        continue;
      }
    }
    out.append(json.substr(at, length));
    at += length;
  }
  return changed;
}

}  // namespace mtrain
