#include "mtrain/nn/logical_matrix.h"

#include "mtrain/tensor/execution_context.h"

namespace mtrain {
namespace {

Tensor as_rows(const Tensor& tensor, int64_t cols) {
  return tensor.view({tensor.numel() / cols, cols});
}

Tensor rows_of(const Tensor& table, const RowRange& range) {
  return table.slice(0, range.first, range.first + range.rows);
}

}  // namespace

std::vector<LogicalMatrix> plain_matrices(const Shape& shape) {
  std::vector<LogicalMatrix> matrices;
  if (shape.rank() < 2) return matrices;
  int64_t rows = shape[-2], cols = shape[-1], count = shape.numel() / (rows * cols);
  for (int64_t i = 0; i < count; ++i)
    matrices.push_back(
        {shape.rank() == 2 ? "" : std::to_string(i), {{.first = i * rows, .rows = rows}}, cols});
  return matrices;
}

Tensor matrix_of(const Tensor& tensor, const LogicalMatrix& matrix) {
  Tensor table = as_rows(tensor, matrix.cols);
  if (matrix.rows.size() == 1) return rows_of(table, matrix.rows[0]);
  ExecutionContext& ctx = tensor.context();
  Tensor out = ctx.empty({matrix.num_rows(), matrix.cols}, tensor.dtype());
  int64_t row = 0;
  for (const RowRange& range : matrix.rows) {
    ctx.copy(out.slice(0, row, row + range.rows), rows_of(table, range));
    row += range.rows;
  }
  return out;
}

void set_matrix(const Tensor& tensor, const LogicalMatrix& matrix, const Tensor& from) {
  MT_CHECK(from.shape() == Shape({matrix.num_rows(), matrix.cols}), "matrix '", matrix.name,
           "' from ", from.shape());
  Tensor table = as_rows(tensor, matrix.cols);
  int64_t row = 0;
  for (const RowRange& range : matrix.rows) {
    Tensor to = rows_of(table, range), piece = from.slice(0, row, row + range.rows);
    if (to.raw() != piece.raw()) tensor.context().copy(to, piece);
    row += range.rows;
  }
}

}  // namespace mtrain
