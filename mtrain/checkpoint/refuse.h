// How the files of a checkpoint or of a model are refused. Stateless; thread-safe.
#pragma once
#include <filesystem>
#include <string>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

namespace mtrain {

inline constexpr const char* kDamagedCheckpoint =
    "the checkpoint is damaged: use an older one, or restore it from a copy";
inline constexpr const char* kDamagedSafetensors =
    "the file is damaged or not a safetensors file: fetch or write it again";

/// Throws Error(checkpoint): "PATH: what", with a hint.
[[noreturn]] inline void refuse_file(const std::filesystem::path& path, const std::string& what,
                                     const std::string& hint) {
  throw Error(ErrorClass::checkpoint, cat(printable(path.string()), ": ", what), hint);
}

}  // namespace mtrain
