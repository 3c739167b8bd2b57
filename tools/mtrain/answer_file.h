// The answers of a model to the prompts of a JSONL file, as conversations of another one, which
// dataset=sft reads: a teacher's texts for a student (Kim and Rush 2016, arXiv:1606.07947). For one
// thread.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/base/file.h"

namespace mtrain {

struct PromptMessage {
  std::string role, content;  // role: system, user or assistant
};

struct AskedRecord {
  std::vector<PromptMessage> messages;  // the last one is the user's
  int64_t index = 0;                    // of the record
};

/// Answers every record of `prompts` and appends {"messages": […]} to `output`, one line for each,
/// in order. A record has "messages", whose last answers are dropped, or a "prompt", which is a
/// text or messages. Continues an output that answers the first of the records. `answer_all(next,
/// done)` answers them: next() is the next record, or nothing after the last one, and done(text)
/// takes the answers in the order of the records. `system`: the system message of records without
/// one; empty: none. Error(data) that names file and line.
void answer_records(
    const fs::path& prompts, const fs::path& output, const std::string& system,
    const std::function<void(const std::function<std::optional<AskedRecord>()>& next,
                             const std::function<void(std::string)>& done)>& answer_all);

}  // namespace mtrain
