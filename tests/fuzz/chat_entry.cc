#include "mtrain/base/error.h"
#include "mtrain/chat/chat_template.h"
#include "tests/fuzz/entries.h"

namespace mtrain::fuzz {

void chat(std::string_view text) {
  using namespace mtrain::chat;
  ChatInput input;
  input.messages = messages_from_json(
      R"([{"role": "system", "content": "be <brief>"}, {"role": "user", "content": "hï", "n": [1, null, 2.5]},
          {"role": "assistant", "content": "yes", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}])");
  input.tools = from_json(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"required": ["a"]}}}])");
  input.special = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  try {
    RenderedChat out = ChatTemplate(text, "t").render_masked(input);
    if (out.text.bytes.size() != out.text.origins.size()) __builtin_trap();
    for (auto [begin, end] : out.assistant)
      if (begin >= end || end > out.text.bytes.size()) __builtin_trap();
    size_t at = 0;  // pieces cover the text
    for (const auto& piece : split_special(out.text, {"<s>", "</s>"})) {
      if (piece.bytes.begin != at) __builtin_trap();
      at = piece.bytes.end;
    }
    if (at != out.text.bytes.size()) __builtin_trap();
  } catch (const Error& e) {
    if (e.error_class() != ErrorClass::data || e.message().empty()) __builtin_trap();
  }
}

}  // namespace mtrain::fuzz
