// The syntax tree of a chat template. Nodes are plain data made by parse_template() and read by the
// interpreter; a tree is immutable once made and may be shared between threads.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mtrain/chat/value.h"

namespace mtrain::chat {

/// Where something stands in the template; lines and columns count from 1.
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
    both,
    either,
    choice
  };
  Kind kind = Kind::literal;
  Place place;
  Value value;       // literal
  std::string name;  // of a name, attribute, filter, test or operator
  std::vector<Expr>
      parts;  // operands: null where a slice leaves one out; map: key, value, key, value
  std::vector<std::string> operators;  // compare: parts[i] operators[i] parts[i + 1]
  CallArguments arguments;
  int height = 1;  // of the tree below, itself included
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
    stop,
    skip
  };
  Kind kind = Kind::text;
  Place place;
  std::string text;  // text; or the name of a macro
  std::vector<std::string>
      targets;  // loop and set: names; "space.name" for an attribute of a namespace
  std::vector<std::pair<std::string, Expr>> parameters;  // of a macro or caller, with defaults
  std::vector<Expr>
      expressions;  // condition: one for each branch; loop: what runs, and the filter or null
  std::vector<Body> bodies;  // condition: each branch, then else; loop: body, else
};

/// A template as HF's settings read it: trim_blocks, lstrip_blocks, one trailing newline dropped.
/// Throws Error(data) with name, line and column for what is no Jinja, or what this subset has not
/// (include, extends, …).
MT_API Body parse_template(std::string_view source, const std::string& name);

}  // namespace mtrain::chat
