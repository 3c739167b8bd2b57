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
    arithmetic,     // parts[0] symbol parts[1]; '|' is //
    power,          // parts[0] ** parts[1]
    comparison,     // parts[0] text parts[1]
    member,         // parts[0] in parts[1]
    conjunction,    // parts[0] and parts[1]
    disjunction,    // parts[0] or parts[1]
    choice          // parts[0] if parts[1] else parts[2]
  };
  Kind kind = Kind::literal;
  char symbol = 0;
  size_t at = 0, other_at = 0;  // the offsets of its errors; other_at: of parts[1] of and, or
  int depth = 0;                // the levels of nesting around it
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
