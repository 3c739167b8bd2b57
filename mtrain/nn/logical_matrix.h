// LogicalMatrix: a matrix that a parameter contains. Layers that store several matrices in one
// parameter (queries, keys and values; experts) say which rows belong to which matrix, so that an
// optimizer of matrices does not depend on how they are stored. A value; functions are stateless.
#pragma once
#include <string>
#include <vector>

#include "mtrain/tensor/row_range.h"
#include "mtrain/tensor/tensor.h"

namespace mtrain {

/// Rows of a tensor that is seen as a table [numel / cols, cols]: all dimensions but the last one
/// count rows.
struct LogicalMatrix {
  std::string name;  // "q"; "0", "1", … for several along leading dimensions; may be empty
  std::vector<RowRange> rows;  // in the order of the matrix's own rows
  int64_t cols = 0;
  int64_t num_rows() const {
    int64_t n = 0;
    for (const RowRange& range : rows) n += range.rows;
    return n;
  }
  bool operator==(const LogicalMatrix&) const = default;
};

/// The matrices of a tensor in which nothing is fused: the last two dimensions are one matrix, and
/// each index of the dimensions before them has its own. Empty for fewer than two dimensions.
MT_API std::vector<LogicalMatrix> plain_matrices(const Shape& shape);

/// The matrix [num_rows, cols] of a contiguous tensor: a view if its rows are one range, otherwise
/// a copy.
MT_API Tensor matrix_of(const Tensor& tensor, const LogicalMatrix& matrix);
/// Copies [num_rows, cols] to the matrix's rows of `tensor`. Does nothing if `from` is the view
/// that matrix_of() returned.
MT_API void set_matrix(const Tensor& tensor, const LogicalMatrix& matrix, const Tensor& from);

}  // namespace mtrain
