// Errors for mapped files that become unreadable. If a file is truncated, or its disk fails, while
// it is mapped, the next read raises SIGBUS, and a plain signal does not name the file. The first
// guarded mapping installs a SIGBUS handler: it writes an error of class io that names the file,
// and ends the process with that status. A SIGBUS at any other address goes to the previous
// handler. Thread-safe.
#pragma once
#include <cstddef>

#include "mtrain/base/file.h"

namespace mtrain {

/// REQUIRES: [at, at + bytes) is mapped until unguard_mapping(at).
void guard_mapping(const void* at, size_t bytes, const fs::path& path);
void unguard_mapping(const void* at);

}  // namespace mtrain
