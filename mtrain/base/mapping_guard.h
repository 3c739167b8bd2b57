// What a process says when a mapped file cannot be read: one that is shortened, or on a disk that
// fails, while it is mapped ends the process by SIGBUS at some read, and a bare signal names no
// file. From the first guarded mapping on, the handler writes an error of class io that names the
// file and ends the process with its status; a SIGBUS elsewhere goes to whoever handled it before.
// Thread-safe.
#pragma once
#include <cstddef>

#include "mtrain/base/file.h"

namespace mtrain {

/// REQUIRES: [at, at + bytes) is mapped until unguard_mapping(at).
void guard_mapping(const void* at, size_t bytes, const fs::path& path);
void unguard_mapping(const void* at);

}  // namespace mtrain
