// Checks families of Hugging Face models against the settings of their model plugins. Stateless;
// thread-safe.
#pragma once
#include "mtrain/recipe/hf_families.h"

namespace mtrain {

/// Settings that the family names and `plugin` does not have, and values that they cannot have,
/// with their places in the file. `core`: the section `model` of all recipes; may be null.
/// REQUIRES: lacking_part() is empty.
MT_API Report hf_family_faults(const HfFamily& family, const Schema& plugin, const Schema* core);

}  // namespace mtrain
