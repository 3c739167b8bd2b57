// A rehearsal of loading a library in a child process, because its static initialisers run inside dlopen and
// may end, crash or hang whoever opens it. Stateless; to be called while the process has one thread.
#pragma once
#include <string>

#include "mtrain/base/file.h"

namespace mtrain {

/// Empty when a child got through opening the library (whether or not that succeeded: the caller will hear
/// the loader's reason), else what became of it: "a static initialiser threw: …". Also empty when no child
/// can be had: several threads, or fork refused.
std::string probe_library(const fs::path& path);

}  // namespace mtrain
