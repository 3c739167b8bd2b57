// The digest: one SHA-256 for what a checkpoint holds, whatever the layout that wrote it. Two runs that should be equal are
// equal when their digests are. Stateless.
#pragma once
#include <string>

#include "mtrain/base/file.h"

namespace mtrain {

/// 64 hex digits over the step, the metadata members "rng", "cursor" and "state", and each tensor by name: dtype, global
/// shape, bytes in row-major order. Error(checkpoint) when anything of it is damaged. Reads in pieces of at most 16 MiB.
MT_API std::string checkpoint_digest(const fs::path& step_folder);

}  // namespace mtrain
