// Elementwise ops: sums and products, gated and plain activations, dropout.
#include "mtrain/autograd/ops.h"
#include "mtrain/autograd/ops/compositions.h"
#include "mtrain/autograd/ops/products.h"
#include "mtrain/autograd/ops/stream_tokens.h"
#include "mtrain/autograd/projection_ops.h"

namespace mtrain {
namespace {

/// to (+)= factor * from.
void accumulate_scaled(ExecutionContext& ctx, const Tensor& from, const Tensor& to, float factor,
                       bool accumulate) {
  ctx.kernels().cast(ctx.stream(), {.src = from.raw(),
                                    .dst = to.raw(),
                                    .count = from.numel(),
                                    .scale = factor,
                                    .accumulate = accumulate,
                                    .src_dtype = from.dtype(),
                                    .dst_dtype = to.dtype()});
}

struct Add {  // y = a + factor * b;  da = dy, db = factor * dy
  float factor = 1;
  MaybePlacement placed(const Tensor& a, const Tensor& b) const {
    return ResultPlacement("add", a).with(PlacementRule::add, b);
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& a, const Tensor& b) {
    Tensor y = ctx.empty(a.shape(), a.dtype());
    ctx.kernels().add(ctx.stream(), {.a = a.raw(),
                                     .b = b.raw(),
                                     .y = y.raw(),
                                     .count = a.numel(),
                                     .dtype = a.dtype(),
                                     .factor = factor});
    return y;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<2>& g) {
    if (g[1].wanted() && factor != 1) {
      auto [db, accumulate] = g[1].slot(ctx, dy.shape(), dy.dtype());
      accumulate_scaled(ctx, dy, db, factor, accumulate);
    }
    if (g[0].wanted()) g[0].give(ctx, dy);
    if (g[1].wanted() && factor == 1) g[1].give(ctx, dy);
  }
};

struct AddBias {  // y = x + b + residual;  dx = dresidual = dy, db = column sums of dy
  MaybePlacement placed(const Tensor& x, const Tensor& b, const Tensor& residual) const {
    return ResultPlacement("add_bias", x)
        .with(PlacementRule::bias, b)
        .with(PlacementRule::add, residual);
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& x, const Tensor& b, const Tensor& residual) {
    Tensor y = ctx.empty(x.shape(), x.dtype());
    ctx.kernels().add(ctx.stream(), {.a = x.raw(),
                                     .b = residual.defined() ? residual.raw() : nullptr,
                                     .y = y.raw(),
                                     .count = x.numel(),
                                     .dtype = x.dtype(),
                                     .row = b.raw(),
                                     .cols = x.size(1),
                                     .row_dtype = b.dtype()});
    return y;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<3>& g) {
    if (g[0].wanted()) g[0].give(ctx, dy);
    if (g[1].wanted()) g[1].compute([&ctx, dy](InputGrad& bias) { bias_gradient(ctx, dy, bias); });
    if (g[2].wanted()) g[2].give(ctx, dy);
  }
};

struct Mul {  // y = a * b;  da = dy * b, db = dy * a
  Tensor a, b;
  MaybePlacement placed(const Tensor& x, const Tensor& y) const {
    return ResultPlacement("mul", x).with(PlacementRule::multiply, y);
  }
  static Tensor product(ExecutionContext& ctx, const Tensor& x, const Tensor& y) {
    Tensor out = ctx.empty(x.shape(), x.dtype());
    ctx.kernels().mul(
        ctx.stream(),
        {.a = x.raw(), .b = y.raw(), .y = out.raw(), .count = x.numel(), .dtype = x.dtype()});
    return out;
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& a_in, const Tensor& b_in) {
    a = a_in.detach();
    b = b_in.detach();
    return recompute(ctx);
  }
  Tensor recompute(ExecutionContext& ctx) { return product(ctx, a, b); }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<2>& g) {
    if (g[0].wanted()) g[0].give(ctx, product(ctx, dy, b));
    if (g[1].wanted()) g[1].give(ctx, product(ctx, dy, a));
  }
};

struct Scale {  // y = factor * x;  dx = factor * dy
  float factor = 1;
  MaybePlacement placed(const Tensor& x) const { return ResultPlacement("scale", x); }
  Tensor forward(ExecutionContext& ctx, const Tensor& x) {
    Tensor y = ctx.empty(x.shape(), x.dtype());
    accumulate_scaled(ctx, x, y, factor, false);
    return y;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    auto [dx, accumulate] = g[0].slot(ctx, dy.shape(), dy.dtype());
    accumulate_scaled(ctx, dy, dx, factor, accumulate);
  }
};

struct SiluMul {  // y = silu(gate) * up
  Tensor gate, up;
  MaybePlacement placed(const Tensor& g, const Tensor& u) const {
    return ResultPlacement("silu_mul", g).with(PlacementRule::pointwise, u);
  }
  Tensor composition(const Tensor& g, const Tensor& u) const { return plain::silu_mul(g, u); }
  Tensor forward(ExecutionContext& ctx, const Tensor& gate_in, const Tensor& up_in) {
    gate = gate_in.detach();
    up = up_in.detach();
    return recompute(ctx);
  }
  Tensor recompute(ExecutionContext& ctx) {
    Tensor y = ctx.empty(gate.shape(), gate.dtype());
    ctx.kernels().silu_mul(ctx.stream(), {.gate = gate.raw(),
                                          .up = up.raw(),
                                          .y = y.raw(),
                                          .count = gate.numel(),
                                          .dtype = gate.dtype()});
    return y;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<2>& g) {
    Tensor d_gate = ctx.empty(gate.shape(), gate.dtype()), d_up = ctx.empty(up.shape(), up.dtype());
    ctx.kernels().silu_mul_backward(ctx.stream(), {.dy = dy.raw(),
                                                   .gate = gate.raw(),
                                                   .up = up.raw(),
                                                   .d_gate = d_gate.raw(),
                                                   .d_up = d_up.raw(),
                                                   .count = gate.numel(),
                                                   .dtype = gate.dtype()});
    if (g[0].wanted()) g[0].give(ctx, d_gate);
    if (g[1].wanted()) g[1].give(ctx, d_up);
  }
};

struct SigmoidMul {  // y = sigmoid(gate) * x
  Tensor gate, x;
  MaybePlacement placed(const Tensor& g, const Tensor& in) const {
    return ResultPlacement("sigmoid_mul", g).with(PlacementRule::pointwise, in);
  }
  Tensor composition(const Tensor& g, const Tensor& in) const { return plain::sigmoid_mul(g, in); }
  Tensor forward(ExecutionContext& ctx, const Tensor& gate_in, const Tensor& x_in) {
    gate = gate_in.detach();
    x = x_in.detach();
    return recompute(ctx);
  }
  Tensor recompute(ExecutionContext& ctx) {
    Tensor y = ctx.empty(x.shape(), x.dtype());
    ctx.kernels().sigmoid_mul(
        ctx.stream(),
        {.gate = gate.raw(), .x = x.raw(), .y = y.raw(), .count = x.numel(), .dtype = x.dtype()});
    return y;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<2>& g) {
    Tensor d_gate = ctx.empty(gate.shape(), gate.dtype()), dx = ctx.empty(x.shape(), x.dtype());
    ctx.kernels().sigmoid_mul_backward(ctx.stream(), {.dy = dy.raw(),
                                                      .gate = gate.raw(),
                                                      .x = x.raw(),
                                                      .d_gate = d_gate.raw(),
                                                      .dx = dx.raw(),
                                                      .count = x.numel(),
                                                      .dtype = x.dtype()});
    if (g[0].wanted()) g[0].give(ctx, d_gate);
    if (g[1].wanted()) g[1].give(ctx, dx);
  }
};

struct Clamp {  // y = min(max(x, -limit), limit);  dx = dy where |x| <= limit, else 0
  float limit = 0;
  Tensor kept;  // one bit per element
  MaybePlacement placed(const Tensor& x) const {
    return ResultPlacement("clamp", x).with(PlacementRule::pointwise);
  }
  static Tensor writable(ExecutionContext& ctx, const Tensor& x, bool exclusive) {
    if (exclusive) return x.detach();
    Tensor copy = ctx.empty(x.shape(), x.dtype());
    ctx.copy(copy, x);
    return copy;
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& x) {
    Tensor y = writable(ctx, x, x.unique());
    if (ctx.grad_enabled) kept = ctx.empty({(y.numel() + 7) / 8}, DType::u8);
    ctx.kernels().clamp(ctx.stream(), {.x = y.raw(),
                                       .kept = kept.defined() ? kept.data<uint8_t>() : nullptr,
                                       .count = y.numel(),
                                       .limit = limit,
                                       .dtype = y.dtype()});
    return y;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    Tensor dx = writable(ctx, dy, dy.unique());
    ctx.kernels().clamp_backward(
        ctx.stream(),
        {.dx = dx.raw(), .kept = kept.data<uint8_t>(), .count = dx.numel(), .dtype = dx.dtype()});
    g[0].give(ctx, dx);
  }
};

/// y = f(x), element by element; `kind` selects f.
template <class Kind, auto kKernel, auto kBackward, auto kPlain>
struct Activation {
  const char* name;
  Kind kind;
  Tensor x;
  MaybePlacement placed(const Tensor& in) const {
    return ResultPlacement(name, in).with(PlacementRule::pointwise);
  }
  Tensor composition(const Tensor& in) const { return kPlain(in, kind); }
  Tensor forward(ExecutionContext& ctx, const Tensor& x_in) {
    x = x_in.detach();
    return recompute(ctx);
  }
  Tensor recompute(ExecutionContext& ctx) {
    Tensor y = ctx.empty(x.shape(), x.dtype());
    (ctx.kernels().*kKernel)(
        ctx.stream(),
        {.x = x.raw(), .y = y.raw(), .count = x.numel(), .kind = kind, .dtype = x.dtype()});
    return y;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    auto [dx, accumulate] = g[0].slot(ctx, x.shape(), x.dtype());
    (ctx.kernels().*kBackward)(ctx.stream(), {.dy = dy.raw(),
                                              .x = x.raw(),
                                              .dx = dx.raw(),
                                              .count = x.numel(),
                                              .kind = kind,
                                              .accumulate = accumulate,
                                              .dtype = x.dtype()});
  }
};
using Gelu = Activation<GeluKind, &KernelTable::gelu, &KernelTable::gelu_backward, &plain::gelu>;
using Relu = Activation<ReluKind, &KernelTable::relu, &KernelTable::relu_backward, &plain::relu>;

struct GeluMul {  // y = gelu(gate) * up
  GeluKind kind = GeluKind::erf;
  Tensor gate, up;
  MaybePlacement placed(const Tensor& g, const Tensor& u) const {
    return ResultPlacement("gelu_mul", g).with(PlacementRule::pointwise, u);
  }
  Tensor composition(const Tensor& g, const Tensor& u) const { return plain::gelu_mul(g, u, kind); }
  Tensor forward(ExecutionContext& ctx, const Tensor& gate_in, const Tensor& up_in) {
    gate = gate_in.detach();
    up = up_in.detach();
    return recompute(ctx);
  }
  Tensor recompute(ExecutionContext& ctx) {
    Tensor y = ctx.empty(gate.shape(), gate.dtype());
    ctx.kernels().gelu_mul(ctx.stream(), {.gate = gate.raw(),
                                          .up = up.raw(),
                                          .y = y.raw(),
                                          .count = gate.numel(),
                                          .kind = kind,
                                          .dtype = gate.dtype()});
    return y;
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<2>& g) {
    Tensor d_gate = ctx.empty(gate.shape(), gate.dtype()), d_up = ctx.empty(up.shape(), up.dtype());
    ctx.kernels().gelu_mul_backward(ctx.stream(), {.dy = dy.raw(),
                                                   .gate = gate.raw(),
                                                   .up = up.raw(),
                                                   .d_gate = d_gate.raw(),
                                                   .d_up = d_up.raw(),
                                                   .count = gate.numel(),
                                                   .kind = kind,
                                                   .dtype = gate.dtype()});
    if (g[0].wanted()) g[0].give(ctx, d_gate);
    if (g[1].wanted()) g[1].give(ctx, d_up);
  }
};

struct Dropout {  // y = x * keep / (1 - p); the same mask turns dy into dx
  float p = 0;
  uint64_t name_key = 0, step = 0;
  std::vector<RowRange> tokens;  // one range list for the rows of x, in order

  MaybePlacement placed(const Tensor& x) const {
    return ResultPlacement("dropout", x)
        .with(PlacementRule::pointwise)
        .unsharded(1, "masks are those of whole rows of the residual stream");
  }
  Tensor composition(const Tensor& x) const {
    return plain::dropout(x, p, name_key, stream_tokens(x.context(), x.size(0)));
  }
  Tensor masked(ExecutionContext& ctx, const Tensor& x) const {
    Tensor y = ctx.empty(x.shape(), x.dtype());
    int64_t row = 0;
    for (const RowRange& some : tokens) {
      ctx.kernels().dropout(ctx.stream(), {.x = x.slice(0, row, row + some.rows).raw(),
                                           .y = y.slice(0, row, row + some.rows).raw(),
                                           .count = some.rows * x.size(1),
                                           .first_index = some.first * x.size(1),
                                           .seed = ctx.seed(),
                                           .name_key = name_key,
                                           .step = step,
                                           .p = p,
                                           .dtype = x.dtype()});
      row += some.rows;
    }
    return y;
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& x) {
    step = ctx.step;
    tokens = stream_tokens(ctx, x.size(0));
    return masked(ctx, x);
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    g[0].give(ctx, masked(ctx, dy));
  }
};

void check_alike(const Tensor& a, const Tensor& b) {
  MT_CHECK(a.shape() == b.shape() && a.dtype() == b.dtype(), a.shape(), " ", name(a.dtype()),
           " vs ", b.shape(), " ", name(b.dtype()));
  MT_CHECK(a.contiguous() && b.contiguous(), a.shape());
}

}  // namespace

std::vector<RowRange> stream_tokens(const ExecutionContext& ctx, int64_t rows) {
  if (!ctx.own_tokens) return {{ctx.first_token, rows}};
  std::vector<RowRange> tokens = *ctx.own_tokens;
  int64_t known = 0;
  for (RowRange& range : tokens) {
    range.first += ctx.first_token;
    known += range.rows;
  }
  MT_CHECK(known == rows, "random numbers for ", rows, " rows; the residual stream has ", known);
  return tokens;
}

Tensor add(const Tensor& a, const Tensor& b) {
  check_alike(a, b);
  require_kernel(a.context(), a.context().kernels().add, "add");
  return apply(Add{}, a, b);
}

Tensor add_scaled(const Tensor& a, const Tensor& b, float factor) {
  check_alike(a, b);
  require_kernel(a.context(), a.context().kernels().add, "add");
  return apply(Add{.factor = factor}, a, b);
}

Tensor add_bias(const Tensor& x, const Tensor& b, const Tensor& residual) {
  if (!b.defined()) return residual.defined() ? add(x, residual) : x;
  if (residual.defined()) check_alike(x, residual);
  MT_CHECK(x.shape().rank() == 2 && x.contiguous() && b.numel() == x.size(1) && b.contiguous(),
           x.shape(), " and ", b.shape());
  require_kernel(x.context(), x.context().kernels().add, "add");
  return apply(AddBias{}, x, b, residual);
}

Tensor mul(const Tensor& a, const Tensor& b) {
  check_alike(a, b);
  require_kernel(a.context(), a.context().kernels().mul, "mul");
  return apply(Mul{}, a, b);
}

Tensor scale(const Tensor& x, float factor) {
  MT_CHECK(x.contiguous(), x.shape());
  require_kernel(x.context(), x.context().kernels().cast, "cast");
  return apply(Scale{.factor = factor}, x);
}

Tensor silu_mul(const Tensor& gate, const Tensor& up) {
  check_alike(gate, up);
  const KernelTable& kernels = gate.context().kernels();
  return apply_or_compose(kernels.silu_mul && kernels.silu_mul_backward, SiluMul{}, gate, up);
}

Tensor sigmoid_mul(const Tensor& gate, const Tensor& x) {
  check_alike(gate, x);
  const KernelTable& kernels = gate.context().kernels();
  return apply_or_compose(kernels.sigmoid_mul && kernels.sigmoid_mul_backward, SigmoidMul{}, gate,
                          x);
}

Tensor clamp(Tensor&& x, float limit) {
  MT_CHECK(x.contiguous(), x.shape());
  MT_CHECK(limit > 0, limit);
  const KernelTable& kernels = x.context().kernels();
  require_kernel(x.context(), kernels.clamp && kernels.clamp_backward, "clamp");
  Tensor own = std::move(x);
  return apply(Clamp{.limit = limit}, own);
}

Tensor gelu(const Tensor& x, GeluKind kind) {
  MT_CHECK(x.contiguous(), x.shape());
  const KernelTable& kernels = x.context().kernels();
  return apply_or_compose(kernels.gelu && kernels.gelu_backward, Gelu{.name = "gelu", .kind = kind},
                          x);
}

Tensor gelu_mul(const Tensor& gate, const Tensor& up, GeluKind kind) {
  check_alike(gate, up);
  const KernelTable& kernels = gate.context().kernels();
  return apply_or_compose(kernels.gelu_mul && kernels.gelu_mul_backward, GeluMul{.kind = kind},
                          gate, up);
}

Tensor relu(const Tensor& x, ReluKind kind) {
  MT_CHECK(x.contiguous(), x.shape());
  const KernelTable& kernels = x.context().kernels();
  return apply_or_compose(kernels.relu && kernels.relu_backward, Relu{.name = "relu", .kind = kind},
                          x);
}

Tensor map_logits(const Tensor& x, const LogitMap& map) {
  MT_CHECK(x.contiguous(), x.shape());
  return map.identity() ? x : plain::map_logits(x, map);
}

Tensor dropout(const Tensor& x, float p, uint64_t name_key) {
  if (p == 0 || !x.context().training) return x;
  MT_CHECK(p > 0 && p < 1, p);
  MT_CHECK(x.shape().rank() == 2 && x.contiguous(), x.shape());
  return apply_or_compose(x.context().kernels().dropout != nullptr,
                          Dropout{.p = p, .name_key = name_key}, x);
}

}  // namespace mtrain
