// The parser of expressions: builds the terms that expression.cc evaluates.
#include <algorithm>
#include <cmath>
#include <vector>

#include "mtrain/base/text.h"
#include "mtrain/config/expression_term.h"
#include "mtrain/config/scalar.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain::expression {
namespace {

constexpr int kMaxExpressionDepth = 64;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Parsed run() {
    Parsed out;
    out.root = conditional();
    blanks();
    if (at_ < text_.size()) fail(cat("'", visible(text_.substr(at_, 12)), "' is not allowed here"));
    out.depth = deepest_;
    out.needed = std::move(needed_);
    return out;
  }

 private:
  using Kind = Term::Kind;

  /// A level of nesting, closed again also when an error passes through.
  class Level {
   public:
    explicit Level(Parser& parser) : depth_(parser.depth_) {
      parser.deepest_ = std::max(parser.deepest_, ++depth_);
      if (depth_ <= kMaxExpressionDepth) return;
      --depth_;
      parser.fail("nested too deeply");
    }
    ~Level() { --depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    int& depth_;
  };

  [[noreturn]] void fail(const std::string& message) const { throw ExpressionError(message, at_); }
  [[noreturn]] static void fail_at(const std::string& message, size_t at) {
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
  Term term(Kind kind, size_t at, std::vector<Term> parts = {}) const {
    return {.kind = kind, .at = at, .depth = depth_, .parts = std::move(parts)};
  }
  static std::vector<Term> both(Term left, Term right) {
    std::vector<Term> out;
    out.push_back(std::move(left)), out.push_back(std::move(right));
    return out;
  }

  Term conditional() {
    const Level level(*this);
    Term value = disjunction();
    if (!take_word("if")) return value;
    const size_t at = at_;
    std::vector<Term> parts = both(std::move(value), disjunction());
    if (!take_word("else")) fail("an 'if' without an 'else'");
    parts.push_back(conditional());
    return term(Kind::choice, at, std::move(parts));
  }

  /// Adds an operand to a chain of operations, which begins with the first one.
  void extend(Term& value, bool& chained, Kind kind, size_t at, Term next) const {
    if (!chained) {
      Term chain = term(kind, at);
      chain.parts.push_back(std::move(value));
      value = std::move(chain);
      chained = true;
    }
    value.parts.push_back(std::move(next));
  }

  /// Operands with a word between them: `and`, `or`.
  template <class Operand>
  Term conditions(Kind kind, std::string_view word, const Operand& operand) {
    Term value = operand();
    bool chained = false;
    for (size_t at = at_; take_word(word); at = at_) {
      extend(value, chained, kind, at, operand());
      value.places.push_back(at), value.places.push_back(at_);
    }
    return value;
  }

  Term disjunction() {
    return conditions(Kind::disjunction, "or", [this] { return conjunction(); });
  }

  Term conjunction() {
    return conditions(Kind::conjunction, "and", [this] { return negation(); });
  }

  Term negation() {
    bool negate = false;
    while (take_word("not")) negate = !negate;
    const size_t at = at_;
    Term value = comparison();
    if (!negate) return value;
    Term out = term(Kind::negation, at);
    out.parts.push_back(std::move(value));
    return out;
  }

  Term comparison() {
    Term left = sum();
    blanks();
    const size_t at = at_;
    for (std::string_view symbol : {"==", "!=", "<=", ">=", "<", ">"})
      if (take(symbol)) {
        Term out = term(Kind::comparison, at, both(std::move(left), sum()));
        out.text = symbol;
        return out;
      }
    if (take_word("in")) return term(Kind::member, at, both(std::move(left), sum()));
    return left;
  }

  /// Operands with an operator between them. `take_operator()`: its symbol; 0: none.
  template <class Operator, class Operand>
  Term operations(const Operator& take_operator, const Operand& operand) {
    Term value = operand();
    bool chained = false;
    for (;;) {
      blanks();
      const size_t at = at_;
      const char symbol = take_operator();
      if (symbol == 0) return value;
      extend(value, chained, Kind::arithmetic, at, operand());
      value.text += symbol, value.places.push_back(at);
    }
  }

  Term sum() {
    return operations([this] { return take("+")   ? '+'
                                      : take("-") ? '-'
                                                  : char{0}; },
                      [this] { return product(); });
  }

  Term product() {
    return operations(
        [this] {
          return take("//")              ? '|'
                 : take("/")             ? '/'
                 : take("%")             ? '%'
                 : take_single('*', '*') ? '*'
                                         : char{0};
        },
        [this] { return unary(); });
  }

  Term unary() {
    blanks();
    const size_t at = at_;
    if (!take("-")) return power();
    const Level level(*this);
    Term out = term(Kind::arithmetic, at, both(literal_term(int64_t{0}, at), unary()));
    out.text = "-", out.places = {at};
    return out;
  }

  Term power() {
    Term base = atom();
    blanks();
    const size_t at = at_;
    if (!take("**")) return base;
    const Level level(*this);
    return term(Kind::power, at, both(std::move(base), unary()));
  }

  Term atom() {
    blanks();
    if (at_ >= text_.size()) fail("the expression is incomplete");
    const char c = text_[at_];
    if (take("(")) {
      Term value = conditional();
      if (!take(")")) fail("a '(' without a ')'");
      return value;
    }
    if (take("[")) return list();
    if (text_.substr(at_).starts_with("${")) return reference();
    if (c == '\'' || c == '"') return quoted();
    if (std::isdigit(static_cast<unsigned char>(c)) || c == '.') return number();
    if (name_character(c)) return named();
    fail(cat("'", visible(text_.substr(at_, 12)), "' is not allowed here"));
  }

  Term list() {
    Term out = term(Kind::list, at_);
    while (!take("]")) {
      if (!out.parts.empty() && !take(",")) fail("wanted ',' or ']'");
      out.places.push_back(at_);
      out.parts.push_back(conditional());
    }
    return out;
  }

  Term reference() {
    const size_t begin = at_;
    int depth = 0;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '{') ++depth;
      if (text_[at_] != '}' || --depth > 0) continue;
      ++at_;
      Term out = term(Kind::interpolation, begin);
      out.text = text_.substr(begin, at_ - begin);
      return out;
    }
    fail_at("'${' without a '}'", begin);
  }

  Term literal_term(ExpressionValue value, size_t at) const {
    Term out = term(Kind::literal, at);
    out.value = std::move(value);
    return out;
  }

  Term quoted() {
    const size_t begin = at_, end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) fail("a quote that is not closed");
    at_ = end + 1;
    return literal_term(std::string(text_.substr(begin + 1, end - begin - 1)), begin);
  }

  Term number() {
    const size_t begin = at_;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      const bool sign =
          (c == '+' || c == '-') && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E') && at_ > begin;
      if (!name_character(c) && c != '.' && !sign) break;
      ++at_;
    }
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (auto whole = parse_integer(word)) return literal_term(*whole, begin);
    auto number = resolve_scalar(word) == NodeKind::number ? parse_number(word) : std::nullopt;
    if (!number || !std::isfinite(*number))
      fail_at(cat("'", visible(word), "' is not a number"), begin);
    return literal_term(*number, begin);
  }

  Term named() {
    const size_t begin = at_;
    while (at_ < text_.size() && (name_character(text_[at_]) || text_[at_] == '.')) ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (name == "true" || name == "false") return literal_term(name == "true", begin);
    if (name == "null") return literal_term(std::monostate(), begin);
    blanks();
    const bool call = at_ < text_.size() && text_[at_] == '(';
    Term out = term(call ? Kind::call : Kind::name, begin);
    out.text = name;
    if (call)
      arguments(out);
    else if (take("??"))
      otherwise(out);
    else if (std::find(needed_.begin(), needed_.end(), out.text) == needed_.end())
      needed_.push_back(out.text);
    return out;
  }

  void otherwise(Term& name) {
    const Level level(*this);
    name.parts.push_back(unary());
  }

  void arguments(Term& call) {
    take("(");
    while (!take(")")) {
      if (!call.parts.empty() && !take(",")) fail("wanted ',' or ')'");
      call.parts.push_back(conditional());
    }
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0, deepest_ = 0;
  std::vector<std::string> needed_;
};

}  // namespace

Parsed parse(std::string_view text) { return Parser(text).run(); }

}  // namespace mtrain::expression
