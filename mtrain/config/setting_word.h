// Settings as words of commands that messages suggest. Stateless; thread-safe.
#pragma once
#include <string>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain {

/// "dataset.path=my text" as one word of a shell that gives the setting this text, whatever
/// characters it has: 'dataset.path=my text'.
MT_API std::string setting_word(std::string_view path, const std::string& text);

}  // namespace mtrain
