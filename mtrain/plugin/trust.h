// Who may have written a file that is about to become part of the process. Stateless; thread-safe.
#pragma once
#include "mtrain/base/export.h"
#include "mtrain/base/file.h"

namespace mtrain {

/// Throws Error(plugin) when somebody could have put or changed this file whom the user does not
/// trust already.
/// - Owners: the file and each folder on the way to it must belong to root, the user or the owner
/// of `program`. A folder above the
///   program may belong to anybody: they could replace the program. In a user namespace without
///   root, folders above may belong to the number that stands for all users outside of it; files
///   only those of the built-in plugins, where the program does, too.
/// - Writers: others may not write to the file or its folder, nor rename what lies in a folder
/// above (no sticky bit). A group may
///   when it is root's, the user's own without other members, or one that may write to the
///   program's file or folder; and one that may rename folders above the program may do so here.
/// Links are followed: both the folder that holds the link and the place it leads to must be sound.
MT_API void require_trusted(const fs::path& file, const fs::path& program = "/proc/self/exe");

}  // namespace mtrain
