// Converts values to text like Python's str, repr and json.dumps.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "mtrain/base/error.h"
#include "mtrain/chat/value.h"

namespace mtrain::chat {
namespace {

using VK = Value::Kind;
/// Python's repr of a float: the shortest digits, an exponent below 1e-4 and from 1e16.
std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer{};
  double size = std::fabs(value);
  bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                           plain ? std::chars_format::fixed : std::chars_format::scientific)
                 .ptr;
  std::string out(buffer.data(), end);
  return plain && out.find('.') == std::string::npos ? out + ".0" : out;
}

/// A text in quotes; `escape` returns the escape of a byte, or nothing when the byte is written as
/// it is.
template <class Escape>
Text quoted(const Text& text, char quote, const Escape& escape) {
  Text out(std::string_view(&quote, 1));
  for (size_t i = 0; i < text.bytes.size(); ++i) {
    std::string with = escape(static_cast<unsigned char>(text.bytes[i]));
    Origin origin = text.origins[i];
    out.append(with.empty() ? Text(std::string_view(&text.bytes[i], 1), origin)
                            : Text(with, origin));
  }
  out.append(Text(std::string_view(&quote, 1)));
  return out;
}

/// `prefix` and the value in at least `digits` hexadecimal digits.
std::string hex(const char* prefix, int digits, unsigned value) {
  std::string out;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4)
    out += "0123456789abcdef"[(value >> shift) & 15u];
  return prefix + out;
}

Text repr_text(const Text& text) {
  bool apostrophe = text.bytes.find('\'') != std::string::npos,
       double_quote = text.bytes.find('"') != std::string::npos;
  char quote = apostrophe && !double_quote ? '"' : '\'';
  return quoted(text, quote, [quote](unsigned char c) -> std::string {
    if (c == '\\') return "\\\\";
    if (c == '\n') return "\\n";
    if (c == '\r') return "\\r";
    if (c == '\t') return "\\t";
    if (c == static_cast<unsigned char>(quote)) return std::string("\\") + quote;
    return c < 0x20 || c == 0x7f ? hex("\\x", 2, c) : "";
  });
}

Text json_text(const Text& text) {
  return quoted(text, '"', [](unsigned char c) -> std::string {
    switch (c) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      case '\b':
        return "\\b";
      case '\f':
        return "\\f";
      default:
        return c < 0x20 ? hex("\\u", 4, c) : "";
    }
  });
}

Text show_items(const List& items, const char* open, const char* close) {
  Text out{std::string_view(open)};
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(Text(", "));
    out.append(repr(items[i]));
  }
  out.append(Text(close));
  return out;
}

struct JsonStyle {
  int indent;
  bool sort_keys;
};

class JsonWriter {
 public:
  explicit JsonWriter(JsonStyle style) : style_(style) {}

  void write(const Value& value, int depth) {
    switch (value.kind()) {
      case VK::none:
        return out_.append(Text("null"));
      case VK::boolean:
        return out_.append(Text(value.as_bool() ? "true" : "false"));
      case VK::text:
        return out_.append(json_text(value.as_text()));
      case VK::real:
        return write_real(value.as_real());
      case VK::integer:
        return out_.append(to_text(value));
      case VK::list:
      case VK::tuple:
        return write_list(value.items(), depth);
      case VK::map:
        return write_map(value.as_map(), depth);
      default:
        throw Fault("TypeError",
                    cat("Object of type ", value.type_name(), " is not JSON serializable"));
    }
  }
  Text take() { return std::move(out_); }

 private:
  void write_real(double value) {
    if (std::isnan(value)) return out_.append(Text("NaN"));
    if (std::isinf(value)) return out_.append(Text(value < 0 ? "-Infinity" : "Infinity"));
    out_.append(Text(float_text(value)));
  }
  void new_line(int depth) {
    if (style_.indent >= 0)
      out_.append(Text("\n" + std::string(static_cast<size_t>(style_.indent * depth), ' ')));
  }
  void separate(bool first, int depth) {
    if (!first) out_.append(Text(style_.indent >= 0 ? "," : ", "));
    new_line(depth);
  }
  void write_list(const List& items, int depth) {
    if (items.empty()) return out_.append(Text("[]"));
    out_.append(Text("["));
    for (size_t i = 0; i < items.size(); ++i) {
      separate(i == 0, depth + 1);
      write(items[i], depth + 1);
    }
    new_line(depth);
    out_.append(Text("]"));
  }
  void write_map(Map& map, int depth) {
    if (map.entries.empty()) return out_.append(Text("{}"));
    std::vector<const std::pair<Value, Value>*> order;
    for (const auto& entry : map.entries) order.push_back(&entry);
    if (style_.sort_keys)
      std::stable_sort(order.begin(), order.end(),
                       [](auto* a, auto* b) { return less(a->first, b->first); });
    out_.append(Text("{"));
    for (size_t i = 0; i < order.size(); ++i) {
      separate(i == 0, depth + 1);
      write_key(order[i]->first);
      out_.append(Text(": "));
      write(order[i]->second, depth + 1);
    }
    new_line(depth);
    out_.append(Text("}"));
  }
  void write_key(const Value& key) {
    if (key.is(VK::text)) return out_.append(json_text(key.as_text()));
    if (!key.number() && !key.is(VK::none))
      throw Fault("TypeError",
                  cat("keys must be str, int, float, bool or None, not ", key.type_name()));
    JsonWriter inner(style_);
    inner.write(key, 0);
    out_.append(json_text(inner.take()));
  }

  JsonStyle style_;
  Text out_;
};

}  // namespace

Text to_text(const Value& value) {
  switch (value.kind()) {
    case VK::missing:
      return {};
    case VK::none:
      return Text("None");
    case VK::boolean:
      return Text(value.as_bool() ? "True" : "False");
    case VK::integer:
      return Text(std::to_string(value.as_integer()));
    case VK::real:
      return Text(float_text(value.as_real()));
    case VK::text:
      return value.as_text();
    case VK::space:
      return Text("<Namespace>");
    case VK::generator:
      return Text("<generator object>");
    case VK::callable:
      return Text(cat("<", value.as_callable().name, ">"));
    default:
      return repr(value);
  }
}

Text repr(const Value& value) {
  switch (value.kind()) {
    case VK::text:
      return repr_text(value.as_text());
    case VK::list:
      return show_items(value.items(), "[", "]");
    case VK::tuple:
      return show_items(value.items(), "(", value.items().size() == 1 ? ",)" : ")");
    case VK::map: {
      Text out("{");
      for (const auto& [key, item] : value.as_map().entries) {
        if (out.bytes.size() > 1) out.append(Text(", "));
        out.append(repr(key));
        out.append(Text(": "));
        out.append(repr(item));
      }
      out.append(Text("}"));
      return out;
    }
    case VK::missing:
      return Text("Undefined");
    default:
      return to_text(value);
  }
}

Text to_json(const Value& value, int indent, bool sort_keys) {
  JsonWriter writer({indent, sort_keys});
  writer.write(value, 0);
  return writer.take();
}

}  // namespace mtrain::chat
