// Who may have written a file that is about to become part of the process. Stateless; thread-safe.
#pragma once
#include "mtrain/base/export.h"
#include "mtrain/base/file.h"

namespace mtrain {

/// Throws Error(plugin) when somebody could have put or changed this file whom the user does not trust already: its owner, or that
/// of a folder on the way to it, is neither root, nor the user, nor the owner of the running program; or others may write to the
/// file or its folder, or rename what lies in a folder above (no sticky bit). A group may write when it is the user's own, with
/// no other member; and one that may rename folders above the program itself may do so here. Links are followed: both the folder that holds the link and the place it leads to must be sound.
MT_API void require_trusted(const fs::path& file);

}  // namespace mtrain
