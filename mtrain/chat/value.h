// Values of Jinja expressions in a chat template. A text records the origin of each byte, so text
// of the template can be distinguished from text of the conversation after any slicing and joining.
// Values share lists and maps by reference, like Python. Not synchronised: one thread at a time.
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

/// The origin of a byte: 0 for the template, m + 1 for message m, kOtherInput for other inputs
/// (tools, documents), kLastMessage for the message of that number and all later ones.
using Origin = uint16_t;
inline constexpr Origin kTemplate = 0, kOtherInput = 65535, kLastMessage = 65534;

/// The budget of a rendering, in steps. The value types charge it themselves: texts when they are
/// created and copied, lists and maps when they are created and searched, comparisons and searches
/// as they proceed. So no filter or method can forget to charge. A Meter counts for its thread
/// during its lifetime; only one may exist per thread. Without a Meter, e.g. for the input of a
/// conversation, nothing is charged.
class MT_API Meter {
 public:
  explicit Meter(int64_t steps);
  ~Meter();
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  /// Each throws Fault("BudgetError") when the budget would be exceeded.
  static void steps(int64_t count);
  static void elements(size_t count) {
    steps(static_cast<int64_t>(count));
  }  // elements of lists and maps, created or visited
  static void read(size_t bytes) { charge(bytes); }  // 64 bytes are one step
  static void made(size_t bytes) {
    charge(8 + 2 * bytes);
  }  // 32 bytes are one step, since a text also stores the origin of each byte

 private:
  static void charge(size_t units);
  int64_t limit_, left_;  // in steps; in 64ths of a step
};

/// UTF-8 with the origin of each byte.
struct MT_API Text {
  std::string bytes;
  std::vector<Origin> origins;  // one per byte
  bool safe =
      false;  // result of the filter "safe": text that is appended is escaped for HTML, as in Jinja
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
/// The first position of `part` at or after `from`; npos when there is none. Takes time in
/// proportion to the bytes that it passes.
MT_API size_t find_in(const std::string& text, const std::string& part, size_t from = 0);
/// Python's a + b for texts. Either may be marked as safe for HTML.
MT_API Text joined(const Text& a, const Text& b);

class Value;
struct Arguments;
using List = std::vector<Value>;
/// Keeps the order of insertion, like Python's dict.
struct Map;
/// A macro, a method bound to its value, or a function of the environment.
struct Callable {
  std::string name;  // as Python shows its type
  std::function<Value(Arguments&)> call;
};
/// The result of a filter such as selectattr: can be iterated once and has no length.
struct Generator {
  List items;
  bool spent = false;
};
/// A missing name or attribute: prints as empty; any other use is an error.
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
  static Value space();  // namespace(); cannot be stored in other values
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

  /// The depth of nested lists and maps. Creating a value deeper than kNesting throws Fault, so
  /// every value can be traversed recursively.
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
  /// The argument at a position or of a name; null when it is not given.
  const Value* get(size_t place, std::string_view name) const;
};

/// Python's == and <. Throws Fault("TypeError") where Python raises one.
MT_API bool equal(const Value& a, const Value& b);
MT_API bool less(const Value& a, const Value& b, const char* op = "<");
/// Python's str() and repr().
MT_API Text to_text(const Value& value);
MT_API Text repr(const Value& value);
/// Python's json.dumps with ensure_ascii=False; `indent` < 0: on one line. Throws Fault for a value
/// that JSON cannot represent.
MT_API Text to_json(const Value& value, int indent = -1, bool sort_keys = false);
/// Parses JSON. All its text gets `origin`. Throws Error(data).
MT_API Value from_json(std::string_view json, Origin origin = kOtherInput);

/// A copy of the value in which all text has this origin.
MT_API Value with_origin(const Value& value, Origin origin);

/// The exception that Python would raise, without a location.
struct MT_API Fault : std::exception {
  Fault(std::string type_, std::string message_);
  ~Fault() override;
  Fault(const Fault&) = default;
  const char* what() const noexcept override { return whole.c_str(); }
  std::string type, message, whole;
};

}  // namespace mtrain::chat
