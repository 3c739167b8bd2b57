// ChatTemplate renders conversations to the text that a model is trained on, by the Jinja template
// that comes with the model. Owns its parsed template. Immutable; const members are safe from any
// thread.
//
// Templates and conversations are untrusted. A template can access only its input values, and ends
// with an error when it takes too many steps or too much memory. The rendered text records for each
// byte whether it comes from the template or from the conversation. So a message cannot forge a
// special token, and the assistant's words are known even where the template does not mark them.
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
  /// The bytes to train on: what assistants wrote, up to and including the special tokens that end
  /// their turns. Sorted and disjoint. Headers are excluded, unless a {% generation %} block
  /// contains them.
  std::vector<Stretch> assistant;
  /// How `assistant` was found.
  enum class Mask : uint8_t {
    none,        // not requested, or there is no assistant message
    generation,  // the template's {% generation %} blocks
    prefixes,    // the rendering up to one turn is a prefix of the rendering up to the next turn
    origins      // the positions of the assistant's own words
  } mask = Mask::none;
};

/// A conversation and the other inputs of a template.
struct ChatInput {
  Value messages = Value::list();  // messages_from_json()
  Value tools, documents;          // none when not given
  bool add_generation_prompt = false;
  /// "bos_token", "eos_token" and so on: these texts count as written by the template.
  std::map<std::string, std::string> special;
  /// Further texts that are one token of the tokenizer, to find the ends of turns. Texts in the
  /// form of "<|im_end|>" need not be listed.
  std::vector<std::string> special_tokens;
  /// Further names, with values that count as part of the conversation.
  std::vector<std::pair<std::string, Value>> more;
  std::tm now{};  // for strftime_now
};

/// Reads a JSON list of messages. Each text has the origin of its message, except roles and field
/// names. Throws Error(data) when it is not a list of objects.
MT_API Value messages_from_json(std::string_view json);

class MT_API ChatTemplate {
 public:
  /// `name`: the file's name, for errors. Throws Error(data) with the location of a fault.
  ChatTemplate(std::string_view source, std::string name);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// Throws Error(data) with the location and Python's message when the template fails or refuses
  /// the conversation.
  RenderedChat render(const ChatInput& input) const;
  /// The same, with `assistant` filled in.
  RenderedChat render_masked(const ChatInput& input) const;

 private:
  struct Parsed;
  RenderedChat render_messages(const ChatInput& input, const List& messages, bool prompt) const;
  std::unique_ptr<const Parsed> parsed_;
};

/// The texts written by the template that look like special tokens, "<|im_end|>" or
/// "<end_of_turn>"; sorted, each once.
MT_API std::vector<std::string> special_marks(const Text& text);

/// A part of a rendered text: one special token, or the text between two. Only text written by the
/// template can become a special token; the longest match wins.
struct ChatPiece {
  Stretch bytes;
  int special = -1;  // index into the tokens given; -1: text
};
MT_API std::vector<ChatPiece> split_special(const Text& text,
                                            const std::vector<std::string>& tokens);

}  // namespace mtrain::chat
