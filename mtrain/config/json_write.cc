#include "mtrain/config/json_write.h"

#include <fmt/format.h>

#include <cmath>

#include "mtrain/base/text.h"

namespace mtrain {
namespace {

void quote(std::string_view text, std::string& out) {
  out += '"';
  // Broken UTF-8 in one value must not make the whole output invalid.
  std::string safe = valid_utf8(text) ? std::string(text) : printable(text, text.size() * 4);
  for (char c : safe) {
    if (c == '"' || c == '\\')
      (out += '\\') += c;
    else if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  out += '"';
}

void scalar(const Node& node, std::string& out) {
  switch (node.kind()) {
    case NodeKind::null:
      out += "null";
      return;
    case NodeKind::boolean:
      out += node.as_bool() ? "true" : "false";
      return;
    case NodeKind::integer:
      if (auto value = parse_integer(node.as_text())) {
        out += std::to_string(*value);
        return;
      }
      break;
    case NodeKind::number:
      if (auto value = parse_number(node.as_text()); value && std::isfinite(*value)) {
        out += shortest(*value);
        return;
      }
      break;
    default:
      break;
  }
  quote(node.as_text(), out);
}

void write(const Node& node, size_t indent, std::string& out) {
  if (node.is_scalar()) return scalar(node, out);
  bool map = node.is_map();
  out += map ? '{' : '[';
  for (size_t i = 0; i < node.size(); ++i) {
    out += i == 0 ? "\n" : ",\n";
    out.append(indent + 2, ' ');
    if (map) {
      quote(node.entries()[i].key, out);
      out += ": ";
    }
    write(map ? node.entries()[i].value : node.items()[i], indent + 2, out);
  }
  if (node.size() > 0) {
    out += '\n';
    out.append(indent, ' ');
  }
  out += map ? '}' : ']';
}

}  // namespace

std::string write_json(const Node& node) {
  std::string out;
  write(node, 0, out);
  return out;
}

Node make_map(std::initializer_list<std::pair<const char*, Node>> entries) {
  Node out = Node::map();
  for (const auto& [key, value] : entries) out.append(key, {}, value);
  return out;
}

}  // namespace mtrain
