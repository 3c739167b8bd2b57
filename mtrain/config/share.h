// Shares: a whole number said as a part of another setting, "5%" of train.steps. Stateless.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/config/container.h"

namespace mtrain {

/// The part that a text such as "5%" or "2.5%" means, 0.05 or 0.025; nothing when it is no such
/// text.
std::optional<double> parse_share(std::string_view text);
/// The part of a whole, rounded to the nearest whole number.
int64_t share_of(double part, int64_t whole);

/// Takes the shares out of `tree` and leaves 0 in the place of each, with the share as its
/// expression(): what it is a part of may not be known yet. `component`: the schema of the
/// component that each section names, or null.
std::vector<ConfigShare> take_shares(Node& tree, const SchemaCatalog& catalog,
                                     const std::map<std::string, const Schema*>& component,
                                     Report& report);

}  // namespace mtrain
