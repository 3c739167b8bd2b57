// Parses the expressions of a chat template by recursive descent with Jinja's precedences. Used by
// the parser of statements only. An object serves one thread; it owns its tokens.
#pragma once
#include <algorithm>

#include "mtrain/chat/lexer.h"

namespace mtrain::chat {

class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, const std::string& name)
      : tokens_(std::move(tokens)), name_(name) {}

  /// One expression; `choice`: with "a if b else c".
  Expr expression(bool choice = true);
  /// One expression, or a tuple without brackets.
  Expr tuple(bool choice = true);
  /// "| f | g(x)" after the names of a set block, or "f | g" of a filter block: filters without a
  /// written input; null when there are none.
  Expr filters_of_block(bool first_without_bar = false);

  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  Token next() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_.back(); }
  bool at(Token::Kind kind) const { return peek().kind == kind; }
  bool at_symbol(std::string_view symbol) const {
    return at(Token::Kind::symbol) && peek().text == symbol;
  }
  Token take(Token::Kind kind);
  void take_symbol(std::string_view symbol);
  bool take_symbol_if(std::string_view symbol);
  void take_word(std::string_view word);
  bool take_word_if(std::string_view word);
  [[noreturn]] void fail(const std::string& what, const std::string& hint = {}) const;
  const std::string& name() const { return name_; }

  /// Counts the depth of recursion and refuses input that would overflow the stack.
  class Deeper {
   public:
    explicit Deeper(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.depth_ > kDepth)
        parser_.fail("brackets or blocks nested too deeply (at most 98 brackets or 198 blocks)");
    }
    ~Deeper() { --parser_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    ExpressionParser& parser_;
  };

 private:
  static constexpr int kDepth = 200, kHeight = 1500;
  Expr either();
  Expr both();
  Expr negation();
  Expr compare();
  Expr binary(int level);
  Expr unary(bool with_filter = true);
  Expr primary();
  Expr name_or_constant();
  Expr brackets();
  Expr list();
  Expr map();
  Expr postfix(Expr base);
  Expr subscript(Expr base, Place place);
  Expr filtered(Expr base);
  Expr filter(Expr base);
  Expr test(Expr base);
  CallArguments arguments();
  bool at_operator(int level) const;
  std::string comparison();
  static Expr make(Expression::Kind kind, Place place);
  Expr make(Expression::Kind kind, Place place, Expr first, Expr second = nullptr) const;
  /// Adds a part or arguments to an expression; refuses trees that are too deep to be traversed.
  void add(Expression& to, Expr part) const;
  void add(Expression& to, CallArguments arguments) const;
  void grow(Expression& to, const Expression& part) const;

  std::vector<Token> tokens_;
  std::string name_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace mtrain::chat
