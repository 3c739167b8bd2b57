// Reads the settings that an expression refers to. Stateless functions; safe from any thread.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/config/report.h"
#include "mtrain/config/schema.h"
#include "mtrain/config/tree.h"

namespace mtrain {

/// The description of a setting, "rope.theta", by any of its names; null when no owner has it. A
/// current name takes precedence over a former one, and a component's own setting over that of its
/// section.
const FieldSpec* setting_named(std::string_view setting, const std::vector<const Schema*>& owners);

/// The value of a setting in arithmetic, as its schema reads it: 4k is 4000. `path`: its full path,
/// or that of an item of a list; `owners`: the schemas of its section. Returns `value` itself where
/// no owner has such a setting. On failure, reports the faults of the setting and returns nothing.
/// Throws InterpolationFault for a share such as 5%, which has no value yet.
std::optional<Node> read_operand(const Node& value, const std::string& path,
                                 const std::vector<const Schema*>& owners, Report& report);

}  // namespace mtrain
