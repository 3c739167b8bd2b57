// Arithmetic on the values of expressions: integers are exact and an overflow is an error, nothing
// becomes infinite. Each function throws ExpressionError with the offset `at`. Stateless.
#pragma once
#include "mtrain/config/expression.h"

namespace mtrain {

/// "an integer", for messages.
const char* kind_of(const ExpressionValue& value);
/// An integer or a floating-point number.
bool is_numeric(const ExpressionValue& value);
/// REQUIRES: is_numeric(value).
double as_number(const ExpressionValue& value);
/// The value itself; an error where it is infinite or NaN.
ExpressionValue finite(double value, size_t at);

/// a + b, -, *, /, % or, for '|', a // b. Two texts can be added.
ExpressionValue arithmetic(char symbol, const ExpressionValue& a, const ExpressionValue& b,
                           size_t at);
/// base ** exponent.
ExpressionValue raise(const ExpressionValue& base, const ExpressionValue& exponent, size_t at);

}  // namespace mtrain
