// Evaluates expressions: the arithmetic of ${= … }, such as "4 * ${model.hidden_size}", and the
// conditions of rules. Expressions are typed, always terminate and have no side effects. Integers
// are exact; overflow and infinite results are errors. Stateless functions; safe from any thread.
//
//   or  and  not  == != < <= > >=  in  + -  * / // %  unary -  **  a if c else b  (…)  [a, b]
//   min max abs ceil floor round sqrt int float str len sum product first
//   true false null  1e6  'text'  model.layers  model.head_dim ?? 0  ${…}
// a / b of integers is an integer when it is exact, else a number; // and % round down. Lists hold
// scalars; min, max, len, sum, product and first accept a list, and `x in list` tests membership.
// `name ?? value` is `value` where the name does not exist.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

/// monostate: null.
using ExpressionScalar = std::variant<std::monostate, bool, int64_t, double, std::string>;
using ExpressionList = std::vector<ExpressionScalar>;
using ExpressionValue =
    std::variant<std::monostate, bool, int64_t, double, std::string, ExpressionList>;

/// Why an expression has no value, and at which byte offset of its text.
class MT_API ExpressionError : public std::runtime_error {
 public:
  ExpressionError(const std::string& message, size_t offset)
      : std::runtime_error(message), offset_(offset) {}
  size_t offset() const { return offset_; }

 private:
  size_t offset_;
};

/// Thrown by ExpressionScope::name for a name without a value. evaluate_expression() lets it pass
/// unless a ?? follows the name.
struct AbsentName {};

struct ExpressionScope {
  /// Returns the value of a bare dotted name; throws ExpressionError or AbsentName when there is
  /// none.
  std::function<ExpressionValue(std::string_view name, size_t offset)> name;
  /// Returns the value of an interpolation; `text` includes "${" and "}".
  std::function<ExpressionValue(std::string_view text, size_t offset)> interpolation;
  /// The depth of nesting of all expressions under evaluation, where the functions above evaluate
  /// further expressions: it limits the stack for all of them together. Null: each expression has
  /// only a limit of its own.
  int* nesting = nullptr;
};

/// A parsed expression, to evaluate any number of times. Immutable; copies share the parsed text.
class MT_API Expression {
 public:
  /// Throws ExpressionError for a text that is no expression.
  explicit Expression(std::string_view text);
  /// Throws ExpressionError.
  ExpressionValue evaluate(const ExpressionScope& scope) const;
  /// The names without which it has no value, each once: those that no ?? follows.
  const std::vector<std::string>& needed() const;

 private:
  struct Shared;
  std::shared_ptr<const Shared> shared_;
};

/// Parses and evaluates. Throws ExpressionError.
MT_API ExpressionValue evaluate_expression(std::string_view text, const ExpressionScope& scope);
/// A value in the notation of a recipe.
MT_API std::string to_text(const ExpressionValue& value);

}  // namespace mtrain
