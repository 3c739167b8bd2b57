// What to say of a path of the dataset that does not exist. Stateless; thread-safe.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain {

/// Advice for a path with a comma, which may have been meant as several: to append to other help.
/// Empty: it has none. `several`: how the dataset reads several.
MT_API std::string advice_for_comma(const std::filesystem::path& path, std::string_view several);

}  // namespace mtrain
