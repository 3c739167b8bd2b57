#include "mtrain/tensor/work.h"

#include <algorithm>

#include "mtrain/base/error.h"

namespace mtrain {
namespace {

double product(int64_t a, int64_t b, int64_t c = 1) {
  return static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c);
}
double bytes(double count, DType dtype) { return count * static_cast<double>(size_of(dtype)); }

/// A kernel over `count` elements that reads and writes `passes` arrays of that size in total.
CountedWork elements(int64_t count, double passes, double flops_each, DType dtype) {
  auto n = static_cast<double>(count);
  return {{n * flops_each, bytes(n * passes, dtype)}, cat(count, " ", name(dtype))};
}
CountedWork rows(int64_t rows, int64_t cols, double passes, double flops_each, DType dtype) {
  CountedWork out = elements(rows * cols, passes, flops_each, dtype);
  out.shape = cat(rows, "x", cols, " ", name(dtype));
  return out;
}

/// dy and x are read; dx is written if it is not null, and also read when accumulating.
template <class Args>
double backward_passes(const Args& a) {
  return a.dx == nullptr ? 2 : a.accumulate_dx ? 4 : 3;
}

/// The sum of clamp(offset + 1 + i, 0, keys) over queries i: the keys that are not after a query.
double earlier_keys(double queries, double keys, double offset) {
  double none = std::clamp(-offset, 0.0, queries),
         growing = std::clamp(keys - offset - 1, none, queries);
  return (growing - none) * (offset + 1) + (growing * (growing - 1) - none * (none - 1)) / 2 +
         (queries - growing) * keys;
}
/// Number of (query, key) pairs that attention computes.
double pairs(const AttentionSpan& span, bool causal, int64_t window) {
  auto queries = static_cast<double>(span.queries), keys = static_cast<double>(span.keys);
  if (!causal || span.keys == 0) return queries * keys;
  double seen = earlier_keys(queries, keys, span.offset);
  if (window == 0) return seen;
  return seen - earlier_keys(queries, keys, span.offset - static_cast<double>(window));
}
double pairs(const AttentionArgs& a) {
  double sum = 0;
  for (int64_t s = 0; s < a.sequences; ++s) {
    int32_t n = a.spans ? 0 : a.cu_seqlens[s + 1] - a.cu_seqlens[s];
    sum += pairs(a.spans ? a.spans[s] : AttentionSpan{0, n, 0, n, 0}, a.causal, a.window);
  }
  return sum * static_cast<double>(a.heads);
}
std::string shape(const AttentionArgs& a) {
  return cat(a.tokens, " tokens, ", a.heads, "/", a.groups, " heads of ", a.head_dim, " ",
             name(a.dtype));
}
double qkv(const AttentionArgs& a) { return product(a.tokens, a.heads + 2 * a.groups, a.head_dim); }

}  // namespace

CountedWork count(const GemmArgs& g) {
  auto batch = static_cast<double>(g.batch);
  double operands = bytes(product(g.m, g.k) + product(g.n, g.k), g.dtype);
  double result = bytes(product(g.m, g.n), g.c_dtype) * (g.beta == 0 && !g.addend ? 1 : 2);
  const char* direction = g.transpose_a ? "TN" : g.transpose_b ? "NT" : "NN";
  return {{2 * batch * product(g.m, g.n, g.k), batch * (operands + result)},
          cat(g.batch > 1 ? cat(g.batch, " x ") : "", g.m, "x", g.n, "x", g.k, " ", direction, " ",
              name(g.dtype))};
}
CountedWork count(const QuantizedGemmArgs& a) {
  const GemmArgs& g = a.product;
  double read = static_cast<double>(a.a.code_bytes() + a.b.code_bytes() + a.a.scale_bytes() +
                                    a.b.scale_bytes());
  double result = bytes(product(g.m, g.n), g.c_dtype) * (g.beta == 0 && !g.addend ? 1 : 2);
  return {{2 * product(g.m, g.n, g.k), read + result},
          cat(g.m, "x", g.n, "x", g.k, " ", name(a.a.format), " ", name(a.b.format))};
}
CountedWork count(const RmsNormArgs& a) { return rows(a.rows, a.cols, 2, 4, a.dtype); }
CountedWork count(const RmsNormBackwardArgs& a) {
  return rows(a.rows, a.cols, backward_passes(a), 8, a.dtype);
}
CountedWork count(const LayerNormArgs& a) { return rows(a.rows, a.cols, 2, 7, a.dtype); }
CountedWork count(const LayerNormBackwardArgs& a) {
  return rows(a.rows, a.cols, backward_passes(a), 11, a.dtype);
}
CountedWork count(const RopeArgs& a) {
  return rows(a.tokens, a.groups * a.heads_per_group * a.rotary_dim, 2, 3, a.dtype);
}
CountedWork count(const AttentionArgs& a) {
  auto e = static_cast<double>(a.head_dim);
  return {{4 * pairs(a) * e, bytes(qkv(a) + product(a.tokens, a.heads, a.head_dim), a.dtype)},
          shape(a)};
}
CountedWork count(const AttentionBackwardArgs& b) {
  const AttentionArgs& a = b.forward;
  auto e = static_cast<double>(a.head_dim);  // five products: scores (recomputed), dv, dp, dq, dk
  return {
      {10 * pairs(a) * e, bytes(2 * qkv(a) + 2 * product(a.tokens, a.heads, a.head_dim), a.dtype)},
      shape(a)};
}
CountedWork count(const AttentionSinkBackwardArgs& a) {
  return elements(a.tokens * a.heads * a.head_dim, 2, 2, a.dtype);
}
CountedWork count(const HeadNormArgs& a) {
  return rows(a.tokens, a.groups * a.heads * a.head_dim, a.kept ? 3 : 2, a.mean ? 7 : 4, a.dtype);
}
CountedWork count(const HeadNormBackwardArgs& a) {
  return rows(a.tokens, a.groups * a.heads * a.head_dim, 3, a.mean ? 11 : 8, a.dtype);
}
CountedWork count(const HeadSumsArgs& a) {
  return rows(a.tokens, a.groups * a.heads * a.head_dim, a.kept ? 2 : 1, a.kept ? 3 : 2, a.dtype);
}
CountedWork count(const ClampArgs& a) { return elements(a.count, 2, 2, a.dtype); }
CountedWork count(const ClampBackwardArgs& a) { return elements(a.count, 2, 1, a.dtype); }
CountedWork count(const SigmoidMulArgs& a) { return elements(a.count, 3, 9, a.dtype); }
CountedWork count(const SigmoidMulBackwardArgs& a) { return elements(a.count, 5, 13, a.dtype); }
CountedWork count(const SiluMulArgs& a) { return elements(a.count, 3, 10, a.dtype); }
CountedWork count(const SiluMulBackwardArgs& a) { return elements(a.count, 5, 16, a.dtype); }
CountedWork count(const GeluArgs& a) { return elements(a.count, 2, 20, a.dtype); }
CountedWork count(const GeluBackwardArgs& a) {
  return elements(a.count, a.accumulate ? 4 : 3, 25, a.dtype);
}
CountedWork count(const GeluMulArgs& a) { return elements(a.count, 3, 21, a.dtype); }
CountedWork count(const GeluMulBackwardArgs& a) { return elements(a.count, 5, 29, a.dtype); }
CountedWork count(const ReluArgs& a) { return elements(a.count, 2, 2, a.dtype); }
CountedWork count(const ReluBackwardArgs& a) {
  return elements(a.count, a.accumulate ? 4 : 3, 3, a.dtype);
}
CountedWork count(const EmbeddingArgs& a) { return rows(a.tokens, a.cols, 2, 0, a.dtype); }
CountedWork count(const EmbeddingBackwardArgs& a) {
  CountedWork out = rows(a.tokens, a.cols, 1, 1, a.dtype);
  out.work.bytes += 8 * product(a.tokens, a.cols);  // float sums are read and written
  return out;
}
CountedWork count(const GatherSumArgs& a) {
  CountedWork out =
      rows(a.rows, a.cols, static_cast<double>(a.fan) + (a.addend ? 2 : 1), 0, a.dtype);
  out.work.flops = (a.weights ? 2 : 1) * product(a.rows, a.fan, a.cols);
  return out;
}
CountedWork count(const RowDotsArgs& a) {
  CountedWork out = rows(a.rows, a.cols, static_cast<double>(a.fan), 0, a.dtype);
  out.work.flops = 2 * product(a.rows, a.fan, a.cols);
  out.work.bytes += bytes(product(a.rows / std::max<int64_t>(1, a.group), a.cols), a.dtype);
  return out;
}
CountedWork count(const CrossEntropyArgs& a) { return rows(a.rows, a.cols, 1, 10, a.dtype); }
CountedWork count(const CrossEntropyBackwardArgs& a) {
  return rows(a.rows, a.cols, 2, 10, a.dtype);
}
CountedWork count(const DistillationArgs& a) { return rows(a.rows, a.cols, 2, 40, a.dtype); }
CountedWork count(const DistillationBackwardArgs& a) {
  return rows(a.rows, a.cols, 3, 50, a.dtype);
}
CountedWork count(const TopKLogitsArgs& a) { return rows(a.rows, a.cols, 1, 10, a.dtype); }
CountedWork count(const TopKDistillationArgs& a) {
  return rows(a.rows, a.teacher.k, 3, 40, DType::f32);
}
CountedWork count(const TopKDistillationBackwardArgs& a) {
  return rows(a.rows, a.cols, 2, 40, a.dtype);
}
CountedWork count(const AddArgs& a) { return elements(a.count, 3, 1, a.dtype); }
CountedWork count(const MulArgs& a) { return elements(a.count, 3, 1, a.dtype); }
CountedWork count(const UnaryArgs& a) { return elements(a.count, 2, 20, a.dtype); }
CountedWork count(const CastArgs& a) {
  auto n = static_cast<double>(a.count);
  return {{n, bytes(n, a.src_dtype) + bytes(n, a.dst_dtype) * (a.accumulate ? 2 : 1)},
          cat(a.count, " ", name(a.src_dtype), " to ", name(a.dst_dtype))};
}
CountedWork count(const CopyBlocksArgs& a) {
  return elements(a.outer * a.inner * a.count, a.accumulate ? 3 : 2, a.accumulate ? 1 : 0, a.dtype);
}
CountedWork count(const ColumnSumArgs& a) { return rows(a.rows, a.cols, 1, 1, a.dtype); }
CountedWork count(const DropoutArgs& a) { return elements(a.count, 2, 30, a.dtype); }
CountedWork count(const AmaxArgs& a) { return elements(a.count, 1, 1, a.dtype); }
CountedWork count(const QuantizeArgs& a) {
  // Tiles are read twice: once for their amax, once for rounding.
  CountedWork out = rows(a.rows, a.cols, a.scale == QuantScale::tensor ? 1 : 2, 2, a.dtype);
  out.work.bytes += product(a.rows, a.cols) * ((a.values ? 2 : 0) + (a.codes ? 1 : 0));
  if (a.packed)
    out.work.bytes += static_cast<double>(layout_of(a).code_bytes() + layout_of(a).scale_bytes());
  return out;
}
CountedWork count(const HadamardArgs& a) { return rows(a.rows, a.cols, 2, 4, a.dtype); }
CountedWork count(const DecodeWeightArgs& a) {
  CountedWork out = rows(a.rows, a.cols, 1, 1, a.dtype);
  out.work.bytes += static_cast<double>(a.rows * code_bytes(a.format, a.cols));
  return out;
}
CountedWork count(const DoubleGemmArgs& a) {
  const double c = bytes(product(a.m, a.n), a.c_dtype) * (a.accumulate ? 2 : 1);
  return {{2 * product(a.m, a.n, a.k),
           bytes(product(a.m, a.k), a.a_dtype) + bytes(product(a.n, a.k), a.b_dtype) + c},
          cat(a.m, "x", a.n, "x", a.k, " fp64 of ", name(a.a_dtype), " ", name(a.b_dtype))};
}
CountedWork count(const SquaredNormArgs& a) { return elements(a.count, 1, 2, DType::f32); }
CountedWork count(const AdamWArgs& a) {
  CountedWork out = elements(
      a.count, 7, 15, DType::f32);  // three arrays are read and written, the gradient is read
  if (a.value) out.work.bytes += bytes(static_cast<double>(a.count), a.value_dtype);
  return out;
}

}  // namespace mtrain
