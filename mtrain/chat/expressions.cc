#include <algorithm>
#include <charconv>

#include "mtrain/base/error.h"
#include "parser.h"

namespace mtrain::chat {

using EK = Expression::Kind;

Expr ExpressionParser::make(EK kind, Place place) {
  auto e = std::make_unique<Expression>();
  e->kind = kind;
  e->place = place;
  return e;
}

Expr ExpressionParser::make(EK kind, Place place, Expr first, Expr second) const {
  Expr e = make(kind, place);
  add(*e, std::move(first));
  if (second) add(*e, std::move(second));
  return e;
}

void ExpressionParser::grow(Expression& to, const Expression& part) const {
  to.height = std::max(to.height, part.height + 1);
  if (to.height > kHeight) fail("the expression is too long");
}

void ExpressionParser::add(Expression& to, Expr part) const {
  if (part) grow(to, *part);
  to.parts.push_back(std::move(part));
}

void ExpressionParser::add(Expression& to, CallArguments arguments) const {
  for (const auto& argument : arguments.positional) grow(to, *argument);
  for (const auto& [name, argument] : arguments.named) grow(to, *argument);
  to.arguments = std::move(arguments);
}

void ExpressionParser::fail(const std::string& what, const std::string& hint) const {
  syntax_error(name_, peek().place, what, hint);
}

namespace {

std::string shown(const Token& token) {
  switch (token.kind) {
    case Token::Kind::end:
      return "the end of the template";
    case Token::Kind::close_block:
      return "%}";
    case Token::Kind::close_output:
      return "}}";
    case Token::Kind::open_block:
      return "{%";
    case Token::Kind::open_output:
      return "{{";
    case Token::Kind::text:
      return "text";
    default:
      return cat("'", printable(token.text, 40), "'");
  }
}

}  // namespace

Token ExpressionParser::take(Token::Kind kind) {
  if (!at(kind)) {
    Token wanted;
    wanted.kind = kind;
    fail(cat("wanted ", kind == Token::Kind::name ? "a name" : shown(wanted), ", got ",
             shown(peek())));
  }
  return next();
}

void ExpressionParser::take_symbol(std::string_view symbol) {
  if (!take_symbol_if(symbol)) fail(cat("wanted '", symbol, "', got ", shown(peek())));
}

bool ExpressionParser::take_symbol_if(std::string_view symbol) {
  if (!at_symbol(symbol)) return false;
  next();
  return true;
}

void ExpressionParser::take_word(std::string_view word) {
  if (!take_word_if(word)) fail(cat("wanted '", word, "', got ", shown(peek())));
}

bool ExpressionParser::take_word_if(std::string_view word) {
  if (!at(Token::Kind::name) || peek().text != word) return false;
  next();
  return true;
}

Expr ExpressionParser::tuple(bool choice) {
  Place place = peek().place;
  Expr first = expression(choice);
  if (!at_symbol(",")) return first;
  Expr e = make(EK::tuple, place, std::move(first));
  while (take_symbol_if(",")) {
    if (at(Token::Kind::close_output) || at(Token::Kind::close_block)) break;
    add(*e, expression(choice));
  }
  return e;
}

Expr ExpressionParser::expression(bool choice) {
  Deeper deeper(*this);
  Expr value = either();
  while (choice && at(Token::Kind::name) && peek().text == "if") {
    Place place = next().place;
    Expr condition = either();
    Expr e = make(EK::choice, place, std::move(condition), std::move(value));
    if (take_word_if("else")) add(*e, expression());
    value = std::move(e);
  }
  return value;
}

Expr ExpressionParser::either() {
  Expr left = both();
  while (at(Token::Kind::name) && peek().text == "or") {
    Place place = next().place;
    left = make(EK::either, place, std::move(left), both());
  }
  return left;
}

Expr ExpressionParser::both() {
  Expr left = negation();
  while (at(Token::Kind::name) && peek().text == "and") {
    Place place = next().place;
    left = make(EK::both, place, std::move(left), negation());
  }
  return left;
}

Expr ExpressionParser::negation() {
  if (!at(Token::Kind::name) || peek().text != "not") return compare();
  Deeper deeper(*this);
  Place place = next().place;
  Expr e = make(EK::unary, place, negation());
  e->name = "not";
  return e;
}

/// Takes the comparison operator that begins here; empty when there is none.
std::string ExpressionParser::comparison() {
  if (at(Token::Kind::symbol)) {
    for (const char* op : {"==", "!=", "<=", ">=", "<", ">"})
      if (take_symbol_if(op)) return op;
    return "";
  }
  if (take_word_if("in")) return "in";
  if (at(Token::Kind::name) && peek().text == "not" && peek(1).kind == Token::Kind::name &&
      peek(1).text == "in") {
    next(), next();
    return "not in";
  }
  return "";
}

Expr ExpressionParser::compare() {
  Place place = peek().place;
  Expr left = binary(0);
  Expr chain;
  for (std::string op = comparison(); !op.empty(); op = comparison()) {
    if (!chain) chain = make(EK::compare, place, std::move(left));
    chain->operators.push_back(std::move(op));
    add(*chain, binary(0));
  }
  return chain ? std::move(chain) : std::move(left);
}

/// Levels: 0 sums, 1 joined texts, 2 products, 3 powers.
bool ExpressionParser::at_operator(int level) const {
  if (!at(Token::Kind::symbol)) return false;
  const std::string& s = peek().text;
  switch (level) {
    case 0:
      return s == "+" || s == "-";
    case 1:
      return s == "~";
    case 2:
      return s == "*" || s == "/" || s == "//" || s == "%";
    default:
      return s == "**";
  }
}

Expr ExpressionParser::binary(int level) {
  if (level > 3) return unary();
  Expr left = binary(level + 1);
  while (at_operator(level)) {
    Token op = next();
    left = make(EK::binary, op.place, std::move(left), binary(level + 1));
    left->name = op.text;
  }
  return left;
}

Expr ExpressionParser::unary(bool with_filter) {
  Deeper deeper(*this);
  Expr e;
  if (at_symbol("-") || at_symbol("+")) {
    Token op = next();
    e = make(EK::unary, op.place, unary(false));
    e->name = op.text;
  } else {
    e = primary();
  }
  e = postfix(std::move(e));
  return with_filter ? filtered(std::move(e)) : std::move(e);
}

Expr ExpressionParser::name_or_constant() {
  Token token = next();
  Expr e = make(EK::literal, token.place);
  const std::string& word = token.text;
  if (word == "true" || word == "True" || word == "false" || word == "False") {
    e->value = Value::boolean(word == "true" || word == "True");
  } else if (word != "none" && word != "None") {
    e->kind = EK::name;
    e->name = word;
  }
  return e;
}

Expr ExpressionParser::primary() {
  const Token& token = peek();
  Expr e = make(EK::literal, token.place);
  switch (token.kind) {
    case Token::Kind::name:
      return name_or_constant();
    case Token::Kind::string: {
      std::string text;
      while (at(Token::Kind::string))
        text += next().text;  // adjacent strings are joined, as in Python
      e->value = Value::text(Text(text));
      return e;
    }
    case Token::Kind::integer: {
      int64_t number = 0;
      std::string digits = next().text;
      if (std::from_chars(digits.data(), digits.data() + digits.size(), number).ec != std::errc())
        syntax_error(name_, e->place, cat("the number ", printable(digits, 40), " is too large"));
      e->value = Value::integer(number);
      return e;
    }
    case Token::Kind::real: {
      double number = 0;
      std::string digits = next().text;
      if (std::from_chars(digits.data(), digits.data() + digits.size(), number).ec != std::errc())
        syntax_error(name_, e->place,
                     cat("the number ", printable(digits, 40), " is outside of a double's range"));
      e->value = Value::real(number);
      return e;
    }
    default:
      break;
  }
  if (at_symbol("(")) return brackets();
  if (at_symbol("[")) return list();
  if (at_symbol("{")) return map();
  fail(cat("wanted an expression, got ", shown(token)));
}

Expr ExpressionParser::brackets() {
  Place place = next().place;
  if (take_symbol_if(")")) return make(EK::tuple, place);
  Expr first = expression();
  if (take_symbol_if(")")) return first;
  Expr e = make(EK::tuple, place, std::move(first));
  while (take_symbol_if(",")) {
    if (at_symbol(")")) break;
    add(*e, expression());
  }
  take_symbol(")");
  return e;
}

Expr ExpressionParser::list() {
  Expr e = make(EK::list, next().place);
  while (!take_symbol_if("]")) {
    add(*e, expression());
    if (!at_symbol("]")) take_symbol(",");
  }
  return e;
}

Expr ExpressionParser::map() {
  Expr e = make(EK::map, next().place);
  while (!take_symbol_if("}")) {
    add(*e, expression());
    take_symbol(":");
    add(*e, expression());
    if (!at_symbol("}")) take_symbol(",");
  }
  return e;
}

Expr ExpressionParser::postfix(Expr base) {
  while (at(Token::Kind::symbol)) {
    Place place = peek().place;
    if (take_symbol_if(".")) {
      bool index = at(Token::Kind::integer);  // x.0 is x[0]
      Token token = index ? next() : take(Token::Kind::name);
      base = make(index ? EK::item : EK::attribute, place, std::move(base));
      base->name = token.text;
      if (!index) continue;
      add(*base, make(EK::literal, place));
      base->parts.back()->value = Value::integer(std::atoll(token.text.c_str()));
    } else if (take_symbol_if("[")) {
      base = subscript(std::move(base), place);
    } else if (at_symbol("(")) {
      base = make(EK::call, place, std::move(base));
      add(*base, arguments());
    } else {
      break;
    }
  }
  return base;
}

Expr ExpressionParser::subscript(Expr base, Place place) {
  auto bound = [this]() -> Expr {
    return at_symbol(":") || at_symbol("]") ? nullptr : expression();
  };
  Expr first = bound();
  if (!at_symbol(":")) {
    if (!first) fail("wanted an index");
    take_symbol("]");
    return make(EK::item, place, std::move(base), std::move(first));
  }
  Expr e = make(EK::slice, place, std::move(base));
  add(*e, std::move(first));
  for (int i = 0; i < 2; ++i) add(*e, take_symbol_if(":") ? bound() : nullptr);
  take_symbol("]");
  return e;
}

CallArguments ExpressionParser::arguments() {
  CallArguments out;
  take_symbol("(");
  while (!take_symbol_if(")")) {
    if (at_symbol("*") || at_symbol("**")) fail("arguments by * and ** are not implemented");
    bool named =
        at(Token::Kind::name) && peek(1).kind == Token::Kind::symbol && peek(1).text == "=";
    if (named) {
      std::string name = next().text;
      next();
      out.named.emplace_back(std::move(name), expression());
    } else {
      if (!out.named.empty()) fail("a positional argument after a named one");
      out.positional.push_back(expression());
    }
    if (!at_symbol(")")) take_symbol(",");
  }
  return out;
}

Expr ExpressionParser::filtered(Expr base) {
  while (true) {
    if (take_symbol_if("|")) {
      base = filter(std::move(base));
    } else if (at(Token::Kind::name) && peek().text == "is") {
      base = test(std::move(base));
    } else if (at_symbol("(")) {  // after a filter or test
      Place place = peek().place;
      base = make(EK::call, place, std::move(base));
      add(*base, arguments());
    } else {
      return base;
    }
  }
}

Expr ExpressionParser::filter(Expr base) {
  Token name = take(Token::Kind::name);
  Expr e = make(EK::filter, name.place);
  add(*e, std::move(base));
  e->name = name.text;
  if (at_symbol("(")) add(*e, arguments());
  return e;
}

Expr ExpressionParser::test(Expr base) {
  Place place = next().place;
  bool negative = take_word_if("not");
  Expr e = make(EK::test, place, std::move(base));
  e->name = take(Token::Kind::name).text;
  bool begins_argument = at(Token::Kind::string) || at(Token::Kind::integer) ||
                         at(Token::Kind::real) || at_symbol("[") || at_symbol("{");
  if (at(Token::Kind::name)) {
    static constexpr std::string_view kFollow[] = {"else", "or", "and", "is", "if", "in", "not"};
    begins_argument =
        std::find(std::begin(kFollow), std::end(kFollow), peek().text) == std::end(kFollow);
  }
  if (at_symbol("(")) {
    add(*e, arguments());
  } else if (begins_argument) {
    CallArguments argument;
    argument.positional.push_back(postfix(primary()));
    add(*e, std::move(argument));
  }
  if (!negative) return e;
  Expr no = make(EK::unary, place, std::move(e));
  no->name = "not";
  return no;
}

Expr ExpressionParser::filters_of_block(bool first_without_bar) {
  Expr value;  // stands for the block's text, which the interpreter supplies
  if (first_without_bar) value = filter(nullptr);
  while (take_symbol_if("|")) value = filter(std::move(value));
  return value;
}

}  // namespace mtrain::chat
