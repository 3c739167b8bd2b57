// Checks who may have written a file that is about to be loaded into the process. Stateless;
// thread-safe.
#pragma once
#include "mtrain/base/export.h"
#include "mtrain/base/file.h"

namespace mtrain {

/// Throws Error(plugin) if somebody whom the user does not trust already could have created or
/// changed this file.
/// - Owners: the file and each folder on its path must belong to root, the user or the owner of
///   `program`. A folder above the program may belong to anybody, since that user could replace the
///   program anyway. In a user namespace in which root is not mapped, folders above the plugin's
///   folder may belong to the overflow user (all users outside of the namespace); files may belong
///   to it only if they are built-in plugins and the program belongs to it, too.
/// - Writers: "others" must not have write access to the file or its folder, nor to a folder above
///   without sticky bit, in which they could rename entries. A group may have it if it is root's,
///   if it is the user's own without other members, or if it may write to the program's file or
///   folder. A group that may rename folders above the program may do so here, too.
/// Links are followed: both the folder of the link and the folder of its target are checked.
MT_API void require_trusted(const fs::path& file, const fs::path& program = "/proc/self/exe");

}  // namespace mtrain
