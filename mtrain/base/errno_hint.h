// Advice for the user after a failed system call. Stateless; thread-safe.
#pragma once
#include "mtrain/base/export.h"

namespace mtrain {

/// The hint for an Error(io) with this errno; "" where there is no useful advice.
MT_API const char* errno_hint(int error);

}  // namespace mtrain
