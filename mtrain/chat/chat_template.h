// ChatTemplate: conversations as the text a model is trained on, by the Jinja template its makers
// ship. Immutable once made; may be used from several threads.
//
// Templates and conversations come from strangers. A template reaches nothing but the values it is
// given, and ends with an error when it takes too many steps or too much memory. The text it makes
// says of each byte whether the template wrote it or the conversation did, so that nobody's message
// can forge a special token, and so that what an assistant said is known even where the template
// does not mark it.
#pragma once
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mtrain/chat/value.h"

namespace mtrain::chat {

/// Bytes [begin, end) of a rendered text.
struct Stretch {
  size_t begin = 0, end = 0;
  bool operator==(const Stretch&) const = default;
};

struct RenderedChat {
  Text text;
  /// What assistants said, up to and including the special tokens that end their turns: the bytes
  /// to train on. In order, apart from each other. Headers are never among them, unless a {%
  /// generation %} block has them.
  std::vector<Stretch> assistant;
  /// How `assistant` was found.
  enum class Mask : uint8_t {
    none,        // not asked for, or no assistant speaks
    generation,  // the template's {% generation %} blocks
    prefixes,    // the text of messages up to a turn begins the text of those up to the next
    origins      // where the assistant's own words came to lie
  } mask = Mask::none;
};

/// A conversation and what else a template sees.
struct ChatInput {
  Value messages = Value::list();  // messages_from_json()
  Value tools, documents;          // none: not given
  bool add_generation_prompt = false;
  /// "bos_token", "eos_token" and so on: texts that count as the template's own.
  std::map<std::string, std::string> special;
  /// Further texts that are one token of the tokenizer's, so that the ends of turns are known.
  /// Those that look like it,
  /// "<|im_end|>", are known anyway.
  std::vector<std::string> special_tokens;
  /// Further names, with values of the conversation's.
  std::vector<std::pair<std::string, Value>> more;
  std::tm now{};  // for strftime_now
};

/// Messages of a JSON list, each text with the origin of its message, but for roles and names of
/// fields. Throws Error(data) where it is no list of objects.
MT_API Value messages_from_json(std::string_view json);

class MT_API ChatTemplate {
 public:
  /// `name`: for errors; a file's name or "tokenizer_config.json". Throws Error(data) with the
  /// place of a fault.
  ChatTemplate(std::string_view source, std::string name);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// Throws Error(data) with place and Python's words for what the template does wrong or refuses.
  RenderedChat render(const ChatInput& input) const;
  /// The same, with `assistant` filled in.
  RenderedChat render_masked(const ChatInput& input) const;

 private:
  struct Parsed;
  RenderedChat render_messages(const ChatInput& input, const List& messages, bool prompt) const;
  std::unique_ptr<const Parsed> parsed_;
};

/// What the template wrote that looks like special tokens, "<|im_end|>" or "<end_of_turn>": each
/// once, sorted.
MT_API std::vector<std::string> special_marks(const Text& text);

/// A stretch of a rendered text that is one special token, or text between such. Special tokens are
/// taken only from what the template wrote; the longest that fits wins.
struct ChatPiece {
  Stretch bytes;
  int special = -1;  // index into the tokens given; -1: text
};
MT_API std::vector<ChatPiece> split_special(const Text& text,
                                            const std::vector<std::string>& tokens);

}  // namespace mtrain::chat
