// Tokens of a chat template: text between tags, and what stands in tags. Used by the parser alone.
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
  std::string text;  // of a string: what it stands for
  Place place;
};

/// Throws Error(data) with the template's name and the place.
std::vector<Token> lex_template(std::string_view source, const std::string& name);

/// An error of the template's author, with its place.
[[noreturn]] void syntax_error(const std::string& name, Place place, const std::string& what,
                               const std::string& hint = {});

}  // namespace mtrain::chat
