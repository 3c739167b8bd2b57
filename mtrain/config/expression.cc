#include "mtrain/config/expression.h"

#include <cmath>
#include <limits>
#include <vector>

#include "mtrain/base/counted.h"
#include "mtrain/base/text.h"
#include "mtrain/config/expression_arithmetic.h"
#include "mtrain/config/expression_term.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

constexpr int kMaxEvaluationNesting = 256;  // of expressions that evaluate each other, in total

using expression::Term;

ExpressionValue widened(const ExpressionScalar& scalar) {
  return std::visit([](const auto& value) { return ExpressionValue(value); }, scalar);
}

/// Evaluates both branches of "if" and both sides of "and" and "or", so whether an expression has
/// an error does not depend on the conditions.
class Evaluator {
 public:
  explicit Evaluator(const ExpressionScope& scope) : scope_(scope) {}

  ExpressionValue operator()(const Term& term) const { return value_of(term); }

 private:
  using Value = ExpressionValue;
  using Kind = Term::Kind;

  [[noreturn]] static void fail_at(const std::string& message, size_t at) {
    throw ExpressionError(message, at);
  }

  Value value_of(const Term& term) const {
    switch (term.kind) {
      case Kind::literal:
        return term.value;
      case Kind::list:
        return list(term);
      case Kind::name:
        return named(term);
      case Kind::interpolation:
        return looked_up(term, [&] { return scope_.interpolation(term.text, term.at); });
      case Kind::call:
        return call(term);
      case Kind::negation:
        return !condition(value_of(term.parts[0]), term.at);
      case Kind::arithmetic:
        return operations(term);
      case Kind::power: {
        const Value base = value_of(term.parts[0]);
        return raise(base, value_of(term.parts[1]), term.at);
      }
      case Kind::comparison: {
        const Value left = value_of(term.parts[0]);
        return compare(left, term.text, value_of(term.parts[1]), term.at);
      }
      case Kind::member: {
        const Value wanted = value_of(term.parts[0]);
        return contains(value_of(term.parts[1]), wanted, term.at);
      }
      case Kind::conjunction:
      case Kind::disjunction:
        return conditions(term);
      case Kind::choice: {
        Value value = value_of(term.parts[0]);
        const bool chosen = condition(value_of(term.parts[1]), term.at);
        Value other = value_of(term.parts[2]);
        return chosen ? value : other;
      }
    }
    return {};
  }

  Value operations(const Term& term) const {
    Value value = value_of(term.parts[0]);
    for (size_t i = 1; i < term.parts.size(); ++i)
      value = arithmetic(term.text[i - 1], value, value_of(term.parts[i]), term.places[i - 1]);
    return value;
  }

  Value conditions(const Term& term) const {
    Value value = value_of(term.parts[0]);
    for (size_t i = 1; i < term.parts.size(); ++i) {
      const bool left = condition(value, term.places[2 * i - 2]),
                 right = condition(value_of(term.parts[i]), term.places[2 * i - 1]);
      value = term.kind == Kind::conjunction ? left && right : left || right;
    }
    return value;
  }

  /// Calls the scope, which may evaluate further expressions at this depth.
  template <class Call>
  Value looked_up(const Term& term, const Call& call) const {
    struct Depth {
      int* all;
      int here;
      Depth(int* nesting, int depth) : all(nesting), here(depth) {
        if (all) *all += here;
      }
      ~Depth() {
        if (all) *all -= here;
      }
      Depth(const Depth&) = delete;
      Depth& operator=(const Depth&) = delete;
    } const depth(scope_.nesting, term.depth);
    return call();
  }

  Value named(const Term& term) const {
    auto value = [&] { return looked_up(term, [&] { return scope_.name(term.text, term.at); }); };
    if (term.parts.empty()) return value();
    Value otherwise = value_of(term.parts[0]);
    try {
      return value();
    } catch (const AbsentName&) {
      return otherwise;
    }
  }

  static bool condition(const Value& value, size_t at) {
    if (const bool* flag = std::get_if<bool>(&value)) return *flag;
    fail_at(cat("wanted true or false, got ", kind_of(value), " (", to_text(value), ")"), at);
  }

  static Value contains(const Value& list, const Value& wanted, size_t at) {
    const auto* items = std::get_if<ExpressionList>(&list);
    if (!items) fail_at(cat("'in' needs a list, got ", kind_of(list)), at);
    for (const auto& item : *items)
      if (std::get<bool>(compare(widened(item), "==", wanted, at))) return true;
    return false;
  }

  static Value compare(const Value& a, std::string_view symbol, const Value& b, size_t at) {
    int order = 0;
    if (is_numeric(a) && is_numeric(b)) {
      bool whole = std::holds_alternative<int64_t>(a) && std::holds_alternative<int64_t>(b);
      bool less = whole ? std::get<int64_t>(a) < std::get<int64_t>(b) : as_number(a) < as_number(b);
      bool more = whole ? std::get<int64_t>(a) > std::get<int64_t>(b) : as_number(a) > as_number(b);
      order = less ? -1 : more ? 1 : 0;
    } else if (symbol == "==" || symbol == "!=") {
      order = a == b ? 0 : 1;
    } else if (a.index() == b.index() && std::holds_alternative<std::string>(a)) {
      order = std::get<std::string>(a).compare(std::get<std::string>(b));
    } else {
      fail_at(cat("cannot compare ", kind_of(a), " with ", kind_of(b)), at);
    }
    if (symbol == "==") return order == 0;
    if (symbol == "!=") return order != 0;
    if (symbol == "<=") return order <= 0;
    if (symbol == ">=") return order >= 0;
    return symbol == "<" ? order < 0 : order > 0;
  }

  Value list(const Term& term) const {
    ExpressionList items;
    for (size_t i = 0; i < term.parts.size(); ++i) {
      Value item = value_of(term.parts[i]);
      if (std::holds_alternative<ExpressionList>(item))
        fail_at("a list cannot contain a list", term.places[i]);
      std::visit(
          [&](auto& value) {
            if constexpr (!std::is_same_v<std::decay_t<decltype(value)>, ExpressionList>)
              items.emplace_back(std::move(value));
          },
          item);
    }
    return items;
  }

  Value call(const Term& term) const {
    const std::string& name = term.text;
    const size_t begin = term.at;
    std::vector<Value> arguments;
    for (const Term& part : term.parts) arguments.push_back(value_of(part));
    auto want = [&](size_t count) {
      if (arguments.size() != count) fail_at(cat(name, " takes ", counted(count, "value")), begin);
    };
    const auto* list = arguments.size() == 1 ? std::get_if<ExpressionList>(&arguments[0]) : nullptr;
    if (name == "min" || name == "max")
      return extreme(name == "max", list ? widened_items(*list) : arguments, begin);
    if (name == "sum" || name == "product") {
      if (!list) fail_at(cat(name, " takes one list"), begin);
      return fold(name == "sum" ? '+' : '*', *list, begin);
    }
    if (name == "first") {
      if (!list || list->empty()) fail_at("first takes one non-empty list", begin);
      return widened(list->front());
    }
    if (name == "str") return want(1), to_text(arguments[0]);
    if (name == "len") {
      want(1);
      if (list) return static_cast<int64_t>(list->size());
      if (const auto* text = std::get_if<std::string>(&arguments[0]))
        return static_cast<int64_t>(text->size());
      fail_at(cat("len needs a text or a list, got ", kind_of(arguments[0])), begin);
    }
    for (std::string_view known : {"abs", "ceil", "floor", "round", "sqrt", "int", "float"})
      if (name == known) return want(1), rounding(name, arguments[0], begin);
    fail_at(cat("there is no function ", visible(name)), begin);
  }

  static std::vector<Value> widened_items(const ExpressionList& list) {
    std::vector<Value> out;
    for (const auto& item : list) out.push_back(widened(item));
    return out;
  }

  static Value fold(char symbol, const ExpressionList& list, size_t at) {
    Value result = symbol == '+' ? int64_t{0} : int64_t{1};
    for (const auto& item : list) result = arithmetic(symbol, result, widened(item), at);
    return result;
  }

  static Value extreme(bool largest, const std::vector<Value>& values, size_t at) {
    if (values.empty()) fail_at(cat(largest ? "max" : "min", " needs at least one value"), at);
    Value best = values[0];
    if (!is_numeric(best)) fail_at(cat("wanted numbers, got ", kind_of(best)), at);
    for (const auto& value : values)
      if (std::get<bool>(compare(value, largest ? ">" : "<", best, at))) best = value;
    return best;
  }

  static Value rounding(std::string_view name, const Value& value, size_t at) {
    if (!is_numeric(value)) fail_at(cat(name, " needs a number, got ", kind_of(value)), at);
    const auto* integer = std::get_if<int64_t>(&value);
    if (name == "float") return as_number(value);
    if (name == "sqrt") return finite(std::sqrt(as_number(value)), at);
    if (name == "abs") {
      if (!integer) return std::abs(std::get<double>(value));
      return *integer < 0 ? arithmetic('-', int64_t{0}, value, at) : value;
    }
    if (integer) return value;
    double x = std::get<double>(value);
    double rounded = name == "ceil"    ? std::ceil(x)
                     : name == "floor" ? std::floor(x)
                     : name == "int"   ? std::trunc(x)
                                       : std::nearbyint(x);
    if (std::abs(rounded) >= 9.2e18) fail_at("the result does not fit in 64 bits", at);
    return static_cast<int64_t>(rounded);
  }

  const ExpressionScope& scope_;
};

}  // namespace

struct Expression::Shared {
  expression::Parsed parsed;
};

Expression::Expression(std::string_view text)
    : shared_(std::make_shared<const Shared>(Shared{expression::parse(text)})) {}

ExpressionValue Expression::evaluate(const ExpressionScope& scope) const {
  if (scope.nesting && *scope.nesting + shared_->parsed.depth > kMaxEvaluationNesting)
    throw ExpressionError("nested too deeply", 0);
  return Evaluator(scope)(shared_->parsed.root);
}

const std::vector<std::string>& Expression::needed() const { return shared_->parsed.needed; }

ExpressionValue evaluate_expression(std::string_view text, const ExpressionScope& scope) {
  return Expression(text).evaluate(scope);
}

std::string to_text(const ExpressionValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* whole = std::get_if<int64_t>(&value)) return std::to_string(*whole);
  if (const auto* number = std::get_if<double>(&value)) return shortest(*number);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* list = std::get_if<ExpressionList>(&value)) {
    std::vector<std::string> items;
    for (const auto& item : *list) items.push_back(to_text(widened(item)));
    return cat("[", join(items, ", "), "]");
  }
  return "null";
}

}  // namespace mtrain
