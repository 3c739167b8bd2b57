// Parts of a conversation that a template would drop. A dropped call or thought would train the
// model to say nothing in its place, and a dropped instruction would train it to answer without the
// instruction, so these are errors. Stateless functions; safe from any thread.
#pragma once
#include "mtrain/chat/chat_template.h"
#include "mtrain/chat/template_file.h"

namespace mtrain::chat {

/// Before rendering: throws Error(data) when messages have tool calls or reasoning
/// (reasoning_content, reasoning, thinking) in a field that the template's source never names.
/// A template that names the field decides itself which messages show it: many templates show the
/// reasoning of the last turn only.
MT_API void require_fields_read(const TemplateFile& file, const ChatInput& input);

/// After rendering: throws Error(data) when the text lacks the name of a called function or of a
/// defined tool.
MT_API void require_tools_written(const TemplateFile& file, const ChatInput& input,
                                  const Text& text);

/// After rendering: throws Error(data) when nothing was written of a message whose content has
/// text. A template may change the content (trim, escape) and remove the reasoning before an
/// answer, up to </think>. Takes time in proportion to the conversation.
MT_API void require_messages_written(const TemplateFile& file, const ChatInput& input,
                                     const Text& text);

}  // namespace mtrain::chat
