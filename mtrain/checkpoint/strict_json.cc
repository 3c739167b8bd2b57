#include "mtrain/checkpoint/strict_json.h"

#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "mtrain/base/error.h"

namespace mtrain {
namespace {

struct Refusal {
  std::string message;
};

/// An iterator that counts the bytes the parser has read, for errors that this code reports and not
/// the parser.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  CountingIterator(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
  const char& operator*() const { return *at_; }
  CountingIterator& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    auto old = *this;
    ++*this;
    return old;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** furthest_;
};

/// Adapts the library's event interface to JsonEvents.
class Adapter {
 public:
  explicit Adapter(JsonEvents& out) : out_(out) {}
  bool null() { return out_.null(), true; }
  bool boolean(bool value) { return out_.boolean(value), true; }
  // Only numbers written with a minus sign arrive here, "-0" among them.
  bool number_integer(int64_t value) { return out_.negative(value), true; }
  bool number_unsigned(uint64_t value) { return out_.integer(value), true; }
  bool number_float(double value, const std::string& text) { return out_.real(value, text), true; }
  bool string(std::string& text) { return out_.string(text), true; }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool key(std::string& text) { return out_.key(text), true; }
  bool start_object(size_t) { return deeper(), out_.start_object(), true; }
  bool end_object() { return --depth_, out_.end_object(), true; }
  bool start_array(size_t) { return deeper(), out_.start_array(), true; }
  bool end_array() { return --depth_, out_.end_array(), true; }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: what": keep only the last
    // part, since the message has its own position
    std::string_view text = error.what();
    size_t column = text.find("column ");
    size_t colon = column == std::string_view::npos ? column : text.find(": ", column);
    throw Refusal{
        cat("malformed JSON: ",
            printable(colon == std::string_view::npos ? text : text.substr(colon + 2), 160))};
  }

 private:
  void deeper() {
    if (++depth_ > kMaxJsonDepth)
      throw Refusal{cat("JSON nested deeper than the limit of ", kMaxJsonDepth)};
  }
  JsonEvents& out_;
  int depth_ = 0;
};

/// Builds a tree.
class TreeBuilder final : public JsonEvents {
 public:
  void start_object() override { open(nlohmann::json::object()); }
  void start_array() override { open(nlohmann::json::array()); }
  void end_object() override { stack_.pop_back(); }
  void end_array() override { stack_.pop_back(); }
  void key(std::string& text) override {
    if (stack_.back()->contains(text))
      fail(cat("the key \"", printable(text, 60), "\" occurs twice"));
    key_ = std::move(text);
  }
  void string(std::string& text) override { put(std::move(text)); }
  void integer(uint64_t value) override { put(value); }
  void negative(int64_t value) override { put(value); }
  void real(double value, const std::string&) override { put(value); }
  void boolean(bool value) override { put(value); }
  void null() override { put(nullptr); }
  void other(std::string_view) override {}
  nlohmann::json root;

 private:
  nlohmann::json* put(nlohmann::json value) {
    if (stack_.empty()) return &(root = std::move(value));
    nlohmann::json& top = *stack_.back();
    if (top.is_array()) return top.push_back(std::move(value)), &top.back();
    return &(top[key_] = std::move(value));
  }
  void open(nlohmann::json value) { stack_.push_back(put(std::move(value))); }
  std::vector<nlohmann::json*> stack_;
  std::string key_;
};

}  // namespace

void JsonEvents::fail(std::string message) { throw Refusal{std::move(message)}; }

void parse_json(std::string_view text, const JsonPlace& place, JsonEvents& events) {
  const char* at = text.data();
  try {
    if (size_t nul = text.find('\0');
        nul != std::string_view::npos) {  // the library would treat it as the end
      at += nul;
      throw Refusal{"a NUL byte inside JSON"};
    }
    if (text.starts_with("\xEF\xBB\xBF")) throw Refusal{"a byte-order mark before JSON"};
    Adapter adapter(events);
    nlohmann::json::sax_parse(CountingIterator(text.data(), &at),
                              CountingIterator(text.data() + text.size(), &at), &adapter);
  } catch (const Refusal& refusal) {
    throw Error(ErrorClass::checkpoint,
                cat(printable(place.path.string()), ": byte ",
                    place.offset + static_cast<uint64_t>(at - text.data()), ": ", refusal.message),
                place.hint);
  }
}

nlohmann::json parse_json_tree(std::string_view text, const JsonPlace& place) {
  TreeBuilder builder;
  parse_json(text, place, builder);
  return std::move(builder.root);
}

}  // namespace mtrain
