#ifdef MT_HAVE_CUDNN
#include "sdpa_graph.h"

#include <optional>

namespace mtrain::cuda {

namespace {

/// Tensors and operations that forward and backward share.
class Sdpa {
 public:
  explicit Sdpa(const SdpaShape& shape)
      : s(shape), io(shape.half ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16) {
    q_dims = {s.entries, s.heads, s.queries, s.head_dim};
    k_dims = {s.entries, 1, s.keys, s.head_dim};
    row_dims = {s.entries, s.heads, s.queries, 1};
    if (!s.ragged) return;
    query_lengths = lengths(kQueryLengths);
    key_lengths = lengths(kKeyLengths);
  }

  GraphTensor input(Uid uid, const Dims& dims, int64_t entry, int64_t row, Uid offsets_uid) {
    std::optional<GraphTensor> ragged = offsets(offsets_uid);
    return b.tensor(uid, dims, {s.ragged ? dims[2] * row : entry, s.head_dim, row, 1}, io,
                    ragged ? &*ragged : nullptr);
  }
  /// Keys, back from upright(): the head's elements are the last dimension, as in memory.
  GraphTensor key_rows(const GraphTensor& k_upright) {
    std::optional<GraphTensor> ragged = offsets(kKOffsets);
    Dims strides{s.ragged ? s.keys * s.k_row : s.k_entry, s.head_dim, s.k_row, 1};
    return b.transposed(k_upright, io, strides, ragged ? &*ragged : nullptr);
  }
  /// Keys or values, transposed: tokens are the last dimension.
  GraphTensor upright(Uid uid, int64_t entry, int64_t row, Uid offsets_uid) {
    std::optional<GraphTensor> ragged = offsets(offsets_uid);
    return b.tensor(uid, {s.entries, 1, s.head_dim, s.keys},
                    {s.ragged ? s.keys * row : entry, s.head_dim, 1, row}, io,
                    ragged ? &*ragged : nullptr);
  }
  GraphTensor row_values(Uid uid) {
    std::optional<GraphTensor> ragged = offsets(kLseOffsets);
    return b.tensor(uid, row_dims,
                    {s.ragged ? s.heads * s.lse_head : s.lse_entry, s.lse_head, 1, 1},
                    CUDNN_DATA_FLOAT, ragged ? &*ragged : nullptr);
  }
  /// The sum of dq's parts: packed; ragged: with the rows and offsets of dq.
  GraphTensor query_sum() {
    std::optional<GraphTensor> ragged = offsets(kDqOffsets);
    const int64_t row = s.ragged ? s.dq_row : s.head_dim;
    const Dims strides{s.ragged ? s.queries * row : s.heads * s.queries * row,
                       s.ragged ? s.head_dim : s.queries * row, row, 1};
    return b.tensor(kDqSum, q_dims, strides, CUDNN_DATA_FLOAT, ragged ? &*ragged : nullptr);
  }
  /// scale * q kᵀ, minus infinity where a query does not attend to a key.
  GraphTensor scores(const GraphTensor& q, const GraphTensor& k_upright) {
    GraphBuilder::Sizes sizes;
    if (s.ragged) sizes = {.m = &*query_lengths, .n = &*key_lengths};
    GraphTensor product = b.matmul(q, k_upright, CUDNN_DATA_FLOAT, sizes);
    GraphTensor scale = b.scalar(kScale);
    GraphTensor x = b.pointwise(CUDNN_POINTWISE_MUL, product, &scale, CUDNN_DATA_FLOAT);
    if (!s.causal && !s.ragged) return x;
    GraphTensor nothing = b.scalar(kMinusInfinity);
    if (s.ragged) {
      GraphTensor row = b.index(x, 2), column = b.index(x, 3);
      GraphTensor in_rows = b.comparison(CUDNN_POINTWISE_CMP_LT, row, *query_lengths);
      GraphTensor in_columns = b.comparison(CUDNN_POINTWISE_CMP_LT, column, *key_lengths);
      x = b.select(b.comparison(CUDNN_POINTWISE_LOGICAL_AND, in_rows, in_columns), x, nothing);
    }
    if (s.causal) {
      GraphTensor row = b.index(x, 2), column = b.index(x, 3);
      x = b.select(b.comparison(CUDNN_POINTWISE_CMP_GE, row, column), x, nothing);
    }
    if (s.window) {  // the order of operands by which the library recognizes a window
      GraphTensor row = b.index(x, 2), column = b.index(x, 3);
      GraphTensor end = b.shifted_index(column, b.scalar(kWindow, CUDNN_DATA_INT32));
      x = b.select(b.comparison(CUDNN_POINTWISE_CMP_GT, end, row), x, nothing);
    }
    return x;
  }
  const SdpaShape& s;
  cudnnDataType_t io;
  GraphBuilder b;
  Dims q_dims, k_dims, row_dims;
  std::optional<GraphTensor> query_lengths, key_lengths;

 private:
  GraphTensor lengths(Uid uid) {
    return b.tensor(uid, {s.entries, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_INT32);
  }
  std::optional<GraphTensor> offsets(Uid uid) {
    if (!s.ragged) return std::nullopt;
    for (auto& [known, tensor] : offsets_)
      if (known == uid) return tensor;
    offsets_.emplace_back(uid,
                          b.tensor(uid, {s.entries + 1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_INT32));
    return offsets_.back().second;
  }
  std::vector<std::pair<Uid, GraphTensor>> offsets_;
};

}  // namespace

Descriptor forward_graph(const SdpaShape& shape, cudnnHandle_t handle) {
  Sdpa g(shape);
  GraphBuilder& b = g.b;
  GraphTensor q = g.input(kQ, g.q_dims, shape.q_entry, shape.q_row, kQOffsets);
  GraphTensor k = g.upright(kK, shape.k_entry, shape.k_row, kKOffsets);
  GraphTensor v = g.input(kV, g.k_dims, shape.v_entry, shape.v_row, kVOffsets);
  GraphTensor x = g.scores(q, k);
  GraphTensor top = b.reduce(CUDNN_REDUCE_TENSOR_MAX, x, g.row_dims, CUDNN_DATA_FLOAT);
  GraphTensor shifted = b.pointwise(CUDNN_POINTWISE_SUB, x, &top, CUDNN_DATA_FLOAT);
  GraphTensor e = b.pointwise(CUDNN_POINTWISE_EXP, shifted, nullptr, CUDNN_DATA_FLOAT);
  GraphTensor sum = b.reduce(CUDNN_REDUCE_TENSOR_ADD, e, g.row_dims, CUDNN_DATA_FLOAT);
  GraphTensor log_sum = b.pointwise(CUDNN_POINTWISE_LOG, sum, nullptr, CUDNN_DATA_FLOAT);
  b.pointwise_to(CUDNN_POINTWISE_ADD, top, &log_sum, g.row_values(kLse));
  GraphTensor p = b.pointwise(CUDNN_POINTWISE_DIV, e, &sum, g.io);
  GraphBuilder::Sizes sizes;
  if (shape.ragged) sizes = {.m = &*g.query_lengths, .k = &*g.key_lengths};
  b.matmul_to(p, v, g.input(kO, g.q_dims, shape.o_entry, shape.o_row, kOOffsets), sizes);
  return b.finish(handle);
}

// δ = Σ dO∘O, P = exp(x - lse), dV = Pᵀ dO, dP = dO Vᵀ, dS = scale P∘(dP - δ), dQ = dS K, dK = dSᵀ
// Q; the heads of a group are summed into its one key head.
Descriptor backward_graph(const SdpaShape& shape, cudnnHandle_t handle) {
  Sdpa g(shape);
  GraphBuilder& b = g.b;
  GraphBuilder::Sizes by_query, by_key, over_queries;
  if (shape.ragged) {
    by_query = {.m = &*g.query_lengths, .n = &*g.key_lengths};
    by_key = {.m = &*g.query_lengths, .k = &*g.key_lengths};
    over_queries = {.m = &*g.key_lengths, .k = &*g.query_lengths};
  }
  GraphTensor q = g.input(kQ, g.q_dims, shape.q_entry, shape.q_row, kQOffsets);
  GraphTensor k = g.upright(kK, shape.k_entry, shape.k_row, kKOffsets);
  GraphTensor v = g.upright(kV, shape.v_entry, shape.v_row, kVOffsets);
  GraphTensor o = g.input(kO, g.q_dims, shape.o_entry, shape.o_row, kOOffsets);
  GraphTensor d_o = g.input(kDo, g.q_dims, shape.o_entry, shape.o_row, kOOffsets);
  GraphTensor lse = g.row_values(kLse);

  GraphTensor both = b.pointwise(CUDNN_POINTWISE_MUL, d_o, &o, CUDNN_DATA_FLOAT);
  GraphTensor summed = b.reduce(CUDNN_REDUCE_TENSOR_ADD, both, g.row_dims, CUDNN_DATA_FLOAT);
  GraphTensor one = b.scalar(kOne), delta = g.row_values(kDelta);
  b.pointwise_to(CUDNN_POINTWISE_MUL, summed, &one, delta);

  GraphTensor x = g.scores(q, k);
  GraphTensor shifted = b.pointwise(CUDNN_POINTWISE_SUB, x, &lse, CUDNN_DATA_FLOAT);
  GraphTensor p = b.pointwise(CUDNN_POINTWISE_EXP, shifted, nullptr, g.io);

  auto to_keys = [&](const GraphTensor& weights, const GraphTensor& rows, Uid uid, int64_t entry,
                     int64_t row, Uid offsets) {
    GraphTensor upright = b.transposed(weights, g.io),
                out = g.input(uid, g.k_dims, entry, row, offsets);
    if (shape.heads == 1) return b.matmul_to(upright, rows, out, over_queries);
    b.reduce_to(CUDNN_REDUCE_TENSOR_ADD, b.matmul(upright, rows, g.io, over_queries), out);
  };
  to_keys(p, d_o, kDv, shape.dv_entry, shape.dv_row, kDvOffsets);

  GraphTensor dp = b.matmul(d_o, v, CUDNN_DATA_FLOAT, by_query);
  GraphTensor less = b.pointwise(CUDNN_POINTWISE_SUB, dp, &delta, CUDNN_DATA_FLOAT);
  GraphTensor weighted = b.pointwise(CUDNN_POINTWISE_MUL, less, &p, CUDNN_DATA_FLOAT);
  GraphTensor scale = b.scalar(kScale);
  GraphTensor ds = b.pointwise(CUDNN_POINTWISE_MUL, weighted, &scale, g.io);
  to_keys(ds, q, kDk, shape.dk_entry, shape.dk_row, kDkOffsets);
  GraphTensor dq = g.input(kDq, g.q_dims, shape.dq_entry, shape.dq_row, kDqOffsets);
  if (!shape.any_order) {
    b.matmul_to(ds, g.key_rows(k), dq, by_key);
    return b.finish(handle);
  }
  GraphTensor sum = g.query_sum();
  b.matmul_to(ds, g.key_rows(k), sum, by_key);
  b.pointwise_to(CUDNN_POINTWISE_IDENTITY, sum, nullptr, dq);
  return b.finish(handle);
}

}  // namespace mtrain::cuda
#endif
