// Arithmetic of recipes, "4 * ${model.hidden_size}" inside ${= … } and the conditions of rules.
// Typed and total: no loops, no calls of the outside; integers are exact and an overflow is an
// error; nothing becomes infinite. Stateless.
//
//   or  and  not  == != < <= > >= in  + -  * / // %  unary -  **      a if c else b      (…)  [a,
//   b] min max abs ceil floor round sqrt int float str len sum product first     true false null
//   1e6  'text' model.layers  model.head_dim ?? 0  ${…}
// a / b of integers is an integer when it is exact, else a number; // and % round down. Lists hold
// scalars; min, max, len, sum, product and first take one, and `x in list` asks whether it has x.
// `name ?? value` is the value where there is no such name.
#pragma once
#include <cstdint>
#include <functional>
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

/// Why an expression has no value, and where in its text (a byte offset).
class MT_API ExpressionError : public std::runtime_error {
 public:
  ExpressionError(const std::string& message, size_t offset)
      : std::runtime_error(message), offset_(offset) {}
  size_t offset() const { return offset_; }

 private:
  size_t offset_;
};

/// Thrown by ExpressionScope::name for a name without a value. Leaves evaluate_expression() unless
/// a ?? stands behind the name.
struct AbsentName {};

struct ExpressionScope {
  /// The value of a bare dotted name; throws ExpressionError or AbsentName when there is none.
  std::function<ExpressionValue(std::string_view name, size_t offset)> name;
  /// The value of "${…}", given whole.
  std::function<ExpressionValue(std::string_view text, size_t offset)> interpolation;
  /// Levels of nesting that are open, where the functions above evaluate further expressions: one
  /// count for all of them bounds the stack. Null: this expression's own count is the only bound.
  int* nesting = nullptr;
};

/// Throws ExpressionError.
MT_API ExpressionValue evaluate_expression(std::string_view text, const ExpressionScope& scope);
/// A value as it is written in a recipe.
MT_API std::string to_text(const ExpressionValue& value);

}  // namespace mtrain
