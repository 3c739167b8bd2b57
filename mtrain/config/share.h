// Shares: whole numbers given as a percentage of another setting, such as "5%" of train.steps.
// Stateless functions; safe from any thread.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/config/container.h"

namespace mtrain {

/// Parses "5%" or "2.5%" as 0.05 or 0.025; nothing for any other text.
std::optional<double> parse_share(std::string_view text);
/// part * whole, rounded to the nearest whole number.
int64_t share_of(double part, int64_t whole);

/// Extracts the shares from `tree` and replaces each by 0 with the share as its expression(), since
/// the setting that it refers to may not be known yet. `component`: the schema of the component
/// that each section names, or null.
std::vector<ConfigShare> take_shares(Node& tree, const SchemaCatalog& catalog,
                                     const std::map<std::string, const Schema*>& component,
                                     Report& report);

}  // namespace mtrain
