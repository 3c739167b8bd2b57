// The digest: one SHA-256 for what a checkpoint holds, whatever the layout that wrote it. Two runs
// that should be equal are equal when their digests are. Stateless.
#pragma once
#include <string>
#include <vector>

#include "mtrain/base/file.h"

namespace mtrain {

struct CheckpointContent {
  /// 64 hex digits of SHA-256 over the step, the metadata members "rng", "cursor" and "state", and
  /// each tensor by name: dtype, global shape, bytes in row-major order.
  std::string digest;
  std::vector<std::string> nonfinite;  // names of the floating tensors that hold NaN or Inf
};

/// Reads a whole checkpoint, in pieces of at most 16 MiB. Error(checkpoint) when anything of it is
/// damaged.
MT_API CheckpointContent inspect_checkpoint(const fs::path& step_folder);
/// The digest alone.
MT_API std::string checkpoint_digest(const fs::path& step_folder);

}  // namespace mtrain
