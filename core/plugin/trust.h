// Who may have written a file that is about to become part of the process. Stateless; thread-safe.
#pragma once
#include "mtrain/base/export.h"
#include "mtrain/base/file.h"

namespace mtrain {

/// Throws Error(plugin) when anybody on the machine could have put or changed this file: the file or its
/// folder is world-writable, or a folder above is and lets others rename what lies in it (no sticky bit).
/// Links are followed: both the folder that holds the link and the place it leads to must be sound.
MT_API void require_trusted(const fs::path& file);

}  // namespace mtrain
