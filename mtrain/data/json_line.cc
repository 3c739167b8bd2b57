#include "mtrain/data/json_line.h"

#include <simdjson.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace {

constexpr size_t kMaxJsonDepth = 64;
/// The limit of the fast parser, which counts differently: lower, so that it accepts nothing that
/// is too deep.
constexpr size_t kFastDepth = 32;
constexpr size_t kNoKey = SIZE_MAX;
constexpr size_t kMostNames = 12;  // of a record, in messages

/// Extracts the strings of some fields at the top level of a JSON object without building the rest.
class TextExtractor final : public nlohmann::json_sax<nlohmann::json> {
 public:
  TextExtractor(const std::vector<std::string>& keys, std::vector<std::vector<std::string>>& texts)
      : keys_(keys), texts_(texts), found_(keys.size()) {}

  /// Returns "" when the texts were found.
  std::string fault;

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("a boolean"); }
  bool number_integer(number_integer_t) override { return value("a number"); }
  bool number_unsigned(number_unsigned_t) override { return value("a number"); }
  bool number_float(number_float_t, const string_t&) override { return value("a number"); }
  bool binary(binary_t&) override { return value("binary data"); }
  bool string(string_t& text) override {
    if (wanted_ == kNoKey) return value("a string");
    texts_[wanted_].push_back(std::move(text));
    if (!in_list_) wanted_ = kNoKey;
    return true;
  }
  bool start_object(std::size_t) override {
    return depth_ == 0 ? enter() : value("an object") && enter();
  }
  bool start_array(std::size_t) override {
    if (wanted_ == kNoKey || in_list_) return value("a list") && enter();
    return in_list_ = true, enter();
  }
  bool end_object() override { return --depth_, true; }
  bool end_array() override {
    if (--depth_ == 1 && std::exchange(in_list_, false)) wanted_ = kNoKey;
    return true;
  }
  bool key(string_t& name) override {
    const auto at = std::find(keys_.begin(), keys_.end(), name);
    if (depth_ == 1 && names_.size() < kMostNames) names_.push_back(printable(name, 60));
    wanted_ = depth_ == 1 && at != keys_.end() ? static_cast<size_t>(at - keys_.begin()) : kNoKey;
    if (wanted_ != kNoKey && std::exchange(found_[wanted_], char{1}))
      return fail(cat("has the field '", printable(*at), "' twice"));
    return true;
  }
  bool parse_error(std::size_t at, const std::string&,
                   const nlohmann::detail::exception& error) override {
    std::string_view what = error.what();
    auto detail = what.find("; last read");
    auto begin = what.rfind(": ", detail == what.npos ? what.size() : detail);
    std::string reason(
        begin == what.npos
            ? what
            : what.substr(begin + 2, detail == what.npos ? detail : detail - begin - 2));
    return fail(cat("is not valid JSON at byte ", at, ": ", printable(reason, 100)));
  }

  void finish() {
    for (size_t k = 0; k < keys_.size() && fault.empty(); ++k)
      if (!found_[k])
        fail(cat("has no field '", printable(keys_[k]), "'; its fields are ",
                 names_.empty() ? "none" : join(names_, ", ")));
  }

 private:
  bool fail(std::string text) { return fault = std::move(text), false; }
  bool enter() {
    if (++depth_ > kMaxJsonDepth) return fail(cat("is nested deeper than ", kMaxJsonDepth));
    return true;
  }
  bool value(const char* what) {
    if (depth_ == 0) return fail(cat("is ", what, ", not an object"));
    if (wanted_ != kNoKey)
      return fail(cat("has ", what, in_list_ ? " in the list" : "", " in the field '",
                      printable(keys_[wanted_]), "', not a string"));
    return true;
  }
  const std::vector<std::string>& keys_;
  std::vector<std::vector<std::string>>& texts_;
  std::vector<char> found_;
  std::vector<std::string> names_;  // of the record's first fields, for messages
  size_t depth_ = 0, wanted_ = kNoKey;
  bool in_list_ = false;
};

}  // namespace

struct JsonLine::Parser {
  simdjson::dom::parser dom;
};

JsonLine::JsonLine(std::vector<std::string> keys)
    : keys_(std::move(keys)),
      texts_(keys_.size()),
      held_(keys_.size()),
      parser_(std::make_unique<Parser>()) {}

JsonLine::~JsonLine() = default;

std::string JsonLine::read(std::string_view line) {
  if (read_fast(line)) return {};
  return read_exactly(line);
}

bool JsonLine::read_fast(std::string_view line) {
  static_assert(simdjson::SIMDJSON_PADDING <= 64, "InputBatch::kPadding");
  simdjson::dom::parser& parser = parser_->dom;
  if (parser.capacity() < line.size() &&
      parser.allocate(std::max<size_t>(line.size() * 2, 4096), kFastDepth) != simdjson::SUCCESS)
    return false;
  simdjson::dom::object object;
  // The bytes after the line are readable, so nothing is copied.
  if (parser.parse(line.data(), line.size(), false).get(object) != simdjson::SUCCESS) return false;
  size_t found = 0;
  for (auto& texts : texts_) texts.clear();
  for (const auto field : object) {
    const auto at = std::find(keys_.begin(), keys_.end(), field.key);
    if (at == keys_.end()) continue;
    auto& texts = texts_[static_cast<size_t>(at - keys_.begin())];
    std::string_view text;
    if (!texts.empty() || field.value.get(text) != simdjson::SUCCESS)
      return false;  // a duplicate, a list, or invalid
    texts.push_back(text);
    ++found;
  }
  return found == keys_.size();
}

std::string JsonLine::read_exactly(std::string_view line) {
  for (auto& texts : held_) texts.clear();
  TextExtractor extractor(keys_, held_);
  nlohmann::json::sax_parse(line, &extractor);
  extractor.finish();
  for (size_t k = 0; k < keys_.size(); ++k) texts_[k].assign(held_[k].begin(), held_[k].end());
  return std::move(extractor.fault);
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
      length = value < 0                         ? std::min<size_t>(2, json.size() - at)
               : next >= 0xDC00 && next < 0xE000 ? 12
                                                 : 6;
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
