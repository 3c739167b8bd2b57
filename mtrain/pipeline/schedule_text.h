// Schedules as people write them: one line per rank, actions as to_text() prints them, with blanks
// or commas between them, # begins a comment. Lines without an action do not count. Stateless.
#pragma once
#include <filesystem>
#include <string_view>

#include "mtrain/pipeline/schedule.h"

namespace mtrain {

/// Reads such a text. Throws Error(config) that says where (`name`:line:column), what was wanted
/// and what is there.
MT_API Schedule parse_schedule(std::string_view text, std::string_view name);
/// Reads such a file, of at most 64 MiB; Error(io) when it cannot be read.
MT_API Schedule load_schedule(const std::filesystem::path& path);

}  // namespace mtrain
