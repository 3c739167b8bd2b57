// The digest: one SHA-256 of a checkpoint's content, independent of the layout that wrote it. Two
// states are equal exactly when their digests are equal. Stateless functions; safe from any thread.
#pragma once
#include <string>
#include <vector>

#include "mtrain/base/file.h"

namespace mtrain {

struct CheckpointContent {
  /// 64 hex digits of SHA-256 over the step, the metadata members "rng", "cursor" and "state", and
  /// each tensor by name: dtype, global shape, bytes in row-major order.
  std::string digest;
  std::vector<std::string> nonfinite;  // names of the floating-point tensors with NaN or Inf
};

/// Reads a whole checkpoint, in pieces of at most 16 MiB. Error(checkpoint) when any part is
/// damaged.
MT_API CheckpointContent inspect_checkpoint(const fs::path& step_folder);
/// Only the digest.
MT_API std::string checkpoint_digest(const fs::path& step_folder);

}  // namespace mtrain
