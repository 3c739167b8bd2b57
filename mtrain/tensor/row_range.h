// RowRange: a stretch of rows of some tensor, or of the tokens they stand for. A value.
#pragma once
#include <cstdint>

namespace mtrain {

/// Rows [row, row + rows).
struct RowRange {
  int64_t row = 0, rows = 0;
  bool operator==(const RowRange&) const = default;
};

}  // namespace mtrain
