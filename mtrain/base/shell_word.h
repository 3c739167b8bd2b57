// Words of commands that messages suggest, so that they can be pasted into a shell. Stateless;
// thread-safe.
#pragma once
#include <string>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain {

/// The word as a POSIX shell reads it back: in quotes if it has characters that mean something to a
/// shell. An empty word is ''. Control characters and bytes that are no UTF-8 use $'…' (bash, zsh).
MT_API std::string shell_word(std::string_view word);

}  // namespace mtrain
