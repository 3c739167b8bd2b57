// The answers of a model to the prompts of a JSONL file, as conversations of another one, which
// dataset=sft reads: a teacher's texts for a student (Kim and Rush 2016, arXiv:1606.07947). For one
// thread.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "mtrain/base/file.h"

namespace mtrain {

struct PromptMessage {
  std::string role, content;  // role: system, user or assistant
};

/// Answers every record of `prompts` and appends {"messages": […]} to `output`, one line for each,
/// in order. A record has "messages", whose last answers are dropped, or a "prompt", which is a
/// text or messages. Continues an output that answers the first of the records. `answer`: the text
/// that follows the messages, the last one of which is the user's; `index`: of the record.
/// `system`: the system message of records without one; empty: none. Error(data) that names file
/// and line.
void answer_records(
    const fs::path& prompts, const fs::path& output, const std::string& system,
    const std::function<std::string(const std::vector<PromptMessage>&, int64_t index)>& answer);

}  // namespace mtrain
