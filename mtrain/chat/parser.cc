// Statements of a chat template.
#include "parser.h"

#include <algorithm>

#include "mtrain/base/error.h"

namespace mtrain::chat {
namespace {

using SK = Statement::Kind;

class StatementParser {
 public:
  StatementParser(std::vector<Token> tokens, const std::string& name)
      : in_(std::move(tokens), name) {}

  Body run() {
    Body body = read_body({});
    if (in_.at(Token::Kind::end)) return body;
    in_.fail(cat("'", in_.peek().text, "' without its beginning"));
  }

 private:
  /// Statements up to a block whose name is one of `ends`; the block's "{%" is taken, its name is
  /// not.
  Body read_body(const std::vector<std::string_view>& ends) {
    ExpressionParser::Deeper deeper(in_);
    Body body;
    while (!in_.at(Token::Kind::end)) {
      if (in_.at(Token::Kind::text)) {
        Token token = in_.next();
        Statement text = make(SK::text, token.place);
        text.text = token.text;
        body.push_back(std::move(text));
      } else if (in_.at(Token::Kind::open_output)) {
        body.push_back(read_output());
      } else {
        in_.take(Token::Kind::open_block);
        const Token& word = in_.peek();
        if (std::find(ends.begin(), ends.end(), word.text) != ends.end()) return body;
        if (word.text.starts_with("end") || word.text == "else" || word.text == "elif") return body;
        body.push_back(read_block());
      }
    }
    return body;
  }

  static Statement make(SK kind, Place place) {
    Statement s;
    s.kind = kind;
    s.place = place;
    return s;
  }

  Statement read_output() {
    Statement s = make(SK::output, in_.next().place);
    s.expressions.push_back(in_.tuple());
    in_.take(Token::Kind::close_output);
    return s;
  }

  Statement read_block() {
    Token word = in_.take(Token::Kind::name);
    if (word.text == "if") return read_if(word.place);
    if (word.text == "for") return read_for(word.place);
    if (word.text == "set") return read_set(word.place);
    if (word.text == "macro") return read_macro(word.place);
    if (word.text == "call") return read_call(word.place);
    if (word.text == "filter") return read_filter(word.place);
    if (word.text == "generation") return read_generation(word.place);
    if (word.text == "break" || word.text == "continue") {
      if (loops_ == 0) in_.fail(cat("'", word.text, "' outside of a loop"));
      close_block();
      return make(word.text == "break" ? SK::stop : SK::skip, word.place);
    }
    syntax_error(in_.name(), word.place,
                 cat("'", printable(word.text), "' is not a statement of chat templates"),
                 "known: if, for, set, macro, call, filter, generation, raw, break, continue");
  }

  void close_block() { in_.take(Token::Kind::close_block); }
  void end_block(std::string_view word, Place begun) {
    if (in_.at(Token::Kind::end) || in_.peek().text != word)
      syntax_error(in_.name(), begun, cat("this block has no ", word),
                   in_.at(Token::Kind::end)
                       ? ""
                       : cat("'", printable(in_.peek().text), "' comes before it"));
    in_.next();
    close_block();
  }

  Statement read_if(Place place) {
    Statement s = make(SK::condition, place);
    while (true) {
      s.expressions.push_back(in_.tuple());
      close_block();
      s.bodies.push_back(read_body({"elif", "else", "endif"}));
      if (!in_.at(Token::Kind::name) || in_.peek().text != "elif") break;
      in_.next();
    }
    read_else(s);
    end_block("endif", place);
    return s;
  }

  void read_else(Statement& s) {
    if (!in_.at(Token::Kind::name) || in_.peek().text != "else") return;
    in_.next();
    close_block();
    s.bodies.push_back(read_body({"endif", "endfor"}));
  }

  Statement read_for(Place place) {
    Statement s = make(SK::loop, place);
    s.targets = read_targets();
    in_.take_word("in");
    s.expressions.push_back(in_.tuple(false));
    s.expressions.push_back(in_.take_word_if("if") ? in_.expression() : nullptr);
    if (in_.at(Token::Kind::name) && in_.peek().text == "recursive")
      in_.fail("recursive loops are not implemented", "call a macro instead");
    close_block();
    ++loops_;
    s.bodies.push_back(read_body({"else", "endfor"}));
    --loops_;
    read_else(s);
    end_block("endfor", place);
    return s;
  }

  /// "a, b" or "(a, b)", or "space.name".
  std::vector<std::string> read_targets() {
    std::vector<std::string> targets;
    bool bracket = in_.take_symbol_if("(");
    do {
      std::string target = in_.take(Token::Kind::name).text;
      if (in_.take_symbol_if(".")) target += "." + in_.take(Token::Kind::name).text;
      targets.push_back(std::move(target));
    } while (in_.take_symbol_if(","));
    if (bracket) in_.take_symbol(")");
    return targets;
  }

  Statement read_set(Place place) {
    Statement s = make(SK::set, place);
    s.targets = read_targets();
    if (in_.take_symbol_if("=")) {
      s.expressions.push_back(in_.tuple());
      close_block();
      return s;
    }
    s.kind = SK::set_block;
    s.expressions.push_back(in_.filters_of_block());
    close_block();
    s.bodies.push_back(read_body({"endset"}));
    end_block("endset", place);
    return s;
  }

  void read_parameters(Statement& s) {
    in_.take_symbol("(");
    while (!in_.take_symbol_if(")")) {
      std::string name = in_.take(Token::Kind::name).text;
      s.parameters.emplace_back(std::move(name),
                                in_.take_symbol_if("=") ? in_.expression() : nullptr);
      if (!in_.at_symbol(")")) in_.take_symbol(",");
    }
  }

  /// A macro does not see the loops around it.
  Body read_own_body(std::string_view end) {
    int outer = std::exchange(loops_, 0);
    Body body = read_body({end});
    loops_ = outer;
    return body;
  }

  Statement read_macro(Place place) {
    Statement s = make(SK::macro, place);
    s.text = in_.take(Token::Kind::name).text;
    read_parameters(s);
    close_block();
    s.bodies.push_back(read_own_body("endmacro"));
    end_block("endmacro", place);
    return s;
  }

  Statement read_call(Place place) {
    Statement s = make(SK::call_block, place);
    if (in_.at_symbol("(")) read_parameters(s);
    s.expressions.push_back(in_.expression());
    if (s.expressions[0]->kind != Expression::Kind::call)
      syntax_error(in_.name(), place, "a call block needs a call: {% call f() %}");
    close_block();
    s.bodies.push_back(read_own_body("endcall"));
    end_block("endcall", place);
    return s;
  }

  Statement read_filter(Place place) {
    Statement s = make(SK::filter_block, place);
    s.expressions.push_back(in_.filters_of_block(true));
    close_block();
    s.bodies.push_back(read_body({"endfilter"}));
    end_block("endfilter", place);
    return s;
  }

  Statement read_generation(Place place) {
    Statement s = make(SK::generation, place);
    close_block();
    s.bodies.push_back(read_body({"endgeneration"}));
    end_block("endgeneration", place);
    return s;
  }

  ExpressionParser in_;
  int loops_ = 0;
};

}  // namespace

Body parse_template(std::string_view source, const std::string& name) {
  return StatementParser(lex_template(source, name), name).run();
}

}  // namespace mtrain::chat
