// Loads a plugin in a separate process first, because its static initialisers run inside dlopen and
// may exit, crash or hang the process that opens it. This keeps accidents out of the run; it is no
// protection against a malicious plugin, which runs with the rights of the user in any case.
// Stateless; thread-safe, also in a process with many threads: the probe is spawned, not forked.
#pragma once
#include <chrono>
#include <string>

#include "mtrain/base/export.h"
#include "mtrain/base/file.h"

namespace mtrain {

/// Returns an empty string if the process survived opening the library and its registration, even
/// if one of these failed: the caller gets that error itself. Otherwise returns what happened: "a
/// static initialiser threw: …", or why the probe could not be started. Takes at most `limit`,
/// whatever the plugin does to the pipe or the process. Also returns an empty string if there is no
/// mtrain executable nearby, as for a benchmark in its own folder.
MT_API std::string probe_plugin(const fs::path& path,
                                std::chrono::seconds limit = std::chrono::seconds(20));

/// The probe process, `mtrain __probe FILE`: opens the plugin and reports on descriptor 3, a pipe
/// to the parent.
inline constexpr const char* kProbeCommand = "__probe";
[[noreturn]] MT_API void answer_probe(const fs::path& path);

}  // namespace mtrain
