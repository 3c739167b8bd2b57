#include "mtrain/config/override.h"

#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "mtrain/base/text.h"
#include "mtrain/config/interpolate.h"
#include "mtrain/config/override_value.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

constexpr size_t kMaxArgumentBytes = size_t{1} << 16, kMaxKeyBytes = size_t{1} << 12;
constexpr size_t kMaxFileBytes = size_t{1} << 20, kMaxFileLines = 10000;

/// Where the key ends: the first '=' outside of brackets and not escaped.
size_t override_key_end(std::string_view text) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\')
      ++i;
    else if (text[i] == '[')
      ++depth;
    else if (text[i] == ']')
      --depth;
    else if (text[i] == '=' && depth <= 0)
      return i;
  }
  return std::string_view::npos;
}

/// The characters of a key; inside brackets, which may contain a text to search for, any visible
/// character.
bool is_key(std::string_view key) {
  int depth = 0;
  for (char c : key) {
    auto u = static_cast<unsigned char>(c);
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    bool plain = u >= 0x80 || std::isalnum(u) ||
                 std::string_view("_-./@$:[]=\\").find(c) != std::string_view::npos;
    if (!plain && (depth <= 0 || u < 0x20)) return false;
  }
  return true;
}

/// Removes the sign that gives the kind of override.
Override::Kind take_sign(std::string_view& text) {
  auto take = [&](std::string_view sign) {
    bool there = text.starts_with(sign);
    if (there) text.remove_prefix(sign.size());
    return there;
  };
  if (take("++")) return Override::Kind::set_or_add;
  if (take("+")) return Override::Kind::add;
  if (take("~")) return Override::Kind::remove;
  return Override::Kind::set;
}

bool is_group_key(std::string_view key) {
  return key.substr(0, key.find('[')).find_first_of("/@:") != std::string_view::npos;
}

/// The origin of the text. A text that is in a file byte for byte has locations inside it.
TextOrigin origin_of(const OverrideText& text) {
  if (text.written && text.exact) return {text.written.source, 0, text.written, true, text.text};
  if (text.written) return {text.written.source, 0, text.written, false};
  std::string name = argument_name(text.argument);
  std::string shown = text.raw ? cat(text.text, " ", *text.raw) : text.text;
  auto source =
      std::make_shared<Source>(SourceKind::command_line, std::move(name), std::move(shown));
  return {source, 0, {source, 1, 1}, true};
}

/// "key=VALUE" for a key alone, "key=5" for "key:5" and "key: 5".
std::string meant_pair(std::string_view text) {
  const size_t colon = text.find(':');
  const bool key = !text.empty() && is_key(text.substr(0, colon)) &&
                   std::isalpha(static_cast<unsigned char>(text[0]));
  const bool bare =
      colon == std::string_view::npos &&
      text.find_first_of(".@") == std::string_view::npos;  // a single word may have any meaning
  if (!key || bare) return "key=value, as in train.steps=100";
  if (colon == std::string_view::npos || text.find('@') != std::string_view::npos)
    return cat(visible(text), "=VALUE");
  const std::string_view value = trim(text.substr(colon + 1));
  return cat(visible(text.substr(0, colon)), "=", value.empty() ? "VALUE" : visible(value));
}

/// Parses one argument to an override.
class OverrideParser {
 public:
  OverrideParser(const OverrideText& text, bool sweeps,
                 const std::function<bool(const std::string&)>& is_text, Report& report)
      : text_(text), origin_(origin_of(text)), sweeps_(sweeps), is_text_(is_text), report_(report) {
    out_.where = origin_.where;
  }

  std::optional<Override> parse() {
    if (!readable(text_.text) || (text_.raw && !readable(*text_.raw))) return std::nullopt;
    if (text_.raw) return raw_pair();
    std::string_view rest = text_.text;
    out_.kind = take_sign(rest);
    size_t end = override_key_end(rest);
    bool removes = out_.kind == Override::Kind::remove;
    if (!take_key(trim(rest.substr(0, end)), end == std::string_view::npos && !removes))
      return std::nullopt;
    if (end == std::string_view::npos) return std::move(out_);
    size_t offset = text_.text.size() - rest.size() + end + 1;
    TextOrigin origin = origin_;
    origin.offset += offset;
    const ValueUse use = sweeps_                          ? ValueUse::sweep
                         : is_text_ && is_text_(out_.key) ? ValueUse::text
                                                          : ValueUse::single;
    auto value = parse_value(rest.substr(end + 1), origin, use, report_);
    if (!value) return std::nullopt;
    if (auto* plain = std::get_if<Node>(&*value)) {
      out_.value = std::move(*plain);
    } else if (removes) {
      return fail("a removal can have only one value", "write ~" + visible(out_.key));
    } else if (auto* sweep = std::get_if<SweepValue>(&*value)) {
      out_.sweep = std::move(*sweep);
    } else {
      out_.edit = std::move(std::get<ListEdit>(*value));
      if (is_group_key(out_.key))
        return fail("a config group is not a list, so it cannot be edited", "write group=[a, b]");
    }
    return std::move(out_);
  }

 private:
  std::nullopt_t fail(const std::string& message, const std::string& help) {
    report_.error("override", "", out_.where, message).fix(help);
    return std::nullopt;
  }

  bool readable(const std::string& text) {
    if (text.size() > kMaxArgumentBytes)
      return fail("the argument is too long", "put it into a recipe"), false;
    if (!valid_utf8(text)) return fail("the argument is not UTF-8", ""), false;
    if (text.find('\0') == std::string::npos) return true;
    return fail("the argument contains a NUL character", ""), false;
  }

  bool take_key(std::string_view key, bool no_value) {
    if (key.size() > kMaxKeyBytes)
      return fail(cat("'", visible(key, 40), "' is too long for a key: ", key.size(),
                      " bytes, the maximum is ", kMaxKeyBytes),
                  "a key is the path of a setting: section.key"),
             false;
    out_.key = std::string(key);
    if (no_value) return fail("wanted key=value", "write " + meant_pair(key)), false;
    if (key.empty()) return fail("the key before '=' is empty", "write key=value"), false;
    if (!is_key(key))
      return fail(cat("'", visible(key), "' is not a key"),
                  "a key consists of letters, digits, '_' and '.'"),
             false;
    auto path = parse_path(key);
    if (path && path->size() > YamlLimits().depth)
      return fail(cat("'", visible(key, 40), "' leads ", path->size(),
                      " levels, but a recipe has at most ", YamlLimits().depth),
                  "write section.key=value"),
             false;
    if (!is_group_key(key) && !path)
      return fail(cat("'", visible(key), "' is not the path of a setting"),
                  "write section.key=value"),
             false;
    return true;
  }

  /// Takes the value literally: no grammar, no interpolation; the schema decides its type.
  std::optional<Override> raw_pair() {
    if (!take_key(trim(text_.text), false)) return std::nullopt;
    if (is_group_key(out_.key))
      return fail("a config group is chosen by group=option", "write it without --set");
    bool literal = has_interpolation(*text_.raw);
    out_.value = Node::verbatim(literal ? escape_interpolation(*text_.raw) : *text_.raw);
    out_.value->set_location(out_.where);
    return std::move(out_);
  }

  const OverrideText& text_;
  TextOrigin origin_;
  bool sweeps_;
  const std::function<bool(const std::string&)>& is_text_;
  Report& report_;
  Override out_;
};

/// 'text' with quotes, and backslashes before quotes, escaped.
/// Line ends and tabs are written as \n and \t, which need double quotes.
std::string in_double_quotes(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : std::string(1, c);
  }
  return out + '"';
}

std::string in_quotes(std::string_view text) {
  if (text.find('\n') != std::string_view::npos) return in_double_quotes(text);
  std::string out = "'";
  size_t slashes = 0;
  for (char c : text) {
    if (c == '\'') out.append(slashes + 1, '\\');
    slashes = c == '\\' ? slashes + 1 : 0;
    out += c;
  }
  return out.append(slashes, '\\') + "'";
}

/// True when the value parser reads `text` as the same node.
bool reads_back(const std::string& text, const Node& node, bool nested) {
  Report ignored;
  auto source =
      std::make_shared<Source>(SourceKind::built_in, "", nested ? "[" + text + "]" : text);
  auto read = parse_override_value(source, 0, ignored);
  if (!read || (nested && read->size() != 1)) return false;
  const Node& same = nested ? read->items()[0] : *read;
  return same.kind() == node.kind() && same.as_text() == node.as_text() &&
         same.quoted() == node.quoted();
}

std::string number_word(const Node& node) {
  std::string text = node.as_text();
  auto whole = text.starts_with("0x") ? parse_integer(text) : std::nullopt;
  if (whole) return std::to_string(*whole);  // 0x10 is not a number here
  std::string_view sign = text.starts_with('-') ? "-" : "";
  std::string_view body =
      std::string_view(text).substr(sign.size() + (text.starts_with('+') ? 1 : 0));
  if (body.starts_with(".i") || body.starts_with(".I")) return cat(sign, "inf");
  if (body.starts_with(".n") || body.starts_with(".N")) return "nan";
  return text;
}

std::string value_text(const Node& node, bool nested) {
  switch (node.kind()) {
    case NodeKind::null:
      return "null";
    case NodeKind::boolean:
      return node.as_bool() ? "true" : "false";
    case NodeKind::integer:
    case NodeKind::number:
      return number_word(node);
    case NodeKind::string: {
      // Quotes are needed: a function in the text would be called, and an override is one line.
      bool call = node.as_text().find_first_of("(\n") != std::string::npos;
      return !call && reads_back(node.as_text(), node, nested) ? node.as_text()
                                                               : in_quotes(node.as_text());
    }
    case NodeKind::list: {
      std::vector<std::string> items;
      for (const auto& item : node.items()) items.push_back(value_text(item, true));
      return "[" + join(items, ",") + "]";
    }
    case NodeKind::map: {
      std::vector<std::string> items;
      for (const auto& entry : node.entries())
        items.push_back(in_quotes(entry.key) + ":" + value_text(entry.value, true));
      return "{" + join(items, ",") + "}";
    }
  }
  return {};
}

}  // namespace

Location TextOrigin::at(size_t position) const {
  if (!exact) return where;
  if (line.empty()) return locate(source, offset + position);
  auto characters =
      std::count_if(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(offset + position),
                    [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  return {source, where.line, where.column + static_cast<int>(characters)};
}

std::string argument_name(int argument) {
  return argument == 0 ? "command line" : cat("command line, argument ", argument);
}

bool looks_like_override(std::string_view argument) {
  if (argument.starts_with("--")) return false;
  bool removes = argument.starts_with('~');
  take_sign(argument);
  std::string_view key = argument.substr(0, override_key_end(argument));
  if (key.size() == argument.size() && !removes) return false;
  return !key.empty() && is_key(key);
}

std::optional<Override> parse_override(const OverrideText& text, Report& report, bool sweeps,
                                       const std::function<bool(const std::string&)>& is_text) {
  return OverrideParser(text, sweeps, is_text, report).parse();
}

std::string override_value_text(const Node& value) { return value_text(value, false); }

std::string override_line(const OverrideText& text) {
  if (!text.raw) return text.text;
  std::string value = has_interpolation(*text.raw) ? escape_interpolation(*text.raw) : *text.raw;
  return cat(text.text, "=",
             override_value_text(Node::plain(value).is(NodeKind::string) ? Node::string(value)
                                                                         : Node::plain(value)));
}

std::vector<OverrideText> read_override_lines(const SourcePtr& source, Report& report) {
  std::vector<OverrideText> out;
  std::string_view rest = source->text();
  int line = 1;
  if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);
  for (; !rest.empty(); ++line) {
    size_t end = rest.find('\n');
    std::string_view whole = rest.substr(0, end), text = trim(whole);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (text.empty() || text.starts_with('#')) continue;
    size_t indent = static_cast<size_t>(text.data() - whole.data());
    Location where{source, line, static_cast<int>(indent) + 1};
    if (!looks_like_override(text))
      report.error("override", "", where, cat("'", visible(text, 60), "' is not an override"))
          .fix("write one key=value per line; a comment starts with '#'");
    else
      out.push_back({std::string(text), 0, where, true, {}});
    if (out.size() <= kMaxFileLines) continue;
    report.error("override", "", where, cat("more than ", kMaxFileLines, " overrides"))
        .fix("write a recipe");
    break;
  }
  return out;
}

std::vector<OverrideText> read_override_file(const std::filesystem::path& path, Report& report) {
  try {
    return read_override_lines(
        std::make_shared<Source>(SourceKind::file, path.string(), read_file(path, kMaxFileBytes)),
        report);
  } catch (const Error& fault) {
    report
        .error("file", "", {},
               cat("cannot read the overrides of ", visible(path.string()), ": ", fault.message()))
        .fix(fault.hint());
    return {};
  }
}

}  // namespace mtrain
