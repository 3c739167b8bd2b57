#include "mtrain/chat/chat_template.h"

#include <algorithm>
#include <array>

#include "interpreter.h"
#include "mtrain/base/error.h"

namespace mtrain::chat {

using VK = Value::Kind;

struct ChatTemplate::Parsed {
  std::string name;
  Body body;
};

namespace {

constexpr size_t kLongestTemplate = 1u << 20;

Value strftime_now(const std::tm& now, const Arguments& given) {
  const std::string& format = text_argument(given.get(0, "format"), "a format of time").bytes;
  if (format.empty() || format.size() > 256) return Value::text({});
  std::array<char, 2048> buffer{};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"  // it reads nothing but `now`, and is told how much it may write
  size_t length = std::strftime(buffer.data(), buffer.size(), format.c_str(), &now);
#pragma GCC diagnostic pop
  return Value::text(Text(std::string_view(buffer.data(), length)));
}

Value range(const Arguments& given) {
  std::array<int64_t, 3> bounds = {0, 0, 1};
  for (size_t i = 0; i < std::min<size_t>(3, given.positional.size()); ++i) {
    const Value& v = given.positional[i];
    if (!v.is(VK::integer)) throw Fault("TypeError", cat("'", v.type_name(), "' object cannot be interpreted as an integer"));
    bounds[given.positional.size() == 1 ? 1 : i] = v.as_integer();
  }
  auto [begin, end, by] = bounds;
  if (by == 0) throw Fault("ValueError", "range() arg 3 must not be zero");
  List out;
  for (int64_t i = begin; by > 0 ? i < end : i > end;) {
    Meter::steps(1);
    out.push_back(Value::integer(i));
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  return Value::list(std::move(out));
}

Value filled_map(Value map, const Arguments& given) {
  for (const auto& source : given.positional) {
    if (!source.is(VK::map)) throw Fault("TypeError", cat("'", source.type_name(), "' object is not a mapping"));
    for (const auto& [key, value] : source.as_map().entries) map.as_map().set(key, value);
  }
  for (const auto& [name, value] : given.named) {
    if (value.is(VK::space)) throw Fault("TypeError", "a namespace cannot be put into another value");
    map.as_map().set(Value::text(Text(name)), value);
  }
  return map;
}

void define_functions(Interpreter& in, const std::tm& now) {
  in.define("raise_exception", Value::callable("function", [](Arguments& given) -> Value {
    const Value* message = given.get(0, "message");
    throw Fault("TemplateError", message ? to_text(*message).bytes : "");
  }));
  in.define("strftime_now", Value::callable("function", [now](Arguments& given) { return strftime_now(now, given); }));
  in.define("range", Value::callable("function", [](Arguments& given) { return range(given); }));
  in.define("namespace", Value::callable("type", [](Arguments& given) { return filled_map(Value::space(), given); }));
  in.define("dict", Value::callable("type", [](Arguments& given) {
    Value map = filled_map(Value::map(), given);
    return Value::map(map.as_map().entries);
  }));
}

bool says_assistant(const Value& message) {
  if (!message.is(VK::map)) return false;
  const Value* role = message.as_map().find("role");
  return role && role->is(VK::text) && role->as_text().bytes == "assistant";
}

/// Stretches that touch become one.
void add_stretch(std::vector<Stretch>& to, Stretch next) {
  if (next.end <= next.begin) return;
  if (!to.empty() && next.begin <= to.back().end)
    to.back().end = std::max(to.back().end, next.end);
  else
    to.push_back(next);
}

/// From the first to the last byte of each assistant's message, and a special token that follows.
void mask_by_origins(const ChatInput& input, RenderedChat& chat) {
  const Text& text = chat.text;
  const List& messages = input.messages.items();
  std::vector<Stretch> spans(messages.size(), {text.bytes.size(), 0});
  for (size_t i = 0; i < text.origins.size(); ++i) {
    Origin origin = text.origins[i];
    if (origin == kTemplate || origin == kOtherInput || origin > messages.size()) continue;
    Stretch& span = spans[origin - 1u];
    span.begin = std::min(span.begin, i);
    span.end = i + 1;
  }
  for (size_t m = 0; m < messages.size(); ++m) {
    if (!says_assistant(messages[m]) || spans[m].end == 0) continue;
    Stretch span = spans[m];
    for (const auto& [name, token] : input.special)
      if (!token.empty() && text.bytes.compare(span.end, token.size(), token) == 0) {
        span.end += token.size();
        break;
      }
    add_stretch(chat.assistant, span);
  }
  chat.mask = RenderedChat::Mask::origins;
}

}  // namespace

Value messages_from_json(std::string_view json) {
  Value all = from_json(json);
  if (!all.is(VK::list)) throw Error(ErrorClass::data, "messages are not a list", "wanted [{\"role\": …, \"content\": …}, …]");
  List out;
  for (size_t i = 0; i < all.items().size(); ++i) {
    if (!all.items()[i].is(VK::map))
      throw Error(ErrorClass::data, cat("message ", i, " is not an object"), "wanted {\"role\": …, \"content\": …}");
    auto origin = static_cast<Origin>(std::min<size_t>(i + 1, kLastMessage));
    std::vector<std::pair<Value, Value>> entries;  // who speaks, and the fields' names, are nobody's words
    for (const auto& [key, value] : all.items()[i].as_map().entries)
      entries.emplace_back(key, key.as_text().bytes == "role" ? value : with_origin(value, origin));
    out.push_back(Value::map(std::move(entries)));
  }
  return Value::list(std::move(out));
}

ChatTemplate::ChatTemplate(std::string_view source, std::string name) {
  MT_USER_CHECK(source.size() <= kLongestTemplate, ErrorClass::data,
                cat("chat template ", printable(name), " is ", human_bytes(source.size()), " long"),
                cat("templates have up to ", human_bytes(kLongestTemplate)));
  Body body = parse_template(source, name);
  parsed_ = std::make_unique<const Parsed>(Parsed{std::move(name), std::move(body)});
}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

RenderedChat ChatTemplate::render_messages(const ChatInput& input, size_t count, bool prompt) const {
  Interpreter interpreter{Budget{}};
  define_functions(interpreter, input.now);
  for (const auto& [name, text] : input.special) interpreter.define(name, Value::text(Text(text)));
  for (const auto& [name, value] : input.more) interpreter.define(name, value);
  const List& all = input.messages.items();
  interpreter.define("messages", Value::list(List(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count))));
  if (!input.tools.is(VK::none)) interpreter.define("tools", input.tools);
  if (!input.documents.is(VK::none)) interpreter.define("documents", input.documents);
  interpreter.define("add_generation_prompt", Value::boolean(prompt));
  RenderedChat out;
  try {
    out.text = interpreter.run(parsed_->body);
  } catch (const PlacedFault& e) {
    throw Error(ErrorClass::data,
                cat("chat template ", printable(parsed_->name), ":", e.place.line, ":", e.place.column, ": ", e.fault.whole),
                e.fault.type == "TemplateError" ? "the template itself refuses this conversation" : "");
  }
  for (auto [begin, end] : interpreter.generations()) add_stretch(out.assistant, {begin, end});
  if (!out.assistant.empty()) out.mask = RenderedChat::Mask::generation;
  return out;
}

RenderedChat ChatTemplate::render(const ChatInput& input) const {
  return render_messages(input, input.messages.items().size(), input.add_generation_prompt);
}

bool ChatTemplate::mask_by_prefixes(const ChatInput& input, RenderedChat& chat) const {
  const List& messages = input.messages.items();
  std::vector<Stretch> found;
  for (size_t m = 0; m < messages.size(); ++m) {
    if (!says_assistant(messages[m])) continue;
    try {
      std::string before = render_messages(input, m, true).text.bytes;
      std::string after = render_messages(input, m + 1, false).text.bytes;
      if (!after.starts_with(before) || !chat.text.bytes.starts_with(after)) return false;
      add_stretch(found, {before.size(), after.size()});
    } catch (const Error&) {
      return false;  // the template does not like conversations that end there
    }
  }
  chat.assistant = std::move(found);
  chat.mask = RenderedChat::Mask::prefixes;
  return true;
}

RenderedChat ChatTemplate::render_masked(const ChatInput& input) const {
  RenderedChat chat = render(input);
  const List& messages = input.messages.items();
  bool speaks = std::any_of(messages.begin(), messages.end(), says_assistant);
  if (chat.mask == RenderedChat::Mask::none && speaks && !mask_by_prefixes(input, chat)) mask_by_origins(input, chat);
  return chat;
}

std::vector<ChatPiece> split_special(const Text& text, const std::vector<std::string>& tokens) {
  std::vector<ChatPiece> pieces;
  auto written = [&](size_t begin, size_t size) {
    auto first = text.origins.begin() + static_cast<std::ptrdiff_t>(begin);
    return std::all_of(first, first + static_cast<std::ptrdiff_t>(size), [](Origin o) { return o == kTemplate; });
  };
  std::array<bool, 256> begins{};
  for (const auto& token : tokens)
    if (!token.empty()) begins[static_cast<unsigned char>(token[0])] = true;
  size_t plain = 0;
  auto flush = [&](size_t end) {
    if (end > plain) pieces.push_back({{plain, end}});
  };
  for (size_t i = 0; i < text.bytes.size();) {
    int best = -1;
    for (size_t t = 0; begins[static_cast<unsigned char>(text.bytes[i])] && t < tokens.size(); ++t) {
      bool longer = best < 0 || tokens[t].size() > tokens[static_cast<size_t>(best)].size();
      if (!tokens[t].empty() && longer && text.bytes.compare(i, tokens[t].size(), tokens[t]) == 0 &&
          written(i, tokens[t].size()))
        best = static_cast<int>(t);
    }
    if (best < 0) {
      ++i;
      continue;
    }
    flush(i);
    size_t end = i + tokens[static_cast<size_t>(best)].size();
    pieces.push_back({{i, end}, best});
    plain = i = end;
  }
  flush(text.bytes.size());
  return pieces;
}

}  // namespace mtrain::chat
