#include "mtrain/autograd/ops/compositions.h"

#include "mtrain/kernel/dropout.h"

namespace mtrain::plain {
namespace {

struct Convert {  // y = x in another dtype
  DType to = DType::f32, from = DType::f32;
  Tensor forward(ExecutionContext& ctx, const Tensor& x) {
    from = x.dtype();
    Tensor y = ctx.empty(x.shape(), to);
    ctx.copy(y, x);
    return y;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    auto [dx, accumulate] = g[0].slot(ctx, dy.shape(), from);
    accumulate ? ctx.accumulate(dx, dy) : ctx.copy(dx, dy);
  }
};

struct Unary {  // y = f(x + shift)
  UnaryKind kind = UnaryKind::sigmoid;
  float shift = 0;
  Tensor x, y;

  static Tensor value(ExecutionContext& ctx, UnaryKind kind, const Tensor& x, float shift) {
    Tensor y = ctx.empty(x.shape(), x.dtype());
    ctx.kernels().unary(ctx.stream(), {.x = x.raw(),
                                       .y = y.raw(),
                                       .count = x.numel(),
                                       .kind = kind,
                                       .shift = shift,
                                       .dtype = x.dtype()});
    return y;
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& x_in) {
    x = x_in.detach();
    y = value(ctx, kind, x, shift);
    return y;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    GradMode off(ctx, false);
    g[0].give(ctx, mul(dy, slope(ctx)));
  }
  Tensor slope(ExecutionContext& ctx) const {
    if (kind == UnaryKind::sigmoid) return add(y, scale(mul(y, y), -1));   // y (1 - y)
    if (kind == UnaryKind::rsqrt) return scale(mul(mul(y, y), y), -0.5f);  // -y³ / 2
    if (kind == UnaryKind::tanh) return value(ctx, UnaryKind::tanh_slope, x, shift);
    if (kind == UnaryKind::relu) return value(ctx, UnaryKind::step, x, shift);
    MT_CHECK(kind == UnaryKind::normal_cdf, "a function without a derivative");
    return value(ctx, UnaryKind::normal_pdf, x, shift);
  }
};

/// The operands that turn sums of rows into a matrix product: a row of ones, and the index of each
/// row.
struct Ones {
  Tensor row, source;
  Ones(ExecutionContext& ctx, int64_t rows, int64_t cols)
      : row(ctx.empty({1, cols}, DType::f32)), source(ctx.zeros({rows}, DType::i32)) {
    ctx.fill(row, 1);
  }
};

/// out[t] = sum of row t of x[T,D]; float.
Tensor sums_of_rows(ExecutionContext& ctx, const Tensor& x) {
  Ones ones(ctx, x.size(0), x.size(1));
  Tensor out = ctx.empty({x.size(0)}, DType::f32);
  ctx.kernels().row_dots(ctx.stream(), {.a = x.raw(),
                                        .b = ones.row.raw(),
                                        .source = ones.source.data<int32_t>(),
                                        .out = out.data<float>(),
                                        .rows = x.size(0),
                                        .cols = x.size(1),
                                        .group = 1,
                                        .fan = 1,
                                        .dtype = x.dtype()});
  return out;
}
/// y[t,d] = v[t]; float.
Tensor spread(ExecutionContext& ctx, const Tensor& v, int64_t cols) {
  Ones ones(ctx, v.numel(), cols);
  Tensor y = ctx.empty({v.numel(), cols}, DType::f32);
  ctx.kernels().gather_sum(ctx.stream(), {.x = ones.row.raw(),
                                          .source = ones.source.data<int32_t>(),
                                          .weights = v.data<float>(),
                                          .weight_of = nullptr,
                                          .addend = nullptr,
                                          .y = y.raw(),
                                          .rows = v.numel(),
                                          .cols = cols,
                                          .fan = 1,
                                          .dtype = DType::f32});
  return y;
}

struct SumRows {  // y[T] = sums of the rows of x[T,D];  dx[t,d] = dy[t]
  int64_t cols = 0;
  Tensor forward(ExecutionContext& ctx, const Tensor& x) {
    cols = x.size(1);
    return sums_of_rows(ctx, x);
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    g[0].give(ctx, spread(ctx, dy, cols));
  }
};
struct Spread {  // y[t,d] = v[t];  dv = sums of the rows of dy
  int64_t cols = 0;
  Tensor forward(ExecutionContext& ctx, const Tensor& v) { return spread(ctx, v, cols); }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    g[0].give(ctx, sums_of_rows(ctx, dy));
  }
};

Tensor convert(const Tensor& x, DType to) {
  return x.dtype() == to ? x : apply(Convert{.to = to}, x);
}
Tensor in_float(const Tensor& x) { return convert(x, DType::f32); }
Tensor apply_unary(const Tensor& x, UnaryKind kind, float shift = 0) {
  require_kernel(x.context(), x.context().kernels().unary, "unary");
  return apply(Unary{.kind = kind, .shift = shift}, x);
}
/// The mean of each row of x[T,D].
Tensor row_means(const Tensor& x) {
  require_kernel(x.context(), x.context().kernels().row_dots, "row_dots");
  return scale(apply(SumRows{}, x), 1.0f / static_cast<float>(x.size(1)));
}
/// v[T] in each of D columns.
Tensor in_columns(const Tensor& v, int64_t cols) {
  require_kernel(v.context(), v.context().kernels().gather_sum, "gather_sum");
  return apply(Spread{.cols = cols}, v);
}
/// w[D] in each of T rows.
Tensor in_rows(const Tensor& w, int64_t rows) {
  return embedding(in_float(w).view({1, w.numel()}), w.context().zeros({rows}, DType::i32));
}

/// The weight of a norm, y * (w + offset). An undefined w is 0.
Tensor weighted(const Tensor& y, const Tensor& w, float offset) {
  Tensor from_w = w.defined() ? mul(y, in_rows(w, y.size(0))) : Tensor();
  if (offset == 0) return from_w;
  Tensor from_offset = offset == 1 ? y : scale(y, offset);
  return w.defined() ? add(from_w, from_offset) : from_offset;
}

/// Heads first … first + heads of each group of a fused projection.
struct HeadRange {
  HeadLayout layout;
  int64_t first = 0, heads = 0;
  int64_t width() const { return layout.groups * heads * layout.head_dim; }
  /// Copies them to `part` [T, width()], or adds the part to them.
  void copy(ExecutionContext& ctx, const Tensor& qkv, const Tensor& part, bool back) const {
    void* there = static_cast<char*>(qkv.raw()) +
                  static_cast<size_t>(first * layout.head_dim) * size_of(qkv.dtype());
    const int64_t count = heads * layout.head_dim;
    CopyBlocksArgs args{.src = there,
                        .dst = part.raw(),
                        .outer = qkv.size(0),
                        .inner = layout.groups,
                        .count = count,
                        .src_outer = layout.width(),
                        .src_inner = layout.group_stride(),
                        .dst_outer = width(),
                        .dst_inner = count,
                        .accumulate = back,
                        .dtype = qkv.dtype()};
    if (back) {
      args.src = part.raw(), args.dst = there;
      std::swap(args.src_outer, args.dst_outer), std::swap(args.src_inner, args.dst_inner);
    }
    ctx.kernels().copy_blocks(ctx.stream(), args);
  }
  Tensor taken(ExecutionContext& ctx, const Tensor& qkv) const {
    Tensor part = ctx.empty({qkv.size(0), width()}, qkv.dtype());
    copy(ctx, qkv, part, false);
    return part;
  }
};
struct TakeHeads {  // y = some heads of qkv
  HeadRange range;
  Tensor forward(ExecutionContext& ctx, const Tensor& qkv) { return range.taken(ctx, qkv); }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    const Shape whole = {dy.size(0), range.layout.width()};
    range.copy(ctx, g[0].accumulator(ctx, whole, dy.dtype()), dy, true);
  }
};
struct JoinQkv {  // qkv = the heads of q, k and v
  std::array<HeadRange, 3> ranges;
  Tensor forward(ExecutionContext& ctx, const Tensor& q, const Tensor& k, const Tensor& v) {
    Tensor qkv = ctx.zeros({q.size(0), ranges[0].layout.width()}, q.dtype());
    ranges[0].copy(ctx, qkv, q, true);
    ranges[1].copy(ctx, qkv, k, true);
    ranges[2].copy(ctx, qkv, v, true);
    return qkv;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<3>& g) {
    for (size_t i = 0; i < 3; ++i)
      if (g[i].wanted()) g[i].give(ctx, ranges[i].taken(ctx, dy));
  }
};
struct JoinSums {  // y = x summed over ranks, of those that count theirs;  dx = dy summed likewise
  HeadNormForm form;
  bool keys = false;
  Tensor joined(ExecutionContext& ctx, const Tensor& x, bool given, bool taken) const {
    Tensor sums = ctx.zeros({2, x.numel()}, DType::f32);
    const int row = keys ? 1 : 0;
    if (given) ctx.copy(sums.slice(0, row, row + 1).view(x.shape()), x);
    form.join(sums);
    Tensor y = ctx.zeros(x.shape(), DType::f32);
    if (taken) ctx.copy(y, sums.slice(0, row, row + 1).view(x.shape()));
    return y;
  }
  bool counts() const { return !keys || form.counts_keys; }
  Tensor forward(ExecutionContext& ctx, const Tensor& x) { return joined(ctx, x, counts(), true); }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    g[0].give(ctx, joined(ctx, dy, true, counts()));
  }
};

/// The norm of x[T, heads * E] in float.
Tensor norm_of_heads(const Tensor& x, const HeadNormForm& form, const Tensor& w, const Tensor& b,
                     int64_t head_dim, bool keys) {
  ExecutionContext& ctx = x.context();
  const int64_t tokens = x.size(0), cols = x.size(1);
  Tensor y = x;
  if (form.rows == HeadNormForm::Rows::all_heads) {
    const int64_t whole = (keys ? form.whole.groups : form.whole.heads) * head_dim;
    Tensor sums = apply(SumRows{}, mul(x, x));
    if (form.join) sums = apply(JoinSums{.form = form, .keys = keys}, sums);
    Tensor means = scale(sums, 1.0f / static_cast<float>(form.join ? whole : cols));
    y = mul(x, in_columns(apply_unary(means, UnaryKind::rsqrt, form.eps), cols));
  } else {
    const bool shared = form.rows == HeadNormForm::Rows::head;
    Tensor rows = x.view({tokens * (cols / head_dim), head_dim}), ones;
    if (!shared) ctx.fill(ones = ctx.empty({head_dim}, DType::f32), 1);
    const Tensor& weight = shared ? w : ones;
    rows = form.layer ? plain::layer_norm(rows, weight, shared ? b : Tensor(), form.eps,
                                          shared ? form.offset : 0)
                      : plain::rms_norm(rows, weight, form.eps, shared ? form.offset : 0);
    if (shared) return rows.view({tokens, cols});
    y = rows.view({tokens, cols});
  }
  y = weighted(y, w, form.offset);
  return b.defined() ? add(y, in_rows(b, tokens)) : y;
}

}  // namespace

Tensor head_norm(const Tensor& qkv, const HeadLayout& layout, const HeadNormForm& form,
                 const HeadNormWeights& weights) {
  const int64_t queries = layout.queries_per_group();
  const HeadRange q{layout, 0, queries}, k{layout, queries, 1}, v{layout, queries + 1, 1};
  auto normed = [&](const HeadRange& range, const Tensor& w, const Tensor& b) {
    Tensor x = in_float(apply(TakeHeads{range}, qkv));
    return convert(norm_of_heads(x, form, w, b, layout.head_dim, range.first > 0), qkv.dtype());
  };
  require_kernel(qkv.context(), qkv.context().kernels().copy_blocks, "copy_blocks");
  Tensor normed_q = normed(q, weights.q, weights.q_bias),
         normed_k = normed(k, weights.k, weights.k_bias);
  return apply(JoinQkv{{q, k, v}}, normed_q, normed_k, apply(TakeHeads{v}, qkv));
}

Tensor sigmoid_mul(const Tensor& gate, const Tensor& x) {
  return convert(mul(apply_unary(in_float(gate), UnaryKind::sigmoid), in_float(x)), x.dtype());
}

Tensor silu_mul(const Tensor& gate, const Tensor& up) {
  Tensor g = in_float(gate);
  return convert(mul(mul(g, apply_unary(g, UnaryKind::sigmoid)), in_float(up)), gate.dtype());
}

namespace {
Tensor gelu_in_float(const Tensor& x, GeluKind kind) {
  if (kind == GeluKind::erf) return mul(x, apply_unary(x, UnaryKind::normal_cdf));
  constexpr float kCubic = 0.044715f, kTwoC = 1.5957691216057308f;  // 2 sqrt(2/π)
  Tensor inner = scale(add(x, scale(mul(mul(x, x), x), kCubic)), kTwoC);
  return mul(x, apply_unary(inner, UnaryKind::sigmoid));
}
}  // namespace

Tensor gelu(const Tensor& x, GeluKind kind) {
  return convert(gelu_in_float(in_float(x), kind), x.dtype());
}

Tensor gelu_mul(const Tensor& gate, const Tensor& up, GeluKind kind) {
  return convert(mul(gelu_in_float(in_float(gate), kind), in_float(up)), gate.dtype());
}

Tensor relu(const Tensor& x, ReluKind kind) {
  Tensor y = apply_unary(in_float(x), UnaryKind::relu);
  return convert(kind == ReluKind::squared ? mul(y, y) : y, x.dtype());
}

Tensor map_logits(const Tensor& x, const LogitMap& map) {
  if (map.cap == 0) return scale(x, map.scale);
  Tensor inner = scale(in_float(x), map.scale / map.cap);
  return convert(scale(apply_unary(inner, UnaryKind::tanh), map.cap), x.dtype());
}

Tensor rms_norm(const Tensor& x_in, const Tensor& w, float eps, float offset) {
  Tensor x = in_float(x_in);
  Tensor rstd = apply_unary(row_means(mul(x, x)), UnaryKind::rsqrt, eps);
  return convert(weighted(mul(x, in_columns(rstd, x.size(1))), w, offset), x_in.dtype());
}

Tensor layer_norm(const Tensor& x_in, const Tensor& w, const Tensor& b, float eps, float offset) {
  Tensor x = in_float(x_in);
  int64_t rows = x.size(0), cols = x.size(1);
  Tensor centred = add(x, in_columns(scale(row_means(x), -1), cols));
  Tensor rstd = apply_unary(row_means(mul(centred, centred)), UnaryKind::rsqrt, eps);
  Tensor y = weighted(mul(centred, in_columns(rstd, cols)), w, offset);
  if (b.defined()) y = add(y, in_rows(b, rows));
  return convert(y, x_in.dtype());
}

Tensor dropout(const Tensor& x, float p, uint64_t name_key, const std::vector<RowRange>& tokens) {
  ExecutionContext& ctx = x.context();
  RngStream rng(ctx.seed(), name_key, ctx.step);
  std::vector<float> factors;
  factors.reserve(static_cast<size_t>(x.numel()));
  for (const RowRange& some : tokens)
    for (int64_t i = 0; i < some.rows * x.size(1); ++i)
      factors.push_back(dropout_factor(rng, some.first * x.size(1) + i, p, 1.0f / (1.0f - p)));
  Tensor mask = ctx.from_host<float>(factors, x.shape());
  return convert(mul(in_float(x), mask), x.dtype());
}

void rotate(const Tensor& qkv, const HeadLayout& layout, const RopeTable& table,
            const Tensor& positions, bool inverse) {
  ExecutionContext& ctx = qkv.context();
  GradMode off(ctx, false);
  require_kernel(ctx, ctx.kernels().copy_blocks, "copy_blocks");
  const int64_t tokens = qkv.size(0), half = table.cos.size(1),
                step = table.interleaved ? 2 : 1;  // between elements of adjacent pairs
  // A row of the table for each token.
  auto angles = [&](const Tensor& rows) { return embedding(rows, positions.view({tokens})); };
  Tensor cos = angles(table.cos), sin = scale(angles(table.sin), inverse ? -1 : 1);
  // Elements first, first + step … of each row of qkv, and a tensor [T, half] of that dtype.
  auto move = [&](const Tensor& part, int64_t first, bool back) {
    void* there = static_cast<char*>(qkv.raw()) + static_cast<size_t>(first) * size_of(qkv.dtype());
    CopyBlocksArgs args{.src = there,
                        .dst = part.raw(),
                        .outer = tokens,
                        .inner = half,
                        .count = 1,
                        .src_outer = layout.width(),
                        .src_inner = step,
                        .dst_outer = half,
                        .dst_inner = 1,
                        .accumulate = false,
                        .dtype = qkv.dtype()};
    if (back) {
      args.src = part.raw(), args.dst = there;
      std::swap(args.src_outer, args.dst_outer), std::swap(args.src_inner, args.dst_inner);
    }
    ctx.kernels().copy_blocks(ctx.stream(), args);
  };
  auto taken = [&](int64_t first) {
    Tensor part = ctx.empty({tokens, half}, qkv.dtype());
    move(part, first, false);
    return in_float(part);
  };
  for (int64_t group = 0; group < layout.groups; ++group)
    for (int64_t head = 0; head <= layout.queries_per_group(); ++head) {
      int64_t first = group * layout.group_stride() + head * layout.head_dim,
              second = first + (table.interleaved ? 1 : half);
      Tensor a = taken(first), b = taken(second);
      move(convert(add(mul(a, cos), scale(mul(b, sin), -1)), qkv.dtype()), first, true);
      move(convert(add(mul(b, cos), mul(a, sin)), qkv.dtype()), second, true);
    }
}

}  // namespace mtrain::plain
