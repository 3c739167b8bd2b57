// A rehearsal of loading a plugin in a process of its own, because its static initialisers run
// inside dlopen and may end, crash or hang whoever opens it. It keeps faults out of the run; it is
// no wall against a plugin that means harm, which runs with the rights of the user either way.
// Stateless; from any thread, however many there are: the process is started anew, not forked.
#pragma once
#include <chrono>
#include <string>

#include "mtrain/base/export.h"
#include "mtrain/base/file.h"

namespace mtrain {

/// Empty when a process got through opening the library and its registration (whether or not those
/// succeeded: the caller gets the reason itself), else what became of it: "a static initialiser
/// threw: …". Takes `limit` at most, whatever the plugin does to the pipe or the process. Empty as
/// well for a program that has no mtrain executable near it, such as a benchmark in a folder of its
/// own.
MT_API std::string probe_plugin(const fs::path& path,
                                std::chrono::seconds limit = std::chrono::seconds(20));

/// What that process does: `mtrain __probe FILE`, with the pipe to the one who asks as
/// descriptor 3.
inline constexpr const char* kProbeCommand = "__probe";
[[noreturn]] MT_API void answer_probe(const fs::path& path);

}  // namespace mtrain
