#include "mtrain/config/expression.h"

#include <cmath>
#include <limits>
#include <vector>

#include "mtrain/base/counted.h"
#include "mtrain/base/text.h"
#include "mtrain/config/expression_arithmetic.h"
#include "mtrain/config/scalar.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

constexpr int kMaxExpressionDepth = 64;     // of one expression
constexpr int kMaxEvaluationNesting = 256;  // of expressions that evaluate each other, in total

ExpressionValue widened(const ExpressionScalar& scalar) {
  return std::visit([](const auto& value) { return ExpressionValue(value); }, scalar);
}

/// Evaluates while it parses. Evaluates both branches of "if", so whether an expression has an
/// error does not depend on the condition.
class Evaluator {
 public:
  Evaluator(std::string_view text, const ExpressionScope& scope) : text_(text), scope_(scope) {}

  ExpressionValue run() {
    ExpressionValue value = conditional();
    blanks();
    if (at_ < text_.size()) fail(cat("'", visible(text_.substr(at_, 12)), "' is not allowed here"));
    return value;
  }

 private:
  using Value = ExpressionValue;

  /// A level of nesting, closed again also when an error passes through.
  class Level {
   public:
    explicit Level(Evaluator& evaluator)
        : own_(evaluator.depth_),
          all_(evaluator.scope_.nesting ? *evaluator.scope_.nesting : own_) {
      ++own_;
      if (&all_ != &own_) ++all_;
    }
    ~Level() {
      --own_;
      if (&all_ != &own_) --all_;
    }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    bool too_deep() const { return own_ > kMaxExpressionDepth || all_ > kMaxEvaluationNesting; }

   private:
    int &own_, &all_;
  };

  [[noreturn]] void fail(const std::string& message) const { throw ExpressionError(message, at_); }
  [[noreturn]] void fail_at(const std::string& message, size_t at) const {
    throw ExpressionError(message, at);
  }

  void blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n'))
      ++at_;
  }
  static bool name_character(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  }
  bool take(std::string_view symbol) {
    blanks();
    if (!text_.substr(at_).starts_with(symbol)) return false;
    at_ += symbol.size();
    return true;
  }
  bool take_word(std::string_view word) {
    blanks();
    if (!text_.substr(at_).starts_with(word)) return false;
    size_t end = at_ + word.size();
    if (end < text_.size() && (name_character(text_[end]) || text_[end] == '.')) return false;
    at_ = end;
    return true;
  }
  /// Takes a symbol unless it is the beginning of a longer one.
  bool take_single(char c, char not_before) {
    blanks();
    bool there = at_ < text_.size() && text_[at_] == c &&
                 (at_ + 1 >= text_.size() || text_[at_ + 1] != not_before);
    at_ += there;
    return there;
  }
  bool condition(const Value& value, size_t at) const {
    if (const bool* flag = std::get_if<bool>(&value)) return *flag;
    fail_at(cat("wanted true or false, got ", kind_of(value), " (", to_text(value), ")"), at);
  }
  Value conditional() {
    const Level level(*this);
    if (level.too_deep()) fail("nested too deeply");
    Value value = disjunction();
    if (take_word("if")) {
      size_t at = at_;
      bool chosen = condition(disjunction(), at);
      if (!take_word("else")) fail("an 'if' without an 'else'");
      Value other = conditional();
      if (!chosen) value = std::move(other);
    }
    return value;
  }

  Value disjunction() {
    Value value = conjunction();
    for (size_t at = at_; take_word("or"); at = at_) {
      bool left = condition(value, at), right = condition(conjunction(), at_);
      value = left || right;
    }
    return value;
  }

  Value conjunction() {
    Value value = negation();
    for (size_t at = at_; take_word("and"); at = at_) {
      bool left = condition(value, at), right = condition(negation(), at_);
      value = left && right;
    }
    return value;
  }

  Value negation() {
    bool negate = false;
    while (take_word("not")) negate = !negate;
    size_t at = at_;
    Value value = comparison();
    if (at == at_ || !negate) return value;
    return !condition(value, at);
  }

  Value comparison() {
    Value left = sum();
    blanks();
    size_t at = at_;
    for (std::string_view symbol : {"==", "!=", "<=", ">=", "<", ">"})
      if (take(symbol)) return compare(left, symbol, sum(), at);
    if (take_word("in")) return contains(sum(), left, at);
    return left;
  }

  Value contains(const Value& list, const Value& wanted, size_t at) const {
    const auto* items = std::get_if<ExpressionList>(&list);
    if (!items) fail_at(cat("'in' needs a list, got ", kind_of(list)), at);
    for (const auto& item : *items)
      if (std::get<bool>(compare(widened(item), "==", wanted, at))) return true;
    return false;
  }

  Value compare(const Value& a, std::string_view symbol, const Value& b, size_t at) const {
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

  Value sum() {
    Value value = product();
    for (;;) {
      blanks();
      size_t at = at_;
      if (take("+"))
        value = arithmetic('+', value, product(), at);
      else if (take("-"))
        value = arithmetic('-', value, product(), at);
      else
        return value;
    }
  }

  Value product() {
    Value value = unary();
    for (;;) {
      blanks();
      size_t at = at_;
      if (take("//"))
        value = arithmetic('|', value, unary(), at);
      else if (take("/"))
        value = arithmetic('/', value, unary(), at);
      else if (take("%"))
        value = arithmetic('%', value, unary(), at);
      else if (take_single('*', '*'))
        value = arithmetic('*', value, unary(), at);
      else
        return value;
    }
  }

  Value unary() {
    blanks();
    size_t at = at_;
    if (take("-")) {
      const Level level(*this);
      if (level.too_deep()) fail("nested too deeply");
      Value value = unary();
      return arithmetic('-', int64_t{0}, value, at);
    }
    return power();
  }

  Value power() {
    Value base = atom();
    blanks();
    size_t at = at_;
    if (!take("**")) return base;
    const Level level(*this);
    if (level.too_deep()) fail("nested too deeply");
    Value exponent = unary();
    return raise(base, exponent, at);
  }

  Value atom() {
    blanks();
    if (at_ >= text_.size()) fail("the expression is incomplete");
    char c = text_[at_];
    if (take("(")) {
      Value value = conditional();
      if (!take(")")) fail("a '(' without a ')'");
      return value;
    }
    if (take("[")) return list();
    if (text_.substr(at_).starts_with("${")) return reference();
    if (c == '\'' || c == '"') return quoted();
    if (std::isdigit(static_cast<unsigned char>(c)) || c == '.') return literal();
    if (name_character(c)) return named();
    fail(cat("'", visible(text_.substr(at_, 12)), "' is not allowed here"));
  }

  Value list() {
    ExpressionList items;
    while (!take("]")) {
      if (!items.empty() && !take(",")) fail("wanted ',' or ']'");
      size_t at = at_;
      Value item = conditional();
      if (std::holds_alternative<ExpressionList>(item)) fail_at("a list cannot contain a list", at);
      std::visit(
          [&](auto& value) {
            if constexpr (!std::is_same_v<std::decay_t<decltype(value)>, ExpressionList>)
              items.emplace_back(std::move(value));
          },
          item);
    }
    return items;
  }

  Value reference() {
    size_t begin = at_;
    int depth = 0;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '{') ++depth;
      if (text_[at_] != '}' || --depth > 0) continue;
      ++at_;
      return scope_.interpolation(text_.substr(begin, at_ - begin), begin);
    }
    fail_at("'${' without a '}'", begin);
  }

  Value quoted() {
    size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) fail("a quote that is not closed");
    std::string out(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return out;
  }

  Value literal() {
    size_t begin = at_;
    while (at_ < text_.size()) {
      char c = text_[at_];
      bool sign =
          (c == '+' || c == '-') && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E') && at_ > begin;
      if (!name_character(c) && c != '.' && !sign) break;
      ++at_;
    }
    std::string_view word = text_.substr(begin, at_ - begin);
    if (auto whole = parse_integer(word)) return *whole;
    auto number = resolve_scalar(word) == NodeKind::number ? parse_number(word) : std::nullopt;
    if (!number || !std::isfinite(*number))
      fail_at(cat("'", visible(word), "' is not a number"), begin);
    return *number;
  }

  Value named() {
    size_t begin = at_;
    while (at_ < text_.size() && (name_character(text_[at_]) || text_[at_] == '.')) ++at_;
    std::string_view name = text_.substr(begin, at_ - begin);
    if (name == "true" || name == "false") return name == "true";
    if (name == "null") return std::monostate();
    blanks();
    if (at_ < text_.size() && text_[at_] == '(') return call(name, begin);
    if (!take("??")) return scope_.name(name, begin);
    Value otherwise = unary();
    try {
      return scope_.name(name, begin);
    } catch (const AbsentName&) {
      return otherwise;
    }
  }

  Value call(std::string_view name, size_t begin) {
    take("(");
    std::vector<Value> arguments;
    while (!take(")")) {
      if (!arguments.empty() && !take(",")) fail("wanted ',' or ')'");
      arguments.push_back(conditional());
    }
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

  Value fold(char symbol, const ExpressionList& list, size_t at) const {
    Value result = symbol == '+' ? int64_t{0} : int64_t{1};
    for (const auto& item : list) result = arithmetic(symbol, result, widened(item), at);
    return result;
  }

  Value extreme(bool largest, const std::vector<Value>& values, size_t at) const {
    if (values.empty()) fail_at(cat(largest ? "max" : "min", " needs at least one value"), at);
    Value best = values[0];
    if (!is_numeric(best)) fail_at(cat("wanted numbers, got ", kind_of(best)), at);
    for (const auto& value : values)
      if (std::get<bool>(compare(value, largest ? ">" : "<", best, at))) best = value;
    return best;
  }

  Value rounding(std::string_view name, const Value& value, size_t at) const {
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

  std::string_view text_;
  const ExpressionScope& scope_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

ExpressionValue evaluate_expression(std::string_view text, const ExpressionScope& scope) {
  return Evaluator(text, scope).run();
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
