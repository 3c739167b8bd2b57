// Values of a chat template: what Jinja's expressions are made of. Text carries, byte by byte,
// where it came from, so that what a template writes can be told from what a conversation says,
// however it is sliced and joined on the way. Values share lists and maps by reference, as Python
// does; for one thread at a time.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain::chat {

/// Where a byte came from: 0 from the template itself, m + 1 from message m, kOtherInput from
/// elsewhere in the input (tools, documents), kLastMessage from that message or any later one.
using Origin = uint16_t;
inline constexpr Origin kTemplate = 0, kOtherInput = 65535, kLastMessage = 65534;

/// What a rendering may use, in steps. Whatever makes or walks values charges it where it touches
/// them — texts when they are made and copied, lists and maps when they are made and searched,
/// comparisons and searches as they go — so that no filter or method can forget to, and no value
/// can be walked that was not paid for. Counts for its thread while it lives, one at a time: values
/// that are made elsewhere, for a conversation's input, are charged to nobody.
class MT_API Meter {
 public:
  explicit Meter(int64_t steps);
  ~Meter();
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  /// Each throws Fault("BudgetError") instead of what would go beyond the budget.
  static void steps(int64_t count);
  static void elements(size_t count) {
    steps(static_cast<int64_t>(count));
  }                                                  // of lists and maps, made or visited
  static void read(size_t bytes) { charge(bytes); }  // 64 of them are a step
  static void made(size_t bytes) {
    charge(8 + 2 * bytes);
  }  // and 32 of these: a text knows the origin of each byte

 private:
  static void charge(size_t units);
  int64_t limit_, left_;  // steps; 64ths of one
};

/// UTF-8 with the origin of each byte.
struct MT_API Text {
  std::string bytes;
  std::vector<Origin> origins;  // as many as bytes
  bool safe =
      false;  // made by the filter "safe": what is added to it is escaped for HTML, as in Jinja
  Text() = default;
  Text(const Text& other);
  Text(Text&&) noexcept = default;
  Text& operator=(const Text& other);
  Text& operator=(Text&&) noexcept = default;
  ~Text() = default;
  Text(std::string_view text,
       Origin origin = kTemplate);  // NOLINT(google-explicit-constructor): literals are texts
  Text sub(size_t begin, size_t count = std::string::npos) const;
  void append(const Text& other);
};
/// Where `part` begins in the text, at `from` or behind; npos when it does not. Takes time in
/// proportion to what it passes.
MT_API size_t find_in(const std::string& text, const std::string& part, size_t from = 0);
/// Python's a + b of texts, where one may be safe for HTML.
MT_API Text joined(const Text& a, const Text& b);

class Value;
struct Arguments;
using List = std::vector<Value>;
/// In the order of insertion, as Python's dict.
struct Map;
/// A macro, a method bound to its value, or a function of the environment.
struct Callable {
  std::string name;  // as Python would show its type
  std::function<Value(Arguments&)> call;
};
/// What a filter such as selectattr gives: runs once, and has no length.
struct Generator {
  List items;
  bool spent = false;
};
/// A missing name or attribute: empty where it is printed, an error where it is used.
struct Missing {
  std::string why;  // "'x' is undefined"
};

class MT_API Value {
 public:
  enum class Kind : uint8_t {
    missing,
    none,
    boolean,
    integer,
    real,
    text,
    list,
    tuple,
    map,
    space,
    generator,
    callable
  };

  Value() = default;  // none
  static Value missing(std::string why);
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value real(double value);
  static Value text(Text value);
  static Value list(List items = {});
  static Value tuple(List items);
  static Value map(std::vector<std::pair<Value, Value>> entries = {});
  static Value space();  // namespace(); cannot be put into others
  static Value generator(List items);
  static Value callable(std::string name, std::function<Value(Arguments&)> call);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool number() const {
    return kind_ == Kind::integer || kind_ == Kind::real || kind_ == Kind::boolean;
  }
  bool truth() const;

  bool as_bool() const { return integer_ != 0; }
  int64_t as_integer() const { return integer_; }
  double as_real() const { return kind_ == Kind::real ? real_ : static_cast<double>(integer_); }
  const Text& as_text() const { return *text_; }
  List& items() const { return *list_; }  // of a list or tuple
  Map& as_map() const { return *map_; }   // of a map or namespace
  Generator& as_generator() const { return *generator_; }
  const Callable& as_callable() const { return *callable_; }
  const std::string& why() const { return missing_->why; }

  /// How deep lists and maps lie in it. Making one deeper than kNesting throws Fault, so that no
  /// template can build what cannot be walked.
  int nesting() const { return nesting_; }
  static constexpr int kNesting = 200;

  /// Python's name of the type: "str", "dict", "NoneType".
  const char* type_name() const;

 private:
  void nest(const Value& inner);

  Kind kind_ = Kind::none;
  uint16_t nesting_ = 0;
  union {
    int64_t integer_ = 0;
    double real_;
  };
  std::shared_ptr<const Text> text_;
  std::shared_ptr<List> list_;
  std::shared_ptr<Map> map_;
  std::shared_ptr<Generator> generator_;
  std::shared_ptr<const Callable> callable_;
  std::shared_ptr<const Missing> missing_;
};

struct MT_API Map {
  std::vector<std::pair<Value, Value>> entries;
  Value* find(std::string_view key);
  Value* find(const Value& key);
  void set(const Value& key, Value value);
};

struct MT_API Arguments {
  List positional;
  std::vector<std::pair<std::string, Value>> named;
  /// The argument at a place or of a name; null when it was not given.
  const Value* get(size_t place, std::string_view name) const;
};

/// Python's ==, and < (throws Fault("TypeError") where Python does).
MT_API bool equal(const Value& a, const Value& b);
MT_API bool less(const Value& a, const Value& b, const char* op = "<");
/// Python's str() and repr().
MT_API Text to_text(const Value& value);
MT_API Text repr(const Value& value);
/// Python's json.dumps with ensure_ascii=False; `indent` < 0: on one line. Throws Fault for what
/// JSON has not.
MT_API Text to_json(const Value& value, int indent = -1, bool sort_keys = false);
/// From JSON. All text in it is of `origin`. Throws Error(data).
MT_API Value from_json(std::string_view json, Origin origin = kOtherInput);

/// The same value with all its text of another origin.
MT_API Value with_origin(const Value& value, Origin origin);

/// What Python would have raised, without a place yet.
struct MT_API Fault : std::exception {
  Fault(std::string type_, std::string message_);
  ~Fault() override;
  Fault(const Fault&) = default;
  const char* what() const noexcept override { return whole.c_str(); }
  std::string type, message, whole;
};

}  // namespace mtrain::chat
