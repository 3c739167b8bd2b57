#include "mtrain/config/interpolate_text.h"

#include <cctype>
#include <string>

#include "mtrain/config/interpolate.h"

namespace mtrain {

size_t closing_brace(std::string_view text, size_t begin) {
  int depth = 0;
  char quote = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    char c = text[i];
    if (c == '\\')
      ++i;
    else if (quote != 0)
      quote = c == quote ? 0 : quote;
    else if ((c == '\'' || c == '"') && depth > 0)
      quote = c;
    else if (c == '{')
      ++depth;
    else if (c == '}' && --depth == 0)
      return i;
  }
  return std::string_view::npos;
}

size_t resolver_colon(std::string_view body) {
  for (size_t i = 0; i < body.size(); ++i) {
    if (body[i] == ':') return i;
    bool name = std::isalnum(static_cast<unsigned char>(body[i])) || body[i] == '_' ||
                body[i] == '.' || body[i] == '-';
    if (!name || (i == 0 && body[i] == '.')) break;
  }
  return std::string_view::npos;
}

bool has_interpolation(std::string_view text) { return text.find("${") != std::string_view::npos; }

std::string escape_interpolation(std::string_view literal) {
  std::string out;
  size_t slashes = 0;
  for (size_t i = 0; i < literal.size(); ++i) {
    if (literal.substr(i).starts_with("${")) out.append(slashes + 1, '\\');
    slashes = literal[i] == '\\' ? slashes + 1 : 0;
    out += literal[i];
  }
  return out;
}

}  // namespace mtrain
