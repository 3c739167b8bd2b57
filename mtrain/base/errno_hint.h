// Advice for the user after a failed system call. Stateless; thread-safe.
#pragma once
#include "mtrain/base/export.h"

namespace mtrain {

/// The hint for a full disk. Which option says where a command writes is known to the command only.
inline constexpr const char* kFullDiskHint = "free some space or write elsewhere";

/// The hint for an Error(io) with this errno; "" where there is no useful advice.
MT_API const char* errno_hint(int error);

}  // namespace mtrain
