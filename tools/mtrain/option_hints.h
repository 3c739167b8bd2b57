// Hints for options that do not exist but name a setting: settings are written without dashes.
// Stateless.
#pragma once
#include <string>
#include <vector>

#include "mtrain/plugin/plugin_host.h"

namespace mtrain {

/// "write optimizer.lr=1e-3: settings have no dashes", for `--lr 1e-3` on a command line; "" if the
/// option names no setting.
std::string setting_for_option(const std::string& option, const std::vector<std::string>& words,
                               const PluginHost& plugins);

/// What is written in place of an option of Megatron-LM's preprocess_data.py; "": it has none of
/// that name.
std::string preparation_option(const std::string& option);

}  // namespace mtrain
