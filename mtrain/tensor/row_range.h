// RowRange: a contiguous range of rows of a tensor, or of the tokens that they represent. A value
// type.
#pragma once
#include <cstdint>

namespace mtrain {

/// Rows [first, first + rows).
struct RowRange {
  int64_t first = 0, rows = 0;
  bool operator==(const RowRange&) const = default;
};

}  // namespace mtrain
