// Splits a chat template into tokens: text between tags, and the content of tags. Used by the
// parser only. Stateless functions; safe from any thread.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/chat/syntax.h"

namespace mtrain::chat {

struct Token {
  enum class Kind : uint8_t {
    text,
    open_output,
    close_output,
    open_block,
    close_block,
    name,
    string,
    integer,
    real,
    symbol,
    end
  };
  Kind kind = Kind::end;
  std::string text;  // of a string: its value without escapes
  Place place;
};

/// Throws Error(data) with the template's name and the location.
std::vector<Token> lex_template(std::string_view source, const std::string& name);

/// Throws Error(data) for a syntax error at a location.
[[noreturn]] void syntax_error(const std::string& name, Place place, const std::string& what,
                               const std::string& hint = {});

}  // namespace mtrain::chat
