#include "mtrain/chat/omissions.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

namespace mtrain::chat {
namespace {

constexpr std::array<const char*, 4> kSpoken = {"tool_calls", "reasoning_content", "reasoning",
                                                "thinking"};

/// True where `source` has the name as a whole word.
bool names(std::string_view source, std::string_view name) {
  auto in_word = [&](size_t at) {
    return at < source.size() &&
           (std::isalnum(static_cast<unsigned char>(source[at])) || source[at] == '_');
  };
  for (size_t at = source.find(name); at != std::string_view::npos; at = source.find(name, at + 1))
    if (!(at > 0 && in_word(at - 1)) && !in_word(at + name.size())) return true;
  return false;
}

bool is_empty(const Value& value) {
  return value.is(Value::Kind::none) ||
         (value.is(Value::Kind::text) && value.as_text().bytes.empty()) ||
         (value.is(Value::Kind::list) && value.items().empty());
}

/// The name of the function in a call or a definition, in either form: {"function": {"name"}} or
/// {"name"}.
const Value* function_name(const Value& of) {
  if (!of.is(Value::Kind::map)) return nullptr;
  const Value* function = of.as_map().find("function");
  const bool nested = function && function->is(Value::Kind::map);
  const Value* name = (nested ? function->as_map() : of.as_map()).find("name");
  return name && name->is(Value::Kind::text) ? name : nullptr;
}

/// True when `part` is in the text with the given origin.
bool is_written(const Text& text, const Text& part) {
  for (size_t at = text.bytes.find(part.bytes); at != std::string::npos;
       at = text.bytes.find(part.bytes, at + 1))
    if (part.bytes.empty() || text.origins[at] == part.origins[0]) return true;
  return false;
}

/// The bytes that the template wrote of each message, in order.
std::vector<std::string> written_by_message(const Text& text, size_t messages) {
  std::vector<std::string> out(std::min<size_t>(messages, kLastMessage));
  for (size_t begin = 0, end = 0; begin < text.bytes.size(); begin = end) {
    const Origin origin = text.origins[begin];
    while (end < text.bytes.size() && text.origins[end] == origin) ++end;
    if (origin != kTemplate && origin <= out.size())
      out[origin - 1u].append(text.bytes, begin, end - begin);
  }
  return out;
}

/// The text of a content that every template has to write: without the space around it, and without
/// the reasoning before it, which many templates remove from earlier turns.
std::string_view needed_part(std::string_view content, bool is_assistant) {
  constexpr std::string_view kSpace = " \t\n\v\f\r", kEndOfReasoning = "</think>";
  if (const size_t end = content.rfind(kEndOfReasoning);
      is_assistant && end != std::string_view::npos)
    content.remove_prefix(end + kEndOfReasoning.size());
  const size_t begin = content.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return content.substr(begin, content.find_last_not_of(kSpace) + 1 - begin);
}

/// True when the words of a text, its runs of letters and digits, are in `written` in their order.
/// Escapes for HTML or JSON do not change words.
bool has_words_of(std::string_view text, std::string_view written) {
  size_t at = 0;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    for (end = begin; end < text.size(); ++end) {
      const auto byte = static_cast<unsigned char>(text[end]);
      if (byte < 0x80 && !std::isalnum(byte)) break;
    }
    at = written.find(text.substr(begin, end - begin), at);
    if (at == std::string_view::npos) return false;
    at += end - begin;
  }
  return true;
}

/// True when a content is in the bytes that were written of its message. A filter may have changed
/// it. Then any of these bytes suffices, except in a message whose other texts, such as calls, have
/// the same origin: there the words of the content must be among them.
bool is_content_written(std::string_view content, std::string_view written, bool is_alone) {
  if (content.empty() || written.find(content) != std::string_view::npos) return true;
  const bool some = !needed_part(written, false).empty();
  return some && (is_alone || has_words_of(content, written));
}

/// The texts of a content: of a text, or of the parts of a list.
std::vector<std::string_view> texts_of(const Value& content) {
  std::vector<std::string_view> out;
  if (content.is(Value::Kind::text)) out.emplace_back(content.as_text().bytes);
  if (!content.is(Value::Kind::list)) return out;
  for (const Value& part : content.items()) {
    const Value* text = part.is(Value::Kind::map) ? part.as_map().find("text") : nullptr;
    if (text && text->is(Value::Kind::text)) out.emplace_back(text->as_text().bytes);
  }
  return out;
}

}  // namespace

void require_fields_read(const TemplateFile& file, const ChatInput& input) {
  const List& messages = input.messages.items();
  for (size_t i = 0; i < messages.size(); ++i)
    for (const char* field : kSpoken) {
      const Value* value = messages[i].as_map().find(field);
      if (!value || is_empty(*value) || names(file.source, field)) continue;
      const bool calls = std::string_view(field) == "tool_calls";
      throw Error(
          ErrorClass::data,
          cat("message ", i, " has ", field, ", which the chat template ", printable(file.name),
              " does not read"),
          cat("use a template that writes ", calls ? "calls" : "it",
              ", such as the model's own, with dataset.template_path; or skip such records with "
              "dataset.on_bad=skip",
              calls ? ""
                    : cat("; or ignore the field with dataset.columns={", field,
                          ": none}, a field that no message has")));
    }
}

void require_tools_written(const TemplateFile& file, const ChatInput& input, const Text& text) {
  const List& messages = input.messages.items();
  for (size_t i = 0; i < messages.size(); ++i) {
    const Value* calls = messages[i].as_map().find("tool_calls");
    if (!calls || !calls->is(Value::Kind::list)) continue;
    for (const Value& call : calls->items()) {
      const Value* name = function_name(call);
      MT_USER_CHECK(
          !name || is_written(text, name->as_text()), ErrorClass::data,
          cat("message ", i, " calls the function '", printable(name->as_text().bytes, 60),
              "', which the chat template ", printable(file.name), " leaves out"),
          "use a template that supports calls, such as the model's own, with "
          "dataset.template_path; or skip such records with dataset.on_bad=skip");
    }
  }
  if (!input.tools.is(Value::Kind::list)) return;
  for (const Value& tool : input.tools.items()) {
    const Value* name = function_name(tool);
    MT_USER_CHECK(
        !name || is_written(text, name->as_text()), ErrorClass::data,
        cat("the conversation has the tool '", printable(name->as_text().bytes, 60),
            "', whose definition the chat template ", printable(file.name), " leaves out"),
        "use a template that supports tools, such as the model's own, with dataset.template_path; "
        "or skip such records with dataset.on_bad=skip; or ignore the definitions with "
        "dataset.columns={tools: none}, a field that no record has");
  }
}

void require_messages_written(const TemplateFile& file, const ChatInput& input, const Text& text) {
  const List& messages = input.messages.items();
  const std::vector<std::string> written = written_by_message(text, messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    Map& message = messages[i].as_map();
    const Value *content = message.find("content"), *calls = message.find("tool_calls"),
                *role = message.find("role");
    if (!content) continue;
    const std::string of = role && role->is(Value::Kind::text) ? role->as_text().bytes : "?";
    const std::vector<std::string_view> texts = texts_of(*content);
    const bool is_alone = texts.size() == 1 && (!calls || is_empty(*calls));
    for (const std::string_view each : texts) {
      const std::string_view needed = needed_part(each, of == "assistant");
      MT_USER_CHECK(
          is_content_written(needed, written[std::min(i, written.size() - 1)], is_alone),
          ErrorClass::data,
          cat("message ", i, " (", printable(of, 40), ") has the text '", printable(needed, 60),
              "', which the chat template ", printable(file.name), " leaves out"),
          "use a template that writes it, with dataset.chat_template or dataset.template_path; or "
          "skip such records with dataset.on_bad=skip");
    }
  }
}

}  // namespace mtrain::chat
