// Reading one setting as its field says. Shared by validate() and read_fields().
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

/// The value of a node under a field's type, range and choices; absent when the report got an
/// error.
std::optional<FieldValue> read_value(const Node& node, const FieldSpec& spec,
                                     const std::string& path, Report& report);
/// The value in its one written form.
Node write_value(const FieldValue& value, const FieldSpec& spec);

}  // namespace mtrain
