// Whether a setting acts in a recipe, by the rules on settings without an effect: a change of one
// that does not act changes nothing. Stateless functions; safe from any thread.
#pragma once
#include <string>

#include "mtrain/config/container.h"

namespace mtrain {

/// False if those rules say that the setting has no effect with the values of the others. True
/// where that depends on what is not known here, such as the number of ranks.
bool has_effect(const ConfigContainer& config, const std::string& path);

}  // namespace mtrain
