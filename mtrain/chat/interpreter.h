// The interpreter of chat templates: walks the tree, counts what it does, and reaches nothing but
// the values it was given. For one rendering, on one thread.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "mtrain/chat/syntax.h"

namespace mtrain::chat {

/// What a rendering may use before it is ended with an error.
struct Budget {
  int64_t steps = 5'000'000;  // see Meter; texts and lists of these take less than 1 GiB of memory
  int depth = 1500;           // of expressions, statements and macros in each other
};

/// Names that are known at a point of the template.
class Scope {
 public:
  explicit Scope(Scope* outer = nullptr) : outer_(outer) {}
  const Value* find(std::string_view name) const;
  void set(const std::string& name, Value value);

 private:
  Scope* outer_;
  std::vector<std::pair<std::string, Value>> names_;
};

/// Where an expression failed and why, as Python would say it. Becomes Error(data) at the border.
struct PlacementFault {
  Place place;
  Fault fault;
};

class Interpreter {
 public:
  explicit Interpreter(const Budget& budget) : budget_(budget) {}

  void define(const std::string& name, Value value) { globals_.set(name, std::move(value)); }
  /// The text of the template. Stretches in {% generation %} are in generations(). Throws
  /// PlacementFault.
  Text run(const Body& body);
  const std::vector<std::pair<size_t, size_t>>& generations() const { return generations_; }

  // For filters, tests and methods.
  Value attribute(const Value& of, const std::string& name);
  Value item(const Value& of, const Value& key);
  Value filter(const std::string& name, const Value& input, Arguments& arguments);
  bool test(const std::string& name, const Value& input, const Arguments& arguments);
  Value call(const Value& function, Arguments& arguments);
  /// What a loop over the value would see. Uses a generator up.
  List iterate(const Value& value);

 private:
  enum class Flow : uint8_t { next, stop, skip };
  /// Counts how deep the interpreter is, and ends what would overflow the stack.
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
  const Text* block_text_ = nullptr;  // of the set or filter block whose filters run
  const Text* final_ = nullptr;       // the output itself, where generations have places
  std::vector<std::pair<size_t, size_t>> generations_;
};

/// A method of a text or map, bound to it; missing when there is none. Methods that change their
/// value are not among them.
Value bound_method(Interpreter& interpreter, const Value& of, const std::string& name);
// Texts by characters, not bytes.
size_t characters(std::string_view utf8);
/// Byte offset of a character.
size_t offset_of(std::string_view utf8, size_t character);
/// Python's str.strip, on the left, the right or both; of white space when `set` is null.
Text strip(const Text& text, const std::string* set, bool left, bool right);
Text replace(const Text& text, const Text& from, const Text& to, int64_t count);
// Case as Python has it: Unicode's full mappings, by ICU.
Text upper_case(const Text& text);
Text lower_case(const Text& text);
/// Where a capital stands: at the start of the text (capitalize), behind every character without
/// case (str.title), or behind blanks, dashes and opening brackets (Jinja's filter).
enum class WordStart : uint8_t { text, uncased, marks };
/// Capitals there, everything else in lower case.
Text title_case(const Text& text, WordStart where);
/// The text of an argument. Throws Fault("TypeError") when it is none.
const Text& text_argument(const Value* value, const char* what);

}  // namespace mtrain::chat
