#include "mtrain/config/expression_arithmetic.h"

#include <cmath>
#include <limits>

#include "mtrain/base/checked.h"
#include "mtrain/base/text.h"

namespace mtrain {

const char* kind_of(const ExpressionValue& value) {
  constexpr const char* kKinds[] = {"null",     "a boolean", "an integer",
                                    "a number", "a text",    "a list"};
  return kKinds[value.index()];
}

bool is_numeric(const ExpressionValue& value) {
  return std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value);
}

double as_number(const ExpressionValue& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
  return std::get<double>(value);
}

ExpressionValue finite(double value, size_t at) {
  if (!std::isfinite(value)) throw ExpressionError("the result is too large or undefined", at);
  return value;
}

namespace {

[[noreturn]] void fail(const std::string& message, size_t at) {
  throw ExpressionError(message, at);
}

ExpressionValue whole(char symbol, int64_t a, int64_t b, size_t at) {
  if (b == -1 && a == std::numeric_limits<int64_t>::min() && symbol != '+' && symbol != '-')
    fail("the result does not fit in 64 bits", at);
  if (symbol == '/' && a % b != 0) return static_cast<double>(a) / static_cast<double>(b);
  if (symbol == '/') return a / b;
  int64_t remainder = symbol == '|' || symbol == '%' ? a % b : 0;
  bool rounds_down = remainder != 0 && (remainder < 0) != (b < 0);
  if (symbol == '|') return a / b - (rounds_down ? 1 : 0);
  if (symbol == '%') return rounds_down ? remainder + b : remainder;
  int64_t result = 0;
  bool overflow = symbol == '+'   ? __builtin_add_overflow(a, b, &result)
                  : symbol == '-' ? __builtin_sub_overflow(a, b, &result)
                                  : __builtin_mul_overflow(a, b, &result);
  if (overflow) fail("the result does not fit in 64 bits", at);
  return result;
}

}  // namespace

ExpressionValue raise(const ExpressionValue& base, const ExpressionValue& exponent, size_t at) {
  if (!is_numeric(base) || !is_numeric(exponent))
    fail(cat("cannot raise ", kind_of(base), " to ", kind_of(exponent)), at);
  const auto* b = std::get_if<int64_t>(&base);
  const auto* e = std::get_if<int64_t>(&exponent);
  if (!b || !e || *e < 0) return finite(std::pow(as_number(base), as_number(exponent)), at);
  if (*b == 0 || *b == 1) return *e == 0 ? int64_t{1} : *b;
  if (*b == -1) return *e % 2 == 0 ? int64_t{1} : int64_t{-1};
  int64_t result = 1;
  for (int64_t i = 0; i < *e; ++i) {
    auto next = checked_mul(result, *b);
    if (!next) fail("the result does not fit in 64 bits", at);
    result = *next;
  }
  return result;
}

ExpressionValue arithmetic(char symbol, const ExpressionValue& a, const ExpressionValue& b,
                           size_t at) {
  if (symbol == '+' && std::holds_alternative<std::string>(a) &&
      std::holds_alternative<std::string>(b))
    return std::get<std::string>(a) + std::get<std::string>(b);
  if (!is_numeric(a) || !is_numeric(b)) {
    const char* shown = symbol == '|' ? "//" : nullptr;
    fail(cat("cannot compute ", kind_of(a), " ", shown ? shown : std::string(1, symbol), " ",
             kind_of(b)),
         at);
  }
  bool divides = symbol == '/' || symbol == '|' || symbol == '%';
  if (divides && as_number(b) == 0) fail("division by zero", at);
  const auto* x = std::get_if<int64_t>(&a);
  const auto* y = std::get_if<int64_t>(&b);
  if (x && y) return whole(symbol, *x, *y, at);
  double u = as_number(a), v = as_number(b);
  switch (symbol) {
    case '+':
      return finite(u + v, at);
    case '-':
      return finite(u - v, at);
    case '*':
      return finite(u * v, at);
    case '/':
      return finite(u / v, at);
    case '|':
      return finite(std::floor(u / v), at);
    default:
      return finite(u - v * std::floor(u / v), at);
  }
}

}  // namespace mtrain
