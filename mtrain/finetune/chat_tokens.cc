#include "mtrain/finetune/chat_tokens.h"

#include <algorithm>
#include <optional>

#include "mtrain/base/plugin_call.h"

namespace mtrain::finetune {

void add_special_names(const Tokenizer& tokenizer, std::map<std::string, std::string>& special) {
  const auto tokens = tokenizer.special_tokens();
  auto add = [&](const char* name, std::optional<int32_t> id) {
    for (const auto& token : tokens)
      if (id && token.id == *id) special.emplace(name, token.text);
  };
  add("bos_token", tokenizer.bos());
  add("eos_token", tokenizer.eod());
  add("pad_token", tokenizer.pad());
}

bool is_within(const chat::Stretch& token, const std::vector<chat::Stretch>& stretches) {
  const size_t end = std::max(token.end, token.begin + 1);  // a token may stand for no text
  return std::any_of(stretches.begin(), stretches.end(),
                     [&](const chat::Stretch& s) { return token.begin < s.end && s.begin < end; });
}

ChatTokens encode_chat(const chat::Text& text, const Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  const std::vector<SpecialToken> special = tokenizer.special_tokens();
  for (const auto& token : special) texts.push_back(token.text);
  ChatTokens out;
  std::vector<TextSpan> spans;
  for (const auto& piece : chat::split_special(text, texts)) {
    if (piece.special >= 0) {
      out.ids.push_back(special[static_cast<size_t>(piece.special)].id);
      out.bytes.push_back({piece.bytes.begin, piece.bytes.end});
      continue;
    }
    spans.clear();
    auto part =
        std::string_view(text.bytes).substr(piece.bytes.begin, piece.bytes.end - piece.bytes.begin);
    call_plugin(tokenizer, "encode()", [&] { tokenizer.encode_with(part, {}, out.ids, &spans); });
    check_ids(tokenizer, out.ids);
    for (const auto& span : spans)
      out.bytes.push_back({piece.bytes.begin + span.begin, piece.bytes.begin + span.end});
  }
  return out;
}

}  // namespace mtrain::finetune
