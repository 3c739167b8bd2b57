// Writes a tree as JSON. All machine-readable output about configurations is built as a tree.
// Stateless functions; safe from any thread.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "mtrain/config/tree.h"

namespace mtrain {

/// Indented by two spaces, without a final newline. Infinities and NaN, which JSON does not have,
/// become strings.
MT_API std::string write_json(const Node& node);
/// A map made of its entries, in that order.
MT_API Node make_map(std::initializer_list<std::pair<const char*, Node>> entries);

}  // namespace mtrain
