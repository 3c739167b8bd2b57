#include "mtrain/dist/context_block.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace mtrain {
namespace {

HeadsView view_at(const Tensor& t, int64_t element, int64_t row_stride, int64_t group_stride) {
  return {static_cast<char*>(t.raw()) + static_cast<size_t>(element) * size_of(t.dtype()), row_stride, group_stride};
}

}  // namespace

HeadsView ContextBlock::fused(const Tensor& t, int64_t first_head) const {
  return view_at(t, first_head * layout.head_dim, layout.width(), layout.group_stride());
}

// `which`: 0 the keys, 1 the values.
HeadsView ContextBlock::keys(const Tensor& qkv, const Tensor& packed, int64_t which) const {
  if (!packed.defined()) return fused(qkv, layout.queries_per_group() + which);
  return view_at(packed, which * layout.head_dim, packed_width(), 2 * layout.head_dim);
}

Tensor ContextBlock::pack(Run& run, const Tensor& qkv) const {
  Tensor packed = run.empty({qkv.size(0), packed_width()}, qkv.dtype());
  if (!run.backend().computes()) return packed;
  HeadsView from = fused(qkv, layout.queries_per_group());
  size_t element = size_of(qkv.dtype()), bytes = static_cast<size_t>(2 * layout.head_dim) * element;
  auto* to = static_cast<char*>(packed.raw());
  for (int64_t row = 0; row < qkv.size(0); ++row)
    for (int64_t g = 0; g < layout.groups; ++g, to += bytes)
      std::memcpy(
          to,
          static_cast<char*>(from.data) + static_cast<size_t>(row * from.row_stride + g * from.group_stride) * element,
          bytes);
  return packed;
}

void ContextBlock::add_packed(Run& run, const Tensor& d_packed, const Tensor& d_qkv) const {
  if (!run.backend().computes()) return;
  const auto* from = d_packed.data<float>();
  HeadsView view = fused(d_qkv, layout.queries_per_group());
  for (int64_t row = 0; row < d_qkv.size(0); ++row)
    for (int64_t g = 0; g < layout.groups; ++g) {
      float* to = static_cast<float*>(view.data) + row * view.row_stride + g * view.group_stride;
      for (int64_t d = 0; d < 2 * layout.head_dim; ++d) to[d] += *from++;
    }
}

AttentionArgs ContextBlock::args(const Tensor& qkv, const Tensor& packed, Meeting meeting, const Tensor& o,
                                 const Tensor& lse) const {
  return {.q = fused(qkv, 0),
          .k = keys(qkv, packed, 0),
          .v = keys(qkv, packed, 1),
          .o = o.raw(),
          .lse = lse.data<float>(),
          .cu_seqlens = nullptr,
          .sequences = static_cast<int64_t>(meeting.spans.size()),
          .tokens = qkv.size(0),
          .heads = layout.heads,
          .groups = layout.groups,
          .head_dim = layout.head_dim,
          .scale = scale,
          .causal = meeting.causal,
          .dtype = qkv.dtype(),
          .spans = meeting.spans.data()};
}

void ContextBlock::forward(Run& run, const Tensor& qkv, const Tensor& packed, Meeting meeting, const Tensor& o,
                           const Tensor& lse, bool add) const {
  if (meeting.spans.empty()) return;
  AttentionArgs call = args(qkv, packed, meeting, o, lse);
  call.add = add;
  run.kernels().attention(run.stream(), call);
}

void ContextBlock::backward(Run& run, const Tensor& qkv, const Tensor& packed, Meeting meeting, const Tensor& o,
                            const Tensor& lse, const Tensor& d_o, const Tensor& d_qkv, const Tensor& d_packed) const {
  if (meeting.spans.empty()) return;
  run.kernels().attention_backward(run.stream(), {.forward = args(qkv, packed, meeting, o, lse),
                                                  .d_o = d_o.raw(),
                                                  .dq = fused(d_qkv, 0),
                                                  .dk = keys(d_qkv, d_packed, 0),
                                                  .dv = keys(d_qkv, d_packed, 1),
                                                  .add = true});
}

Tensor empty_lse(Run& run, int64_t heads, int64_t rows) {
  Tensor lse = run.empty({heads, rows}, DType::f32);
  if (run.backend().computes()) std::fill_n(lse.data<float>(), lse.numel(), -std::numeric_limits<float>::infinity());
  return lse;
}

Tensor rounded(Run& run, const Tensor& x, DType dtype) {
  if (dtype == x.dtype()) return x;
  Tensor y = run.empty(x.shape(), dtype);
  run.copy(y, x);
  return y;
}

}  // namespace mtrain
