// The terms of a parsed expression, between the parser (expression_parse.cc) and the evaluation
// (expression.cc). Values.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/config/expression.h"

namespace mtrain::expression {

struct Term {
  enum class Kind : unsigned char {
    literal,        // value
    list,           // parts; places: the offset of each
    name,           // text; one part: the value if the name is absent
    interpolation,  // text, with "${" and "}"
    call,           // text: the function; parts: its arguments
    negation,       // not parts[0]
    // Any number of operations of one precedence, from the left; a tree of them could be too deep.
    arithmetic,   // text: the operators between the parts, '|' for //; places: of each operator
    conjunction,  // parts[0] and parts[1] and …; places: of the operands of each `and`
    disjunction,  // the same with or
    power,        // parts[0] ** parts[1]
    comparison,   // parts[0] text parts[1]
    member,       // parts[0] in parts[1]
    choice        // parts[0] if parts[1] else parts[2]
  };
  Kind kind = Kind::literal;
  size_t at = 0;  // the offset of its errors
  int depth = 0;  // the levels of nesting around it
  std::string text = {};
  ExpressionValue value = {};
  std::vector<Term> parts = {};
  std::vector<size_t> places = {};
};

struct Parsed {
  Term root;
  int depth = 0;                         // the most levels of nesting
  std::vector<std::string> needed = {};  // names that no ?? follows, each once
};

/// Throws ExpressionError.
Parsed parse(std::string_view text);

}  // namespace mtrain::expression
