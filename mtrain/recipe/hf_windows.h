// Which blocks of a model have an attention window, according to config.json. Stateless functions.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "mtrain/recipe/hf_json.h"

namespace mtrain::hf {

/// Which blocks have a window, from layer_types: a list of kinds or, if `layers` > 0, a number n
/// (every n-th block has no window) or -n (the first of every n blocks has none). Nothing if it is
/// neither.
std::optional<std::vector<bool>> windows_of(const Json& layer_types, int64_t layers);

/// The n for which exactly every n-th block has no window; 0 if all blocks have one; absent for any
/// other pattern. A short list can fit several n: `usual` is preferred, if it is a number and fits.
std::optional<int64_t> interval_of(const std::vector<bool>& windows, const Json& usual);

/// 1 for true, 0 for false.
Json ones_of(const std::vector<bool>& windows);

}  // namespace mtrain::hf
