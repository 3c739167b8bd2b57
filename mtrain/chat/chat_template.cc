#include "mtrain/chat/chat_template.h"

#include <algorithm>
#include <array>

#include "interpreter.h"
#include "mtrain/base/error.h"
#include "turns.h"

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
// strftime reads only `now` and writes at most buffer.size() bytes, for any format.
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  size_t length = std::strftime(buffer.data(), buffer.size(), format.c_str(), &now);
#pragma GCC diagnostic pop
  return Value::text(Text(std::string_view(buffer.data(), length)));
}

Value range(const Arguments& given) {
  std::array<int64_t, 3> bounds = {0, 0, 1};
  for (size_t i = 0; i < std::min<size_t>(3, given.positional.size()); ++i) {
    const Value& v = given.positional[i];
    if (!v.is(VK::integer))
      throw Fault("TypeError",
                  cat("'", v.type_name(), "' object cannot be interpreted as an integer"));
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
    if (!source.is(VK::map))
      throw Fault("TypeError", cat("'", source.type_name(), "' object is not a mapping"));
    for (const auto& [key, value] : source.as_map().entries) map.as_map().set(key, value);
  }
  for (const auto& [name, value] : given.named) {
    if (value.is(VK::space))
      throw Fault("TypeError", "a namespace cannot be put into another value");
    map.as_map().set(Value::text(Text(name)), value);
  }
  return map;
}

void define_functions(Interpreter& in, const std::tm& now) {
  in.define("raise_exception", Value::callable("function", [](Arguments& given) -> Value {
              const Value* message = given.get(0, "message");
              throw Fault("TemplateError", message ? to_text(*message).bytes : "");
            }));
  in.define("strftime_now", Value::callable("function", [now](Arguments& given) {
              return strftime_now(now, given);
            }));
  in.define("range", Value::callable("function", [](Arguments& given) { return range(given); }));
  in.define("namespace", Value::callable("type", [](Arguments& given) {
              return filled_map(Value::space(), given);
            }));
  in.define("dict", Value::callable("type", [](Arguments& given) {
              Value map = filled_map(Value::map(), given);
              return Value::map(map.as_map().entries);
            }));
}

}  // namespace

Value messages_from_json(std::string_view json) {
  Value all = from_json(json);
  if (!all.is(VK::list))
    throw Error(ErrorClass::data, "messages are not a list",
                "wanted [{\"role\": …, \"content\": …}, …]");
  List out;
  for (size_t i = 0; i < all.items().size(); ++i) {
    if (!all.items()[i].is(VK::map))
      throw Error(ErrorClass::data, cat("message ", i, " is not an object"),
                  "wanted {\"role\": …, \"content\": …}");
    auto origin = static_cast<Origin>(std::min<size_t>(i + 1, kLastMessage));
    std::vector<std::pair<Value, Value>>
        entries;  // roles and field names do not have the origin of a message
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

RenderedChat ChatTemplate::render_messages(const ChatInput& input, const List& messages,
                                           bool prompt) const {
  Interpreter interpreter{Budget{}};
  define_functions(interpreter, input.now);
  for (const auto& [name, text] : input.special) interpreter.define(name, Value::text(Text(text)));
  for (const auto& [name, value] : input.more) interpreter.define(name, value);
  interpreter.define("messages", Value::list(messages));
  if (!input.tools.is(VK::none)) interpreter.define("tools", input.tools);
  if (!input.documents.is(VK::none)) interpreter.define("documents", input.documents);
  interpreter.define("add_generation_prompt", Value::boolean(prompt));
  RenderedChat out;
  try {
    out.text = interpreter.run(parsed_->body);
  } catch (const LocatedFault& e) {
    throw Error(
        ErrorClass::data,
        cat("chat template ", printable(parsed_->name), ":", e.place.line, ":", e.place.column,
            ": ", e.fault.whole),
        e.fault.type == "TemplateError" ? "the template itself refuses this conversation" : "");
  }
  for (auto [begin, end] : interpreter.generations()) add_stretch(out.assistant, {begin, end});
  if (!out.assistant.empty()) out.mask = RenderedChat::Mask::generation;
  return out;
}

RenderedChat ChatTemplate::render(const ChatInput& input) const {
  return render_messages(input, input.messages.items(), input.add_generation_prompt);
}

RenderedChat ChatTemplate::render_masked(const ChatInput& input) const {
  RenderedChat chat = render(input);
  mark_assistant_turns(
      input,
      [&](const List& messages, bool prompt) {
        return render_messages(input, messages, prompt).text;
      },
      chat);
  return chat;
}

std::vector<ChatPiece> split_special(const Text& text, const std::vector<std::string>& tokens) {
  std::vector<ChatPiece> pieces;
  auto written = [&](size_t begin, size_t size) {
    auto first = text.origins.begin() + static_cast<std::ptrdiff_t>(begin);
    return std::all_of(first, first + static_cast<std::ptrdiff_t>(size),
                       [](Origin o) { return o == kTemplate; });
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
    for (size_t t = 0; begins[static_cast<unsigned char>(text.bytes[i])] && t < tokens.size();
         ++t) {
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
