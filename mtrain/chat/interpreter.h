// The interpreter of chat templates: evaluates the syntax tree, counts its steps, and accesses only
// its input values. An object serves one rendering on one thread.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "mtrain/chat/syntax.h"

namespace mtrain::chat {

/// The limits of a rendering; beyond them it ends with an error.
struct Budget {
  int64_t steps = 5'000'000;  // see Meter; also limits texts and lists to less than 1 GiB
  int depth = 1500;           // of nested expressions, statements and macros
};

/// The names that are visible at a point of the template. Refers to the outer scope.
class Scope {
 public:
  explicit Scope(Scope* outer = nullptr) : outer_(outer) {}
  const Value* find(std::string_view name) const;
  void set(const std::string& name, Value value);

 private:
  Scope* outer_;
  std::vector<std::pair<std::string, Value>> names_;
};

/// The location and reason of a failed expression, with Python's message. ChatTemplate converts it
/// to Error(data).
struct LocatedFault {
  Place place;
  Fault fault;
};

class Interpreter {
 public:
  explicit Interpreter(const Budget& budget) : budget_(budget) {}

  void define(const std::string& name, Value value) { globals_.set(name, std::move(value)); }
  /// Renders the template. generations() then returns the bytes in {% generation %} blocks. Throws
  /// LocatedFault.
  Text run(const Body& body);
  const std::vector<std::pair<size_t, size_t>>& generations() const { return generations_; }

  // For filters, tests and methods.
  Value attribute(const Value& of, const std::string& name);
  Value item(const Value& of, const Value& key);
  Value filter(const std::string& name, const Value& input, Arguments& arguments);
  bool test(const std::string& name, const Value& input, const Arguments& arguments);
  Value call(const Value& function, Arguments& arguments);
  /// The items of a loop over the value. Consumes a generator.
  List iterate(const Value& value);

 private:
  enum class Flow : uint8_t { next, stop, skip };
  /// Counts the depth of recursion and throws before the stack would overflow.
  class Deeper {
   public:
    explicit Deeper(Interpreter& i) : i_(i) { i_.deeper(); }
    ~Deeper() { --i_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Interpreter& i_;
  };
  void deeper();
  Flow exec(const Body& body, Scope& scope, Text& out);
  Flow exec(const Statement& statement, Scope& scope, Text& out);
  Flow loop(const Statement& statement, Scope& scope, Text& out);
  Value loop_value(const List& items, size_t index);
  void bind(const std::vector<std::string>& targets, const Value& value, Scope& scope);
  Value macro(const Statement& statement, Scope& scope);
  Text block(const Body& body, Scope& scope);

  Value eval(const Expression& e, Scope& scope);
  Value eval_node(const Expression& e, Scope& scope);
  Value eval_map(const Expression& e, Scope& scope);
  Value eval_filter(const Expression& e, Scope& scope);
  Value eval_test(const Expression& e, Scope& scope);
  Value eval_call(const Expression& e, Scope& scope);
  Value eval_compare(const Expression& e, Scope& scope);
  bool compare(const std::string& op, const Value& a, const Value& b);
  bool contains(const Value& where, const Value& what);
  Value binary(const std::string& op, const Value& a, const Value& b);
  Value arithmetic(const std::string& op, const Value& a, const Value& b);
  Value add(const Value& a, const Value& b);
  Value unary(const std::string& op, const Value& a);
  Value slice(const Expression& e, Scope& scope);
  Arguments arguments(const CallArguments& given, Scope& scope);

  Budget budget_;
  Scope globals_;
  Place at_;
  int depth_ = 0;
  const Text* block_text_ = nullptr;  // the text of the set or filter block whose filters run
  const Text* final_ = nullptr;       // the final output, to which the bytes in generations_ refer
  std::vector<std::pair<size_t, size_t>> generations_;
};

/// A method of a text or map, bound to its value; missing when there is none. Methods that change
/// their value are excluded.
Value bound_method(Interpreter& interpreter, const Value& of, const std::string& name);
// Functions that count characters, not bytes.
size_t characters(std::string_view utf8);
/// Byte offset of a character.
size_t offset_of(std::string_view utf8, size_t character);
/// Python's str.strip, on the left, the right or both sides; strips white space when `set` is null.
Text strip(const Text& text, const std::string* set, bool left, bool right);
Text replace(const Text& text, const Text& from, const Text& to, int64_t count);
// Case conversion like Python's: Unicode's full mappings, by ICU.
Text upper_case(const Text& text);
Text lower_case(const Text& text);
/// Which characters become capitals: the first one of the text (capitalize), those after a
/// character without case (str.title), or those after spaces, dashes and opening brackets (Jinja's
/// filter).
enum class WordStart : uint8_t { text, uncased, marks };
/// The text with these capitals and all other characters in lower case.
Text title_case(const Text& text, WordStart where);
/// The text of an argument. Throws Fault("TypeError") when it is not a text.
const Text& text_argument(const Value* value, const char* what);
/// The number of an argument, or `otherwise` when there is none. True is 1, as in Python.
int64_t integer_or(const Value* value, int64_t otherwise);

}  // namespace mtrain::chat
