// Writes a tree as JSON. Every machine-readable answer about configurations is a tree first.
// Stateless.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "mtrain/config/tree.h"

namespace mtrain {

/// Indented by two blanks, without a line end behind it. Infinities and NaN, which JSON lacks,
/// become texts.
MT_API std::string write_json(const Node& node);
/// A map made of its entries, in that order.
MT_API Node make_map(std::initializer_list<std::pair<const char*, Node>> entries);

}  // namespace mtrain
