#include "mtrain/config/override_value.h"

#include <algorithm>
#include <set>

#include "mtrain/base/text.h"
#include "mtrain/config/meant_values.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

constexpr int kMaxValueDepth = 64, kMaxRanges = 16;

bool digit(char c) { return c >= '0' && c <= '9'; }

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](unsigned char x, unsigned char y) {
           return std::tolower(x) == std::tolower(y);
         });
}

/// The text without digit separators when each is between two digits; nothing otherwise.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    if (i == 0 || i + 1 == text.size() || !digit(text[i - 1]) || !digit(text[i + 1]))
      return std::nullopt;
  }
  return out;
}

/// One or several unquoted words: typed when they are one token of the grammar, else a string. The
/// value of a string setting stays as written.
Node unquoted(const std::string& text, ValueUse use) {
  if (equals_ignoring_case(text, "null")) return Node::plain("null");
  if (use == ValueUse::text) return Node::string(text);
  if (equals_ignoring_case(text, "true")) return Node::boolean(true);
  if (equals_ignoring_case(text, "false")) return Node::boolean(false);
  std::string_view body = text;
  bool negative = body.starts_with('-');
  if (negative || body.starts_with('+')) body.remove_prefix(1);
  if (equals_ignoring_case(body, "inf")) return Node::plain(negative ? "-.inf" : ".inf");
  if (equals_ignoring_case(body, "nan")) return Node::plain(".nan");
  auto plain = without_underscores(text);
  bool starts =
      !body.empty() && (digit(body[0]) || (body[0] == '.' && body.size() > 1 && digit(body[1])));
  if (body.starts_with("0x") && resolve_scalar(text) == NodeKind::integer)
    return Node::verbatim(text);  // text, unless the schema expects a number
  bool numeric = plain && starts && !body.starts_with("0x");
  NodeKind kind = numeric ? resolve_scalar(*plain) : NodeKind::string;
  if (kind == NodeKind::integer || kind == NodeKind::number) return Node::plain(*plain);
  return Node::string(text);
}

class ValueParser {
 public:
  ValueParser(std::string_view text, const TextOrigin& origin, ValueUse use, Report& report)
      : text_(text), origin_(origin), use_(use), report_(report) {}

  std::optional<OverrideValue> parse() {
    std::vector<OverrideValue> values;
    bool missing = false;
    do {
      values.push_back(element(0, use_ == ValueUse::text ? "" : ","));
      missing = missing || empty_;
    } while (!failed_ && use_ == ValueUse::sweep && take(','));
    if (missing && values.size() > 1 && !failed_)
      error("a value is missing").fix("write '' for an empty text");
    skip_blanks();
    if (failed_) return std::nullopt;
    if (at_ < text_.size() && text_[at_] == ',')
      several();
    else if (at_ < text_.size())
      error(cat("'", visible(text_.substr(at_, 1)), "' is not allowed here"))
          .fix("quote the value: key='…'");
    else if (use_ != ValueUse::sweep && std::holds_alternative<SweepValue>(values[0]))
      several();
    if (failed_) return std::nullopt;
    if (values.size() == 1) return std::move(values[0]);
    return simple_choice(std::move(values));
  }

 private:
  /// a,b,c: one value per run.
  std::optional<OverrideValue> simple_choice(std::vector<OverrideValue> values) {
    SweepValue out;
    out.simple = true;
    for (auto& value : values) {
      auto* plain = std::get_if<Node>(&value);
      if (!plain) {
        at_ = 0;
        error("a function of several values cannot be combined with further values")
            .fix("write one choice(…) with all of them");
        return std::nullopt;
      }
      out.values.push_back(std::move(*plain));
    }
    return out;
  }

  /// Reports several values where one is allowed; the help lists every meaning of the comma.
  void several() {
    const std::string all(trim(text_));
    std::string readings;
    if (all.ends_with(',')) {
      error("a ',' without a value after it")
          .fix(cat("write ", trim(std::string_view(all).substr(0, all.size() - 1))));
      return;
    }
    const std::string number = meant_help(all, [](const std::string& meant) {
      return Node::plain(meant).is(NodeKind::integer) || Node::plain(meant).is(NodeKind::number);
    });
    if (!number.empty()) readings = cat("for one number ", number, "; ");
    if (all.find('(') == std::string::npos || all.find(',') < all.find('('))
      readings += cat("for a list write [", all, "]; ");
    std::string text =
        all.find('\'') == std::string::npos ? cat("'", all, "'") : cat('"', all, '"');
    error("several values, but in one run a setting has one")
        .fix(cat(readings, "for a text write ", text,
                 "; to train once for each value: mtrain train -m"));
  }

  Diagnostic& error(std::string message) { return error_at(at_, std::move(message)); }
  Diagnostic& error_at(size_t at, std::string message) {
    failed_ = true;
    return report_.error("override-syntax", "", origin_.at(std::min(at, text_.size())),
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
  Node placed(Node node) const { return std::move(node.set_location(origin_.where)); }

  /// `ends`: the characters that end an unquoted value here.
  OverrideValue element(int depth, std::string_view ends) {
    skip_blanks();
    empty_ = false;
    if (depth > kMaxValueDepth)
      return error(cat("nested deeper than ", kMaxValueDepth, " levels")), Node();
    if (!done() && text_[at_] == '[') return list(depth);
    if (!done() && text_[at_] == '{') return map(depth);
    if (!done() && (text_[at_] == '\'' || text_[at_] == '"'))
      if (auto text = quoted(depth > 0)) return placed(std::move(*text));
    if (std::string name = function_name(); !name.empty()) return function(name, depth);
    Node word = primitive(ends, depth > 0);
    empty_ = word.as_text().empty() && word.is(NodeKind::string);
    if (empty_ && depth > 0 && !failed_)
      error("a value is missing").fix("write '' for an empty text");
    return placed(std::move(word));
  }

  /// An element of a list or map: one value.
  Node plain_element(int depth) {
    size_t begin = at_;
    OverrideValue value = element(depth, ",]}");
    if (auto* plain = std::get_if<Node>(&value)) return std::move(*plain);
    if (!failed_)
      error_at(begin, "several values or an edit of a list cannot be inside a list or map")
          .fix("write choice([…], […]) around whole values");
    return Node();
  }

  OverrideValue list(int depth) {
    ++at_;
    Node out = placed(Node::list());
    if (take(']')) return out;
    while (!failed_) {
      out.push(plain_element(depth + 1));
      if (take(']')) return out;
      if (!failed_ && !take(',')) error("a list without a ']'");
    }
    return out;
  }

  OverrideValue map(int depth) {
    ++at_;
    Node out = placed(Node::map());
    std::set<std::string> keys;
    if (take('}')) return out;
    while (!failed_) {
      skip_blanks();
      std::optional<Node> key;
      if (!done() && (text_[at_] == '\'' || text_[at_] == '"')) key = quoted(true);
      if (!key) key = primitive(":,}", true);
      if (failed_) break;
      if (!take(':')) return error("a key without a ':' (a map is written {key: value})"), out;
      if (key->as_text().empty()) return error("an empty key"), out;
      if (!keys.insert(key->as_text()).second)
        return error(cat("the key ", visible(key->as_text()), " appears twice")), out;
      out.append(key->as_text(), origin_.where, plain_element(depth + 1));
      if (take('}')) return out;
      if (!failed_ && !take(',')) error("a map without a '}'");
    }
    return out;
  }

  static bool name_character(char c, bool first) {
    auto u = static_cast<unsigned char>(c);
    return u < 0x80 && (std::isalpha(u) || c == '_' || (!first && (std::isdigit(u) || c == '-')));
  }

  /// The name of the function that is called here, "" for none. Does not advance.
  std::string function_name() const {
    if (use_ == ValueUse::plain) return {};
    size_t end = at_;
    while (end < text_.size() && name_character(text_[end], end == at_)) ++end;
    size_t open = end;
    while (open < text_.size() && (text_[open] == ' ' || text_[open] == '\t')) ++open;
    if (end == at_ || open >= text_.size() || text_[open] != '(') return {};
    return std::string(text_.substr(at_, end - at_));
  }

  /// "name=" before an argument, "" for none. The arguments of zip are named by settings.
  std::string argument_name(bool settings) {
    skip_blanks();
    size_t end = at_;
    for (; end < text_.size(); ++end) {
      char c = text_[end];
      bool setting = settings && std::string_view("./@[]+:$").find(c) != std::string_view::npos;
      if (!name_character(c, end == at_) && !setting) break;
    }
    size_t equals = end;
    while (equals < text_.size() && (text_[equals] == ' ' || text_[equals] == '\t')) ++equals;
    if (end == at_ || equals >= text_.size() || text_[equals] != '=') return {};
    std::string out(text_.substr(at_, end - at_));
    at_ = equals + 1;
    return out;
  }

  OverrideValue function(const std::string& name, int depth) {
    size_t begin = at_;
    if (!is_function(name))
      return error(cat("there is no function ", visible(name))).fix(function_hint(name)), Node();
    at_ = text_.find('(', at_) + 1;
    FunctionArguments arguments;
    while (!failed_ && !take(')')) {
      if (arguments.positional.size() + arguments.named.size() > 0 && !take(',')) {
        error(cat(name, "(…) without a ')'"));
        break;
      }
      std::string key = argument_name(name == "zip");
      OverrideValue value = element(depth + 1, ",)");
      if (!key.empty())
        arguments.named.emplace_back(std::move(key), std::move(value));
      else
        arguments.positional.push_back(std::move(value));
    }
    if (failed_) return Node();
    skip_blanks();
    if (!done() && std::string_view(",]})").find(text_[at_]) == std::string_view::npos)
      return error(cat("text after ", name, "(…)")).fix("quote the value: key='…'"), Node();
    if (use_ == ValueUse::single && name == "range")
      return several(), Node();  // checked before its values are generated
    try {
      if (name == "range" && ++ranges_ > kMaxRanges)
        throw FunctionFault{"too many ranges in one value", ""};
      OverrideValue value = call_function(name, std::move(arguments));
      place(value);
      return value;
    } catch (const FunctionFault& fault) {
      error_at(begin, cat(name, ": ", fault.message)).fix(fault.help);
      return Node();
    }
  }

  /// A value that a function returns has the location of the override.
  void place(OverrideValue& value) const {
    if (auto* plain = std::get_if<Node>(&value)) place(*plain);
    if (auto* sweep = std::get_if<SweepValue>(&value))
      for (auto& item : sweep->values) place(item);
  }
  void place(Node& node) const {
    node.set_location(origin_.where);
    for (auto& item : node.items()) place(item);
    for (auto& entry : node.entries()) place(entry.value);
  }

  /// A quoted string. In single quotes, only the quote and backslashes right before it can be
  /// escaped; in double quotes also \n, \t and \\ as in YAML. Nothing when the text is not a quoted
  /// string but a word that contains a quote.
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
        if (slashes == 0)
          out += text_[at_++];
        else
          out += quote == '"' ? unescaped(slashes) : std::string(slashes, '\\');
        continue;
      }
      out.append(slashes / 2, '\\');
      ++at_;
      if (slashes % 2 == 0) return finish_quoted(std::move(out));
      out += quote;
    }
    at_ = begin;
    if (nested) error("a quote that is not closed");
    return std::nullopt;
  }

  /// In double quotes: the value of `slashes` backslashes and the following letter, which is
  /// consumed when it is part of the escape.
  std::string unescaped(size_t slashes) {
    std::string out(slashes / 2, '\\');
    const char next = slashes % 2 == 1 && at_ < text_.size() ? text_[at_] : '\0';
    if (next == 'n' || next == 't')
      out += next == 'n' ? '\n' : '\t', ++at_;
    else if (slashes % 2 == 1)
      out += '\\';
    return out;
  }

  std::optional<Node> finish_quoted(std::string text) {
    skip_blanks();
    if (!done() && std::string_view(",]}:)").find(text_[at_]) == std::string_view::npos)
      error("text after the closing quote").fix("put the whole value in quotes");
    return Node::quoted_string(std::move(text));
  }

  /// Takes a whole "${…}" with nested braces; takes nothing when its end is missing.
  std::string_view interpolation() {
    int depth = 0;
    for (size_t i = at_; i < text_.size(); ++i) {
      if (text_[i] == '{') ++depth;
      if (text_[i] != '}' || --depth > 0) continue;
      std::string_view out = text_.substr(at_, i + 1 - at_);
      at_ = i + 1;
      return out;
    }
    error("'${' without a '}'");
    return {};
  }

  void stray_bracket(char c, const std::string& word) {
    if (c == '(' && !word.empty())
      error(cat("there is no function ", visible(word))).fix("quote the value: key='…'");
    else
      error(cat("'", std::string(1, c), "' inside an unquoted value"))
          .fix("quote the value: key='…'");
  }

  Node primitive(std::string_view ends, bool nested) {
    constexpr std::string_view kEscapable = "\\()[]{}:=, \t";
    std::string out;
    size_t solid = 0;      // the length of `out` that trimming must keep
    bool literal = false;  // contains an escape or an interpolation, so it is a string
    bool lenient = false;  // contains a character without a token in the grammar: all is a string
                           // up to the next comma
    while (!done()) {
      char c = text_[at_];
      if (c == '\\' && at_ + 1 < text_.size() &&
          kEscapable.find(text_[at_ + 1]) != std::string_view::npos) {
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
        stray_bracket(c, std::string(trim(out)));
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
    return literal || lenient ? Node::string(out) : unquoted(out, use_);
  }

  std::string_view text_;
  const TextOrigin& origin_;
  ValueUse use_;
  Report& report_;
  size_t at_ = 0;
  int ranges_ = 0;  // the number of ranges in this value; each may hold very many values
  bool failed_ = false;
  bool empty_ = false;  // the last element was empty
};

}  // namespace

std::optional<OverrideValue> parse_value(std::string_view text, const TextOrigin& origin,
                                         ValueUse use, Report& report) {
  return ValueParser(text, origin, use, report).parse();
}

std::optional<Node> parse_override_value(const SourcePtr& source, size_t offset, Report& report) {
  std::string_view text =
      std::string_view(source->text()).substr(std::min(offset, source->text().size()));
  auto value = parse_value(text, {source, offset, {source, 1, 1}, true}, ValueUse::plain, report);
  if (!value) return std::nullopt;
  return std::move(std::get<Node>(*value));
}

}  // namespace mtrain
