// Finds the bytes of a rendered conversation to train on: the assistant's words and the end of its
// turn, without the header of the turn. Used by chat_template.cc only. Stateless functions; safe
// from any thread.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "mtrain/chat/chat_template.h"

namespace mtrain::chat {

/// Renders these messages, with or without the generation prompt. Throws Error(data) when the
/// template refuses them.
using RenderMessages = std::function<Text(const List& messages, bool prompt)>;

/// Fills chat.assistant and chat.mask. `chat`: the rendering of all input.messages with
/// input.add_generation_prompt; it already contains the bytes of {% generation %} blocks.
void mark_assistant_turns(const ChatInput& input, const RenderMessages& render, RenderedChat& chat);

/// Appends a stretch that begins after or inside the last one; merges stretches that touch.
void add_stretch(std::vector<Stretch>& to, Stretch next);

}  // namespace mtrain::chat
