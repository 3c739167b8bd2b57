// The syntax tree of a chat template. parse_template() builds the nodes and the interpreter reads
// them. A tree owns its nodes; it is not changed after parsing, so threads may share it.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mtrain/chat/value.h"

namespace mtrain::chat {

/// A location in the template; lines and columns count from 1.
struct Place {
  int line = 1, column = 1;
};

struct Expression;
using Expr = std::unique_ptr<Expression>;

/// `f(a, b, name=c)`, and the arguments of filters and tests.
struct CallArguments {
  std::vector<Expr> positional;
  std::vector<std::pair<std::string, Expr>> named;
};

struct Expression {
  enum class Kind : uint8_t {
    literal,
    name,
    list,
    tuple,
    map,
    attribute,
    item,
    slice,
    call,
    filter,
    test,
    unary,
    binary,
    compare,
    both,    // a and b
    either,  // a or b
    choice   // a if b else c
  };
  Kind kind = Kind::literal;
  Place place;
  Value value;       // literal
  std::string name;  // of a name, attribute, filter, test or operator
  std::vector<Expr>
      parts;  // operands, null for an omitted part of a slice; map: key, value, key, value
  std::vector<std::string> operators;  // compare: parts[i] operators[i] parts[i + 1]
  CallArguments arguments;
  int height = 1;  // of the subtree, including this node
};

struct Statement;
using Body = std::vector<Statement>;

struct Statement {
  enum class Kind : uint8_t {
    text,
    output,
    condition,
    loop,
    set,
    set_block,
    macro,
    call_block,
    filter_block,
    generation,
    stop,  // break
    skip   // continue
  };
  Kind kind = Kind::text;
  Place place;
  std::string text;  // text; or the name of a macro
  std::vector<std::string>
      targets;  // loop and set: names; "space.name" for an attribute of a namespace
  std::vector<std::pair<std::string, Expr>> parameters;  // of a macro or caller, with defaults
  std::vector<Expr>
      expressions;  // condition: one for each branch; loop: the iterable, and the filter or null
  std::vector<Body> bodies;  // condition: each branch, then else; loop: body, else
};

/// Parses a template with Hugging Face's settings: trim_blocks, lstrip_blocks, one trailing newline
/// dropped. Throws Error(data) with name, line and column for invalid Jinja and for parts of Jinja
/// that are not supported (include, extends, …).
MT_API Body parse_template(std::string_view source, const std::string& name);

}  // namespace mtrain::chat
