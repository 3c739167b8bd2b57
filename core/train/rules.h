// Rules between settings: what no single field can say. Evaluated before anything is built; every violation goes into the
// report with its reason and values that would do.
#pragma once
#include "mtrain/config/container.h"
#include "mtrain/train/settings.h"

namespace mtrain {

MT_API void check_rules(const Settings& settings, const ConfigContainer& config, Report& report);

}  // namespace mtrain
