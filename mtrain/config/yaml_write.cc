#include "mtrain/config/yaml_write.h"

#include <fmt/format.h>

#include <algorithm>

#include "mtrain/base/text.h"
#include "mtrain/config/share.h"
#include "mtrain/config/yaml_mistakes.h"

namespace mtrain {
namespace {

/// Texts that a reader of YAML 1.1 or 1.2 would not read as a string.
bool reads_as_other(std::string_view text) {
  return resolve_scalar(text) != NodeKind::string || !boolean_trap(text).empty() ||
         !number_trap(text).empty() || text == "None" || foreign_notation(text);
}

/// Safe as an unquoted scalar in both block and flow style. Deliberately narrower than YAML allows.
bool plain_is_safe(std::string_view text) {
  if (text.empty() || reads_as_other(text)) return false;
  // 5% is a percentage only without quotes.
  if (text.find_first_of(" \t\r\n") == std::string_view::npos && parse_share(text)) return true;
  auto word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '/' || c == '.' ||
           c == '$';
  };
  if (!word(text[0]) && text[0] != '(' && !(text[0] == '-' && text.size() > 1 && word(text[1])))
    return false;
  // A text that starts like a number may be a number for some reader: dates, 1:30, 4_000.5.
  char first = text[0] == '-' || text[0] == '.' ? text[text.size() > 1 ? 1 : 0] : text[0];
  bool digit_first = first >= '0' && first <= '9';
  bool lettered = std::any_of(text.begin(), text.end(), [](unsigned char c) {
    return c < 0x80 && std::isalpha(c) && c != 'e' && c != 'E' && c != 'x';
  });
  if (digit_first && !lettered) return false;
  if (text == "..." || text.starts_with("---") || text.back() == ' ') return false;
  for (size_t i = 0; i < text.size(); ++i) {
    auto c = static_cast<unsigned char>(text[i]);
    bool ok = c < 0x80 && (word(text[i]) || std::string_view("+-*()<>=~^@ ").find(text[i]) !=
                                                std::string_view::npos);
    if (c == ':' && i + 1 < text.size() && word(text[i + 1])) ok = true;
    if (!ok) return false;
  }
  return true;
}

std::string double_quoted(std::string_view text) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    size_t begin = i;
    char32_t c = next_character(text, i);
    if (c == '"' || c == '\\')
      out += {'\\', static_cast<char>(c)};
    else if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\r')
      out += "\\r";
    else if (c < 0x20 || c == 0x7F)
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    // YAML treats NEL and the line and paragraph separators as line ends.
    else if (c == 0x85 || c == 0x2028 || c == 0x2029 || deceptive(c)) {
      out += c > 0xFFFF ? fmt::format("\\U{:08x}", static_cast<unsigned>(c))
                        : fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out.append(text.substr(begin, i - begin));
    }
  }
  return out + '"';
}

std::string scalar_text(const Node& node) {
  if (node.is_null()) return "null";
  if (node.is(NodeKind::string)) return write_string(node.as_text());
  return node.as_text();
}

void flow(const Node& node, std::string& out, size_t max_bytes) {
  if (out.size() > max_bytes) return;
  if (node.is_scalar()) {
    out += scalar_text(node);
    return;
  }
  out += node.is_list() ? '[' : '{';
  bool first = true;
  auto separate = [&] {
    if (!first) out += ", ";
    first = false;
  };
  for (const auto& item : node.items()) {
    separate();
    flow(item, out, max_bytes);
  }
  for (const auto& entry : node.entries()) {
    separate();
    out += write_string(entry.key) + ": ";
    flow(entry.value, out, max_bytes);
  }
  out += node.is_list() ? ']' : '}';
}

class BlockWriter {
 public:
  explicit BlockWriter(const WriteOptions& options) : options_(options) {}
  std::string out;

  void map(const Node& node, const std::string& path, int indent, bool first_inline) {
    for (const auto& entry : node.entries()) {
      if (!first_inline) out.append(static_cast<size_t>(indent), ' ');
      first_inline = false;
      // A key longer than this is not a simple key in YAML and needs the explicit form.
      constexpr size_t kSimpleKeyBytes = 900;
      bool explicit_key = entry.key.size() > kSimpleKeyBytes;
      if (explicit_key) {
        out += "? " + write_string(entry.key) + "\n";
        out.append(static_cast<size_t>(indent), ' ');
      } else {
        out += write_string(entry.key);
      }
      out += ':';
      value(entry.value, options_.comment ? join_path(path, entry.key) : path, indent);
    }
  }

 private:
  void list(const Node& node, const std::string& path, int indent) {
    for (size_t i = 0; i < node.items().size(); ++i) {
      const Node& item = node.items()[i];
      out.append(static_cast<size_t>(indent), ' ');
      out += '-';
      std::string item_path = options_.comment ? join_path(path, std::to_string(i)) : path;
      if (item.is_map() && item.size() > 0) {
        out += ' ';
        map(item, item_path, indent + 2, true);
      } else {
        value(item, item_path, indent);
      }
    }
  }

  void value(const Node& node, const std::string& path, int indent) {
    if (node.is_map() && node.size() > 0) {
      out += '\n';
      map(node, path, indent + 2, false);
      return;
    }
    if (node.is_list() && !fits(node, indent)) {
      out += '\n';
      list(node, path, indent + 2);
      return;
    }
    out += ' ';
    flow(node, out, std::string::npos);
    std::string note = options_.comment ? options_.comment(path, node) : "";
    if (!note.empty()) out += "  # " + visible(note);
    out += '\n';
  }

  bool fits(const Node& node, int indent) const {
    bool scalars = std::all_of(node.items().begin(), node.items().end(),
                               [](const Node& x) { return x.is_scalar(); });
    return scalars &&
           write_flow(node, options_.flow_columns).size() + static_cast<size_t>(indent) <=
               options_.flow_columns;
  }

  const WriteOptions& options_;
};

}  // namespace

std::string write_yaml(const Node& node, const WriteOptions& options) {
  BlockWriter writer(options);
  if (node.is_map() && node.size() > 0)
    writer.map(node, "", 0, false);
  else
    writer.out = write_flow(node) + "\n";
  return std::move(writer.out);
}

std::string write_flow(const Node& node, size_t max_bytes) {
  std::string out;
  flow(node, out, max_bytes);
  return out;
}

std::string write_string(std::string_view text) {
  return plain_is_safe(text) ? std::string(text) : double_quoted(text);
}

std::string visible(std::string_view text, size_t max_bytes) {
  if (!valid_utf8(text)) return printable(text, max_bytes);
  std::string out;
  for (size_t i = 0; i < text.size();) {
    size_t begin = i;
    char32_t c = next_character(text, i);
    if (begin >= max_bytes) return out + "…";
    if (c == '\t')
      out += ' ';
    else if (c < 0x20 || c == 0x7F)
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    else if (c == 0x85 || c == 0x2028 || c == 0x2029 || deceptive(c))
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out.append(text.substr(begin, i - begin));
  }
  return out;
}

}  // namespace mtrain
