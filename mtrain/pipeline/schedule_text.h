// The text format of schedules: one line per rank, actions as to_text() prints them, separated by
// blanks or commas; # begins a comment. Lines without an action are ignored. Stateless;
// thread-safe.
#pragma once
#include <filesystem>
#include <string_view>

#include "mtrain/pipeline/schedule.h"

namespace mtrain {

/// Parses such a text. Throws Error(config) that gives the place (`name`:line:column), what was
/// expected and what was found.
MT_API Schedule parse_schedule(std::string_view text, std::string_view name);
/// Reads such a file of at most 64 MiB; Error(io) if it cannot be read.
MT_API Schedule load_schedule(const std::filesystem::path& path);

}  // namespace mtrain
