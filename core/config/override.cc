#include "mtrain/config/override.h"

#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

constexpr size_t kMaxArgumentBytes = size_t{1} << 16;

/// Where the key ends: the first '=' outside of brackets and not escaped.
size_t key_end(std::string_view text) {
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

bool is_key_character(char c) {
  auto u = static_cast<unsigned char>(c);
  return u >= 0x80 || std::isalnum(u) || std::string_view("_-./@$:[]=\\").find(c) != std::string_view::npos;
}

/// Removes the sign that says what the override does.
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

/// Nearest keys beside the one that is missing.
std::string near_key(const Node& root, const std::string& path) {
  auto parts = parse_path(path);
  if (!parts || parts->empty()) return {};
  const Node* at = &root;
  std::string parent;
  for (const auto& part : *parts) {
    const Node* next = at->get(part);
    if (!next) {
      std::vector<std::string> keys;
      for (const auto& entry : at->entries()) keys.push_back(entry.key);
      auto near = nearest(part, keys, 1);
      return near.empty() ? "" : join_path(parent, near[0]);
    }
    parent = join_path(parent, part);
    at = next;
  }
  return {};
}

void remove(Node& root, const Override& override, Report& report) {
  const Node* there = root.find(override.key);
  if (!there) {
    auto& fault =
        report.error("override", override.key, override.where, "cannot remove it: it is not in the recipe");
    std::string near = near_key(root, override.key);
    if (!near.empty()) fault.fix("did you mean ~" + near + "?");
  } else if (override.value && !override.value->same_value(*there)) {
    report
        .error("override", override.key, override.where,
               cat("is not removed: its value is ", brief(*there), ", not ", brief(*override.value)))
        .fix("~" + override.key + " removes it whatever its value");
  } else {
    root.erase(override.key);
  }
}

}  // namespace

bool looks_like_override(std::string_view argument) {
  if (argument.starts_with("--")) return false;
  bool removes = argument.starts_with('~');
  take_sign(argument);
  std::string_view key = argument.substr(0, key_end(argument));
  if (key.size() == argument.size() && !removes) return false;
  return !key.empty() && std::all_of(key.begin(), key.end(), is_key_character);
}

std::optional<Override> parse_override(const OverrideText& text, Report& report) {
  std::string name =
      text.written ? text.written.text() + " (patch)" : cat("command line, argument ", text.argument);
  auto source = std::make_shared<Source>(SourceKind::command_line, std::move(name), text.text);
  Override out;
  out.where = {source, 1, 1};
  auto fail = [&](const std::string& message, const std::string& help) {
    report.error("override", "", out.where, message).fix(help);
    return std::nullopt;
  };
  if (text.text.size() > kMaxArgumentBytes) return fail("the argument is too long", "put it into a recipe");
  if (!valid_utf8(text.text)) return fail("the argument is not UTF-8", "");
  if (text.text.find('\0') != std::string::npos) return fail("the argument holds a NUL character", "");
  std::string_view rest = text.text;
  out.kind = take_sign(rest);
  size_t end = key_end(rest);
  out.key = std::string(trim(rest.substr(0, end)));
  bool removes = out.kind == Override::Kind::remove;
  if (end == std::string_view::npos && !removes)
    return fail("wanted key=value", "write " + visible(out.key) + "=VALUE");
  if (out.key.empty()) return fail("there is no key before the '='", "write key=value");
  if (!std::all_of(out.key.begin(), out.key.end(), is_key_character))
    return fail(cat("'", visible(out.key), "' is no key"), "a key is made of letters, digits, '_' and '.'");
  if (out.key.find_first_of("/@:") == std::string::npos && !parse_path(out.key))
    return fail(cat("'", visible(out.key), "' is no path of a setting"), "write section.key=value");
  if (end == std::string_view::npos) return out;
  size_t offset = text.text.size() - rest.size() + end + 1;
  auto value = parse_override_value(source, offset, report);
  if (!value) return std::nullopt;
  out.value = std::move(value);
  return out;
}

void apply_override(Node& root, const Override& override, Report& report) {
  if (override.kind == Override::Kind::remove) return remove(root, override, report);
  Node* there = root.find(override.key);
  bool open = !there || there->is_null() || there->is_missing();
  const Node& value = *override.value;
  if (override.kind == Override::Kind::add && !open && value.is_scalar()) {
    report
        .error("override", override.key, override.where,
               cat("cannot be added: it is ", brief(*there), " already"))
        .fix(cat(override.key, "=… changes it; ++", override.key, "=… changes or adds it"));
    return;
  }
  try {
    if (there && there->is_map() && value.is_map())
      there->merge(value);
    else
      root.set(override.key, value);
  } catch (const Error& fault) {
    report.error("override", override.key, override.where, fault.message());
  }
}

}  // namespace mtrain
