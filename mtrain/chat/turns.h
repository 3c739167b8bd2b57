// Which bytes of a rendered conversation an assistant has to learn: its words and what ends its
// turn, never the header that begins one. For chat_template.cc. Stateless.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "mtrain/chat/chat_template.h"

namespace mtrain::chat {

/// The text of these messages, with the generation prompt or without. Throws Error(data) where the
/// template refuses them.
using RenderMessages = std::function<Text(const List& messages, bool prompt)>;

/// Fills chat.assistant and chat.mask. `chat`: the rendering of all of input.messages with
/// input.add_generation_prompt; stretches of
/// {% generation %} blocks are there already.
void mark_assistant_turns(const ChatInput& input, const RenderMessages& render, RenderedChat& chat);

/// Adds a stretch that begins behind or within the last one; stretches that touch become one.
void add_stretch(std::vector<Stretch>& to, Stretch next);

}  // namespace mtrain::chat
