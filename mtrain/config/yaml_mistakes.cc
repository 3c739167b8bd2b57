#include "mtrain/config/yaml_mistakes.h"

#include <fmt/format.h>

#include <cctype>
#include <utility>

#include "mtrain/base/counted.h"
#include "mtrain/base/text.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

constexpr std::string_view kWideColon = "\uff1a";  // from Chinese and Japanese keyboards
constexpr const char* kTabHelp =
    "YAML allows only spaces for indentation: replace the tab with spaces, two for each level";

/// A line of the text, without its line end and comment.
struct Line {
  size_t begin = 0, indent = 0;
  int number = 0;          // counts from 1
  std::string_view words;  // from the first visible character on

  size_t offset() const { return begin + indent; }
  bool empty() const { return words.empty(); }
};

std::string_view without_comment(std::string_view words) {
  if (words.starts_with('#')) return {};
  size_t comment = words.find(" #");
  return trim(words.substr(0, comment));
}

class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text) {}

  Line at(size_t offset) const {
    Line out;
    offset = std::min(offset, text_.size());
    out.begin = offset == 0 ? 0 : text_.rfind('\n', offset - 1) + 1;  // npos + 1 is 0
    std::string_view whole = text_.substr(out.begin, text_.find('\n', out.begin) - out.begin);
    out.indent = std::min(whole.find_first_not_of(" \t"), whole.size());
    out.words = without_comment(whole.substr(out.indent));
    return out;
  }
  /// The nearest line above that is not empty; nothing at the top.
  std::optional<Line> above(const Line& line) const {
    Line at_line = line;
    while (at_line.begin > 0) {
      at_line = at(at_line.begin - 1);
      if (!at_line.empty()) return at_line;
    }
    return std::nullopt;
  }

 private:
  std::string_view text_;
};

/// The end of the key of "key: value" or "key:"; npos when there is none.
size_t map_key_end(std::string_view words) {
  for (size_t colon = words.find(':'); colon != std::string_view::npos;
       colon = words.find(':', colon + 1))
    if (colon + 1 == words.size() || words[colon + 1] == ' ' || words[colon + 1] == '\t')
      return colon;
  return std::string_view::npos;
}

/// True for "key: value" with both on the line.
bool has_key_and_value(std::string_view words) {
  size_t end = map_key_end(words);
  return end != std::string_view::npos && end + 1 < words.size();
}

std::string spaces(size_t count) { return counted(count, "space"); }

/// Scans the text up to where the parser stopped, and records which brackets and quotes are open
/// there.
class Scanner {
 public:
  Scanner(const TextIndex& index, size_t end)
      : index_(index), text_(index.text()), end_(std::min(end, text_.size())) {
    while (at_ < end_) step();
  }

  struct Bracket {
    char kind;
    size_t offset;
  };
  std::vector<Bracket> open;            // innermost last
  std::optional<size_t> interpolation;  // "${" without quotes inside the outermost open bracket
  std::optional<std::pair<size_t, size_t>> quote;  // the last quoted text

 private:
  void step() {
    const char c = text_[at_];
    if (c == '#' && (at_ == 0 || std::isspace(static_cast<unsigned char>(text_[at_ - 1]))))
      return skip_line();
    if ((c == '|' || c == '>') && open.empty() && starts_value()) return skip_block();
    if ((c == '"' || c == '\'') && starts_value()) {
      quote = {at_, index_.quoted_end(at_)};
      at_ = quote->second;
    } else if (text_.substr(at_).starts_with("${")) {
      if (!open.empty() && !interpolation) interpolation = at_;
      at_ = std::min(text_.find_first_of("}\n", at_), end_) + 1;
    } else if ((c == '{' || c == '[') && (!open.empty() || starts_value())) {
      open.push_back({c, at_++});
    } else if ((c == '}' || c == ']') && !open.empty()) {
      open.pop_back();
      if (open.empty()) interpolation.reset();
      ++at_;
    } else {
      ++at_;
    }
  }
  /// True when a value may begin here, so that a quote or bracket opens one.
  bool starts_value() const {
    for (size_t i = at_; i-- > 0;) {
      if (text_[i] == ' ' || text_[i] == '\t') continue;
      const bool gap = i + 1 < at_;  // "a:b" is one word
      if (std::string_view(",[{\n").find(text_[i]) != std::string_view::npos) return true;
      return gap && std::string_view(":-?").find(text_[i]) != std::string_view::npos;
    }
    return true;
  }
  void skip_line() { at_ = std::min(text_.find('\n', at_), end_); }
  /// Skips a block of several lines, which are indented deeper than the line before it.
  void skip_block() {
    const Lines lines(text_);
    const size_t indent = lines.at(at_).indent;
    for (skip_line(); at_ < end_; skip_line()) {
      size_t word = text_.find_first_not_of(" \r\n", at_);
      if (word >= end_ || lines.at(word).indent <= indent) return;
      at_ = word;
    }
  }

  const TextIndex& index_;
  std::string_view text_;
  size_t end_, at_ = 0;
};

/// Rephrases the parser's message.
YamlMistake explained(const std::string& complaint, size_t offset) {
  struct Row {
    const char *part, *text, *help;
  };
  constexpr Row kRows[] = {
      {"illegal map value", "a ':' where a key is not allowed",
       "quote the text if the ':' belongs to it, or correct the indentation"},
      {"illegal tab", "a tab in the indentation", kTabHelp},
      {"end of sequence flow not found", "a '[' without a ']'", "add the ']'"},
      {"end of map flow not found", "a '{' without a '}'", "add the '}'"},
      {"end of sequence not found",
       "the indentation of this line matches neither the list above nor an outer level",
       "indent it like the lines that it belongs to"},
      {"end of map not found",
       "the indentation of this line matches neither the map above nor an outer level",
       "indent it like the lines that it belongs to"},
      {"illegal block entry", "a '-' where no list can start", "start the list on its own line"},
      {"illegal flow end", "a ']' or '}' that was not opened",
       "remove it, or add the opening bracket"},
      {"illegal map key", "a '?' where a key is not allowed",
       "quote the text if it starts with '?'"},
      {"the referenced anchor is not defined", "an alias without an anchor",
       "quote the text if it starts with '*'; define &name above its use as *name"},
      {"illegal EOF in scalar", "a quote that is not closed", "add the closing quote"},
      {"illegal character in scalar", "a character that cannot be in an unquoted text",
       "quote the text"},
      {"illegal document indicator in scalar", "'---' or '...' inside a quoted text",
       "add the closing quote"},
      {"unknown escape character", "an unknown escape",
       "in double quotes write a backslash as \\\\; in single quotes it is literal"},
      {"unknown token", "a value cannot start with this character",
       "quote the text if it starts with one of @ ` % & * ! |"},
      {"bad file", "the text is not readable YAML", ""},
  };
  for (const auto& row : kRows)
    if (complaint.find(row.part) != std::string::npos) return {offset, row.text, row.help};
  return {offset, complaint, ""};
}

/// True when the parser stopped because of an open bracket or quote, not because of the text at
/// that location.
bool may_be_unclosed(std::string_view complaint) {
  for (std::string_view part : {"flow", "not found", "illegal map value", "illegal block entry"})
    if (complaint.find(part) != std::string_view::npos) return true;
  return false;
}

/// A setting with two ": " inside a bracket that is closed on its line: {name: a: b}.
std::optional<YamlMistake> second_colon(const TextIndex& text, size_t bracket) {
  const std::string_view line = text.at(bracket).substr(0, text.at(bracket).find('\n'));
  constexpr size_t kNone = std::string_view::npos;
  size_t value = kNone;  // the start of the value of the entry
  std::optional<YamlMistake> found;
  size_t depth = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' || c == '\'') {
      i = std::min(line.find(c, i + 1), line.size());
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (--depth == 0) return found;
    } else if (c == ',' && depth == 1) {
      value = kNone;
    } else if (c == ':' && depth == 1 && i + 1 < line.size() && line[i + 1] == ' ') {
      if (value != kNone && !found) {
        const std::string_view rest =
            trim(line.substr(value, line.find_first_of(",]}", value) - value));
        found = YamlMistake{bracket + value, "a second ': ' in one setting",
                            cat("quote the text if the ':' belongs to it: \"", visible(rest, 60),
                                "\"; else separate the settings by ','")};
      }
      value = std::min(line.find_first_not_of(' ', i + 1), line.size());
    }
  }
  return std::nullopt;  // the bracket is not closed on this line
}

/// An unquoted ${…} inside { } or [ ], or a bracket that is never closed.
std::optional<YamlMistake> flow_mistake(const TextIndex& text, const Scanner& scan) {
  if (scan.interpolation) {
    std::string_view rest = text.at(*scan.interpolation);
    std::string_view expression =
        rest.substr(0, std::min(rest.find_first_of("}\n"), rest.size() - 1) + 1);
    const bool whole = expression.ends_with('}');
    return YamlMistake{
        *scan.interpolation, "a ${…} inside { } or [ ] needs quotes",
        whole ? cat("write \"", visible(expression, 60), "\"") : "write \"${…}\" with a '}'"};
  }
  if (scan.open.empty()) return std::nullopt;
  const auto [kind, offset] = scan.open.back();
  if (auto colon = second_colon(text, offset)) return colon;
  const char closing = kind == '{' ? '}' : ']';
  return YamlMistake{offset, cat("this '", kind, "' is never closed"),
                     cat("add the '", closing, "' after the last ",
                         kind == '{' ? "setting" : "item", " that belongs to it")};
}

/// A quoted text that continues on the next lines, up to a quote that was meant to open another
/// text.
std::optional<YamlMistake> quote_mistake(const TextIndex& text, const Scanner& scan,
                                         size_t offset) {
  if (!scan.quote) return std::nullopt;
  const auto [begin, end] = *scan.quote;
  if (end > text.text().size())
    return YamlMistake{begin, "a quote that is not closed",
                       cat("add the closing ", text.text()[begin])};
  const Lines lines(text.text());
  if (end > offset || lines.at(begin).begin == lines.at(offset).begin ||
      lines.at(end - 1).begin != lines.at(offset).begin)
    return std::nullopt;
  return YamlMistake{begin, "this quote is not closed on its line",
                     cat("add the closing ", text.text()[begin])};
}

/// Finds foreign notation on a line without quotes.
std::optional<YamlMistake> foreign_line(const Line& line) {
  if (line.words.find_first_of("\"'") != std::string_view::npos) return std::nullopt;
  auto found = foreign_notation(line.words);
  if (found) found->offset += line.offset();
  return found;
}

/// "[train]" above settings, as in TOML.
std::optional<YamlMistake> toml_mistake(const Line& above) {
  const std::string_view words = above.words;
  if (!words.starts_with('[') || !words.ends_with(']')) return std::nullopt;
  const std::string_view name = trim(words.substr(1, words.size() - 2));
  if (name.empty() || name.find_first_of(",[]{}: ") != std::string_view::npos) return std::nullopt;
  return YamlMistake{above.offset(),
                     cat("'", visible(words, 60), "' begins a section in TOML, but a list in YAML"),
                     cat("write `", visible(name, 60),
                         ":`, and its settings below as lines `key: value`, indented by 2 spaces")};
}

/// A ':' where the parser expects none.
std::optional<YamlMistake> colon_mistake(const TextIndex& text, size_t offset) {
  const Lines lines(text.text());
  const Line line = lines.at(offset);
  size_t first = map_key_end(line.words);
  if (first != std::string_view::npos && line.offset() + first < offset) {
    std::string_view value = trim(line.words.substr(first + 1));
    return YamlMistake{
        line.offset() + line.words.find(value, first + 1), "a second ': ' on one line",
        cat("quote the text if the ':' belongs to it: \"", visible(value, 60), "\"")};
  }
  auto above = lines.above(line);
  if (!above) return std::nullopt;
  if (auto foreign = foreign_line(*above)) return foreign;
  if (map_key_end(above->words) == std::string_view::npos && !above->words.starts_with("- ")) {
    std::string meant = meant_entry(above->words);
    const bool word = above->words.find_first_of(" \t(){}[]<>=,;\"'") == std::string_view::npos;
    if (meant.empty() && word && above->indent < line.indent)
      meant = cat(visible(above->words, 60), ":");
    return YamlMistake{
        above->offset(), "this line has no ': ' between a key and its value",
        meant.empty() ? "write `key: value`, or '#' before a comment" : cat("write `", meant, "`")};
  }
  if (has_key_and_value(above->words) && line.indent > above->indent)
    return YamlMistake{line.offset(),
                       cat("this line is indented deeper than '",
                           visible(above->words.substr(0, map_key_end(above->words)), 40),
                           "' above it, which already has a value"),
                       cat("indent it by ", spaces(above->indent), ", like the line above")};
  return std::nullopt;
}

/// A line whose indentation matches no line above it.
std::optional<YamlMistake> indentation_mistake(const TextIndex& text, size_t offset) {
  const Lines lines(text.text());
  const Line line = lines.at(offset);
  if (auto above = lines.above(line)) {
    if (auto toml = toml_mistake(*above)) return toml;
    if (above->words == "...")
      return YamlMistake{above->offset(), "'...' ends the recipe, but more text follows",
                         "remove this line"};
  }
  std::vector<std::string> levels;
  size_t least = std::string::npos;
  for (auto above = lines.above(line); above && levels.size() < 4; above = lines.above(*above)) {
    if (above->indent >= least) continue;
    least = above->indent;
    if (least == line.indent) return std::nullopt;
    levels.push_back(cat(spaces(least), " (as '",
                         visible(above->words.substr(0, map_key_end(above->words)), 30), "')"));
  }
  if (levels.empty()) return std::nullopt;
  return YamlMistake{
      line.offset(),
      cat("no line that this one could belong to is indented by ", spaces(line.indent)),
      cat("indent it by ", join(levels, " or "))};
}

/// True when almost no line is YAML.
bool is_prose(const TextIndex& text) {
  constexpr size_t kLooked = 100, kFew = 4;
  const Lines lines(text.text());
  size_t at = 0, all = 0, entries = 0;
  while (at < text.text().size() && all < kLooked) {
    const Line line = lines.at(at);
    at = std::min(text.text().find('\n', at), text.text().size() - 1) + 1;
    if (line.empty()) continue;
    ++all;
    entries += map_key_end(line.words) != std::string_view::npos || line.words.starts_with("- ") ||
               std::string_view("{}[]").find(line.words.back()) != std::string_view::npos;
  }
  return all >= kFew && 3 * entries < all;
}

YamlMistake mistake_at(const TextIndex& text, const std::string& complaint, size_t offset) {
  if (auto tab = text.tab_in_indentation(offset))
    return {*tab, "a tab in the indentation", kTabHelp};
  const Scanner scan(text, offset);
  auto found = may_be_unclosed(complaint) ? flow_mistake(text, scan) : std::nullopt;
  if (!found) found = quote_mistake(text, scan, offset);
  if (found) return *found;
  if (text.first_on_line(offset)) found = foreign_line(Lines(text.text()).at(offset));
  if (!found && complaint.find("illegal map value") != std::string::npos)
    found = colon_mistake(text, offset);
  if (found) return *found;
  const bool out_of_place = complaint.find("end of map not found") != std::string::npos ||
                            complaint.find("end of sequence not found") != std::string::npos;
  if (out_of_place && !text.first_on_line(offset)) {
    const bool end = text.at(offset).starts_with(';') || text.at(offset).starts_with(','),
               quote = text.text()[offset - 1] == '\'';
    return {offset, "text after the end of a value",
            end     ? cat("remove the '", text.at(offset)[0], "'")
            : quote ? "write a ' inside '…' twice, or put the whole value in double quotes"
                    : "quote the whole value"};
  }
  if (out_of_place) found = indentation_mistake(text, offset);
  return found ? *found : explained(complaint, offset);
}

/// The name of a character that looks like a space; empty for any other.
std::string false_blank(char32_t c) {
  const bool blank = c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x202F ||
                     c == 0x205F || c == 0x3000;
  return blank ? cat(c == 0xA0 || c == 0x202F ? "a no-break space"
                                              : "a character that looks like a space",
                     fmt::format(" (U+{:04X})", static_cast<unsigned>(c)))
               : "";
}

}  // namespace

std::optional<YamlMistake> foreign_notation(std::string_view plain) {
  if (plain.find("${") == std::string_view::npos) {  // in an expression // is a division
    const size_t comment =
        plain.starts_with("// ") || plain.starts_with("/* ") ? 0 : plain.find(" //");
    if (comment != std::string_view::npos) {
      const size_t at = plain.find('/', comment);
      return YamlMistake{
          at, cat("'", plain.substr(at, 2), "' does not start a comment in YAML"),
          "write '#' instead, with a space before it; quote the text if it belongs to the value"};
    }
  }
  struct Row {
    std::string_view start, message, help;
  };
  constexpr std::string_view kItem = "start each item with '-' and a space",
                             kConflict = "resolve the conflict: keep one of the two sides";
  constexpr Row kRows[] = {
      {"\u2013 ", "'\u2013' does not start a list item", kItem},
      {"\u2014 ", "'\u2014' does not start a list item", kItem},
      {"\u2022 ", "'\u2022' does not start a list item", kItem},
      {"<<<<<<< ", "a marker of a merge conflict", kConflict},
      {"=======", "a marker of a merge conflict", kConflict},
      {">>>>>>> ", "a marker of a merge conflict", kConflict},
      {"```", "'```' begins or ends a block in Markdown", "remove this line"},
  };
  for (const Row& row : kRows)
    if (plain.starts_with(row.start))
      return YamlMistake{0, std::string(row.message), std::string(row.help)};
  constexpr std::string_view kQuotes[] = {"\u201c", "\u201d", "\u201e", "\u2018", "\u2019"};
  for (std::string_view quote : kQuotes)
    if (plain.starts_with(quote)) {
      std::string_view inside = plain.substr(quote.size());
      for (std::string_view last : kQuotes)
        if (inside.ends_with(last)) inside.remove_suffix(last.size());
      return YamlMistake{0, cat("'", quote, "' is not a quote in YAML"),
                         cat("write \"", visible(inside, 60), "\", with plain quotes")};
    }
  for (size_t at = 0; at < plain.size();) {
    const size_t begin = at;
    if (std::string name = false_blank(next_character(plain, at)); !name.empty())
      return YamlMistake{begin, cat(name, " where YAML allows only spaces"),
                         "replace it with a space, or quote the text"};
  }
  return std::nullopt;
}

std::string meant_entry(std::string_view line) {
  line = trim(line);
  auto in_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
  };
  size_t end = 0;
  while (end < line.size() && in_name(line[end])) ++end;
  if (end == 0 || !std::isalpha(static_cast<unsigned char>(line[0]))) return {};
  std::string_view rest = line.substr(end);
  std::string_view value = trim(rest);
  size_t separator = value.starts_with(':') || value.starts_with('=') ? 1
                     : value.starts_with(kWideColon)                  ? kWideColon.size()
                                                                      : 0;
  const bool separated = separator > 0;
  value = trim(value.substr(separator));
  if (value.empty() || value.find(':') != std::string_view::npos) return {};
  if (!separated && value.find(' ') != std::string_view::npos) return {};  // prose
  std::string out, closing;  // dots separate sections: a.b is a: {b: …}
  for (const auto& part : split(line.substr(0, std::min<size_t>(end, 200)), '.')) {
    if (!out.empty()) out += "{", closing += "}";
    out += cat(part, ": ");
  }
  return cat(out, visible(value, 60), closing);
}

YamlMistake find_yaml_mistake(const TextIndex& text, const std::string& complaint, size_t offset) {
  YamlMistake out = mistake_at(text, complaint, offset);
  if (is_prose(text))
    out.help = "almost no line of this file has the form `key: value`: check that it is a recipe";
  return out;
}

}  // namespace mtrain
