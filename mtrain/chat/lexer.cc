#include "mtrain/chat/lexer.h"

#include <array>
#include <cctype>

#include "mtrain/base/error.h"

namespace mtrain::chat {

void syntax_error(const std::string& name, Place place, const std::string& what,
                  const std::string& hint) {
  throw Error(
      ErrorClass::data,
      cat("chat template ", printable(name), ":", place.line, ":", place.column, ": ", what), hint);
}

namespace {

bool blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}
bool begins_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool in_name(char c) { return begins_name(c) || std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// Normalizes line ends to "\n" and drops the last one.
std::string normalised(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

void append_utf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& name)
      : source_(normalised(source)), name_(name) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_text();
    add(Token::Kind::end, "");
    return std::move(tokens_);
  }

 private:
  char peek(size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  bool starts(std::string_view what) const {
    return std::string_view(source_).substr(at_, what.size()) == what;
  }
  void advance(size_t count) {
    for (size_t i = 0; i < count && at_ < source_.size(); ++i, ++at_) {
      ++place_.column;
      if (source_[at_] == '\n') ++place_.line, place_.column = 1;
    }
  }
  void add(Token::Kind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), place_});
  }
  [[noreturn]] void fail(const std::string& what, const std::string& hint = {}) const {
    syntax_error(name_, place_, what, hint);
  }

  /// The next tag's start, or the end.
  size_t next_tag() const {
    for (size_t i = at_; i + 1 < source_.size(); ++i)
      if (source_[i] == '{' &&
          (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#'))
        return i;
    return source_.size();
  }

  /// How much of the text before a tag is kept: `{%-` removes white space, and a block alone on its
  /// line removes its indentation.
  size_t kept(size_t tag) const {
    size_t end = tag;
    if (tag >= source_.size()) return end;
    char mark = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (mark == '-') {
      while (end > at_ && blank(source_[end - 1])) --end;
    } else if (source_[tag + 1] != '{' && mark != '+') {
      size_t line = end;
      while (line > at_ && (source_[line - 1] == ' ' || source_[line - 1] == '\t')) --line;
      bool begins_line = line == 0 || source_[line - 1] == '\n';
      if (begins_line) end = line;
    }
    return end;
  }

  void read_text() {
    size_t tag = next_tag(), end = kept(tag);
    if (end > at_) add(Token::Kind::text, source_.substr(at_, end - at_));
    advance(tag - at_);
    if (at_ < source_.size()) read_tag();
  }

  void read_tag() {
    char kind = peek(1);
    if (kind == '#') return read_comment();
    if (kind == '%' && read_raw()) return;
    add(kind == '{' ? Token::Kind::open_output : Token::Kind::open_block, "");
    advance(2);
    if (peek() == '-' || peek() == '+') advance(1);
    const char* close = kind == '{' ? "}}" : "%}";
    nesting_.clear();
    while (true) {
      while (blank(peek()) && at_ < source_.size()) advance(1);
      if (at_ >= source_.size()) fail(cat("the tag is not closed by ", close));
      if (nesting_.empty() &&
          (starts(close) || ((peek() == '-' || peek() == '+') && at_ + 1 < source_.size() &&
                             source_.compare(at_ + 1, 2, close) == 0)))
        break;
      read_token();
    }
    add(kind == '{' ? Token::Kind::close_output : Token::Kind::close_block, "");
    close_tag(kind != '{');
  }

  /// Skips white space after "-}", and one line end after a block.
  void close_tag(bool block) {
    char mark = peek();
    bool marked = mark == '-' || mark == '+';
    advance(marked ? 3 : 2);
    if (mark == '-')
      while (at_ < source_.size() && blank(peek())) advance(1);
    else if (block && mark != '+' && peek() == '\n')
      advance(1);
  }

  void read_comment() {
    size_t end = source_.find("#}", at_ + 2);
    if (end == std::string::npos) fail("the comment is not closed by #}");
    char mark = source_[end - 1];
    bool marked = end > at_ + 2 && (mark == '-' || mark == '+');
    advance(end - at_ - (marked ? 1 : 0));
    close_tag(true);
  }

  /// "{% raw %} … {% endraw %}" is text.
  bool read_raw() {
    auto word_tag =
        [this](size_t from,
               std::string_view word) -> size_t {  // the end of "{% word %}" at `from`, or 0
      size_t i = from + 2;
      if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) ++i;
      while (i < source_.size() && blank(source_[i])) ++i;
      if (source_.compare(i, word.size(), word) != 0) return 0;
      i += word.size();
      while (i < source_.size() && blank(source_[i])) ++i;
      if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) ++i;
      return source_.compare(i, 2, "%}") == 0 ? i + 2 : 0;
    };
    size_t begin = word_tag(at_, "raw");
    if (begin == 0) return false;
    for (size_t i = source_.find("{%", begin); i != std::string::npos;
         i = source_.find("{%", i + 2)) {
      size_t end = word_tag(i, "endraw");
      if (end == 0) continue;
      bool strip_left = source_[begin - 3] == '-', strip_right = source_[i + 2] == '-',
           after = source_[end - 3] == '-';
      size_t from = begin, to = i;
      if (strip_left)
        while (from < to && blank(source_[from])) ++from;
      else if (from < to && source_[from] == '\n')
        ++from;
      if (strip_right)
        while (to > from && blank(source_[to - 1])) --to;
      if (to > from) add(Token::Kind::text, source_.substr(from, to - from));
      advance(end - at_);
      if (after)
        while (at_ < source_.size() && blank(peek())) advance(1);
      else if (peek() == '\n')
        advance(1);
      return true;
    }
    fail("raw without endraw");
  }

  void read_token() {
    char c = peek();
    if (begins_name(c)) {
      size_t n = 0;
      while (in_name(peek(n))) ++n;
      add(Token::Kind::name, source_.substr(at_, n));
      return advance(n);
    }
    if (digit(c)) return read_number();
    if (c == '"' || c == '\'') return read_string(c);
    static constexpr std::array<std::string_view, 7> kPairs = {
        "==", "!=", "<=", ">=", "//", "**", "->"};
    std::string_view symbol = std::string_view(source_).substr(at_, 1);
    for (std::string_view pair : kPairs)
      if (starts(pair)) symbol = std::string_view(source_).substr(at_, 2);
    static constexpr std::string_view kSingles = "+-*/%~()[]{}.,:|=<>";
    if (symbol.size() == 1 && kSingles.find(symbol) == std::string_view::npos)
      fail(cat("'", printable(symbol), "' is not part of an expression"));
    nest(symbol);
    add(Token::Kind::symbol, std::string(symbol));
    advance(symbol.size());
  }

  /// "}}" closes an output only outside of a map's braces.
  void nest(std::string_view symbol) {
    if (symbol == "(" || symbol == "[" || symbol == "{")
      nesting_ += symbol == "(" ? ')' : symbol == "[" ? ']' : '}';
    if (symbol != ")" && symbol != "]" && symbol != "}") return;
    if (nesting_.empty() || nesting_.back() != symbol[0])
      fail(cat("'", symbol, "' closes nothing"));
    nesting_.pop_back();
  }

  void read_number() {
    size_t n = 0;
    bool real = false;
    auto digits = [&] {
      while (digit(peek(n)) || (peek(n) == '_' && digit(peek(n + 1)))) ++n;
    };
    digits();
    if (peek(n) == '.' && digit(peek(n + 1))) {
      real = true, ++n;
      digits();
    }
    size_t sign = peek(n + 1) == '+' || peek(n + 1) == '-' ? 2 : 1;
    if ((peek(n) == 'e' || peek(n) == 'E') && digit(peek(n + sign))) {
      real = true, n += sign;
      digits();
    }
    std::string text;
    for (char c : source_.substr(at_, n))
      if (c != '_') text += c;
    add(real ? Token::Kind::real : Token::Kind::integer, text);
    advance(n);
  }

  void read_string(char quote) {
    Place start = place_;
    std::string out;
    advance(1);
    while (peek() != quote) {
      if (at_ >= source_.size()) syntax_error(name_, start, "the string is not closed");
      if (peek() == '\\') {
        read_escape(out);
      } else {
        out += peek();
        advance(1);
      }
    }
    tokens_.push_back({Token::Kind::string, std::move(out), start});
    advance(1);
  }

  void read_escape(std::string& out) {
    using namespace std::string_view_literals;
    static constexpr std::string_view kNames = "ntrbfva0\\'\""sv,
                                      kBytes = "\n\t\r\b\f\v\a\0\\'\""sv;
    char c = peek(1);
    size_t width = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (width > 0) {
      uint32_t code = 0;
      for (size_t i = 0; i < width; ++i) {
        char h = peek(2 + i);
        if (std::isxdigit(static_cast<unsigned char>(h)) == 0)
          fail(cat("\\", c, " needs ", width, " hexadecimal digits"));
        code = code * 16 + static_cast<uint32_t>(digit(h) ? h - '0' : (h | 0x20) - 'a' + 10);
      }
      if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
        fail("the escape is not a character");
      append_utf8(out, code);
      return advance(2 + width);
    }
    size_t which = kNames.find(c);
    if (c == '\n') {
      // a line continuation
    } else if (c != '\0' && which != std::string_view::npos) {
      out += kBytes[which];
    } else {  // as in Python, the backslash stays
      out += '\\';
      return advance(1);
    }
    advance(2);
  }

  std::string source_;
  const std::string& name_;
  size_t at_ = 0;
  Place place_;
  std::string nesting_;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> lex_template(std::string_view source, const std::string& name) {
  return Lexer(source, name).run();
}

}  // namespace mtrain::chat
