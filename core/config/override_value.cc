#include <algorithm>

#include "mtrain/base/text.h"
#include "mtrain/config/override.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

constexpr int kMaxDepth = 64;

bool digit(char c) {
  return c >= '0' && c <= '9';
}

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

/// The text without digit separators when each stands between two digits; absent otherwise.
std::optional<std::string> without_separators(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    if (i == 0 || i + 1 == text.size() || !digit(text[i - 1]) || !digit(text[i + 1])) return std::nullopt;
  }
  return out;
}

/// One unquoted word or words: typed when it is one token of the grammar, else text.
Node unquoted(const std::string& text) {
  if (equals_ignoring_case(text, "null")) return Node::plain("null");
  if (equals_ignoring_case(text, "true")) return Node::boolean(true);
  if (equals_ignoring_case(text, "false")) return Node::boolean(false);
  std::string_view body = text;
  bool negative = body.starts_with('-');
  if (negative || body.starts_with('+')) body.remove_prefix(1);
  if (equals_ignoring_case(body, "inf")) return Node::plain(negative ? "-.inf" : ".inf");
  if (equals_ignoring_case(body, "nan")) return Node::plain(".nan");
  auto plain = without_separators(text);
  bool numeric = plain && !body.empty() && (digit(body[0]) || body[0] == '.') && !body.starts_with("0x") &&
                 !body.starts_with(".i") && !body.starts_with(".n");
  NodeKind kind = numeric ? resolve_scalar(*plain) : NodeKind::string;
  if (kind == NodeKind::integer || kind == NodeKind::number) return Node::plain(*plain);
  return Node::string(text);
}

class ValueParser {
 public:
  ValueParser(const SourcePtr& source, size_t offset, Report& report)
      : source_(source), text_(source->text()), at_(offset), report_(report) {}

  std::optional<Node> parse() {
    size_t begin = at_;
    Node value = element(0);
    skip_blanks();
    if (failed_) return std::nullopt;
    if (at_ < text_.size() && text_[at_] == ',') {
      std::string all(trim(text_.substr(begin)));
      error("several values: one run takes one")
          .fix(cat("for a list write [", all, "]; for a text write '", all, "'"));
    } else if (at_ < text_.size()) {
      error(cat("'", visible(text_.substr(at_, 1)), "' cannot stand here")).fix("quote the value: key='…'");
    }
    if (failed_) return std::nullopt;
    return value;
  }

 private:
  Diagnostic& error(std::string message) {
    failed_ = true;
    return report_.error("override-syntax", "", locate(source_, std::min(at_, text_.size())),
                         std::move(message));
  }
  bool done() const { return failed_ || at_ >= text_.size(); }
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  bool take(char c) {
    skip_blanks();
    if (done() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  Node placed(Node node) const { return std::move(node.at_location({source_, 1, 1})); }

  Node element(int depth) {
    skip_blanks();
    if (depth > kMaxDepth) return error(cat("nested deeper than ", kMaxDepth, " levels")), Node();
    if (!done() && text_[at_] == '[') return list(depth);
    if (!done() && text_[at_] == '{') return map(depth);
    if (!done() && (text_[at_] == '\'' || text_[at_] == '"'))
      if (auto text = quoted(depth > 0)) return placed(std::move(*text));
    return placed(primitive(depth > 0 ? ",]}" : ",", depth > 0));
  }

  Node list(int depth) {
    ++at_;
    Node out = placed(Node::list());
    if (take(']')) return out;
    while (!failed_) {
      out.push(element(depth + 1));
      if (take(']')) return out;
      if (!failed_ && !take(',')) error("a list without its ']'");
    }
    return out;
  }

  Node map(int depth) {
    ++at_;
    Node out = placed(Node::map());
    if (take('}')) return out;
    while (!failed_) {
      skip_blanks();
      std::optional<Node> key;
      if (!done() && (text_[at_] == '\'' || text_[at_] == '"')) key = quoted(true);
      if (!key) key = primitive(":,}", true);
      if (failed_) break;
      if (!take(':')) return error("a key without its ':' (a map is written {key: value})"), out;
      if (key->as_text().empty()) return error("an empty key"), out;
      if (out.get(key->as_text()))
        return error(cat("the key ", visible(key->as_text()), " is here twice")), out;
      out.append(key->as_text(), {source_, 1, 1}, element(depth + 1));
      if (take('}')) return out;
      if (!failed_ && !take(',')) error("a map without its '}'");
    }
    return out;
  }

  /// A quoted string. Only the quote itself and backslashes right before it are escaped. Nothing when the
  /// text turns out to be no quoted string but a word with a quote in it.
  std::optional<Node> quoted(bool nested) {
    size_t begin = at_;
    char quote = text_[at_++];
    std::string out;
    while (at_ < text_.size()) {
      size_t slashes = 0;
      while (at_ + slashes < text_.size() && text_[at_ + slashes] == '\\') ++slashes;
      bool before_quote = at_ + slashes < text_.size() && text_[at_ + slashes] == quote;
      at_ += slashes;
      if (!before_quote) {
        out.append(slashes, '\\');
        if (at_ < text_.size()) out += text_[at_++];
        continue;
      }
      out.append(slashes / 2, '\\');
      ++at_;
      if (slashes % 2 == 0) return finish_quoted(std::move(out));
      out += quote;
    }
    at_ = begin;
    if (nested) error("a quote without its closing one");
    return std::nullopt;
  }

  std::optional<Node> finish_quoted(std::string text) {
    skip_blanks();
    if (!done() && std::string_view(",]}:").find(text_[at_]) == std::string_view::npos)
      error("text behind the closing quote").fix("put the whole value in quotes");
    return Node::quoted_string(std::move(text));
  }

  /// "${…}" whole, with the braces inside it. Takes nothing when its end is missing.
  std::string_view interpolation() {
    int depth = 0;
    for (size_t i = at_; i < text_.size(); ++i) {
      if (text_[i] == '{') ++depth;
      if (text_[i] != '}' || --depth > 0) continue;
      std::string_view out = text_.substr(at_, i + 1 - at_);
      at_ = i + 1;
      return out;
    }
    error("'${' without its '}'");
    return {};
  }

  Node primitive(std::string_view ends, bool nested) {
    constexpr std::string_view kEscapable = "\\()[]{}:=, \t";
    std::string out;
    size_t solid = 0;      // how much of `out` trailing blanks must not take away
    bool literal = false;  // an escape or an interpolation: text, whatever it looks like
    bool lenient = false;  // a character that the grammar has no token for: all is text up to the next comma
    while (!done()) {
      char c = text_[at_];
      if (c == '\\' && at_ + 1 < text_.size() && kEscapable.find(text_[at_ + 1]) != std::string_view::npos) {
        out += text_[at_ + 1];
        at_ += 2;
        solid = out.size();
        literal = true;
        continue;
      }
      if (text_.substr(at_).starts_with("${")) {
        out += interpolation();
        solid = out.size();
        literal = true;
        continue;
      }
      if (ends.find(c) != std::string_view::npos) break;
      if (std::string_view("[]{}()").find(c) != std::string_view::npos && !lenient) {
        std::string word(trim(out));
        error(c == '(' && !word.empty() ? cat("there is no function ", visible(word))
                                        : cat("'", std::string(1, c), "' inside an unquoted value"))
            .fix("quote the value: key='…'");
        break;
      }
      if (!nested && (static_cast<unsigned char>(c) >= 0x80 ||
                      std::string_view("=#'\"~&!;<>^`").find(c) != std::string_view::npos))
        lenient = true;
      out += c;
      ++at_;
      if (c != ' ' && c != '\t') solid = out.size();
    }
    out.resize(solid);
    if (out.empty()) return Node::quoted_string("");
    return literal || lenient ? Node::string(out) : unquoted(out);
  }

  SourcePtr source_;
  std::string_view text_;
  size_t at_;
  Report& report_;
  bool failed_ = false;
};

}  // namespace

std::optional<Node> parse_override_value(const SourcePtr& source, size_t offset, Report& report) {
  return ValueParser(source, offset, report).parse();
}

}  // namespace mtrain
