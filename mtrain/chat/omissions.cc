#include "mtrain/chat/omissions.h"

#include <array>
#include <cctype>
#include <string>
#include <string_view>

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

}  // namespace mtrain::chat
