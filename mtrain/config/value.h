// Reads and writes the value of one setting by its FieldSpec. Shared by validate() and
// read_fields(). Stateless functions over values; safe from any thread.
#pragma once
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "mtrain/config/fields.h"
#include "mtrain/config/report.h"
#include "mtrain/config/tree.h"

namespace mtrain {

/// monostate: null.
using FieldValue =
    std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<int64_t>,
                 std::vector<double>, std::vector<std::string>, Node>;

/// Reads a node by a field's type, range and choices. On failure, reports an error and returns
/// nothing.
std::optional<FieldValue> read_value(const Node& node, const FieldSpec& spec,
                                     const std::string& path, Report& report);
/// The value in its canonical form.
Node write_value(const FieldValue& value, const FieldSpec& spec);

}  // namespace mtrain
