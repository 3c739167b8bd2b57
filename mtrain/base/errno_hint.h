// What a user can do about a failed system call. Stateless.
#pragma once
#include "mtrain/base/export.h"

namespace mtrain {

/// For the hint of an Error(io); "" for numbers that nobody can do much about.
MT_API const char* errno_hint(int error);

}  // namespace mtrain
