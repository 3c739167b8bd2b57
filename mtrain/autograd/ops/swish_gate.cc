// y = g · sigmoid(f g) · (u + o) with g = min(gate, c) and u = min(max(up, -c), c), from
// elementwise kernels in float. The saved context is gate and up alone; backward computes the rest
// again.
#include "mtrain/autograd/expert_ops.h"

namespace mtrain {
namespace {

/// Float tensors of one size, element by element.
class Floats {
 public:
  explicit Floats(ExecutionContext& ctx) : ctx_(ctx) {}
  Tensor of(const Tensor& x) const {
    Tensor y = ctx_.empty(x.shape(), DType::f32);
    ctx_.copy(y, x);
    return y;
  }
  Tensor unary(const Tensor& x, UnaryKind kind, float shift = 0) const {
    Tensor y = ctx_.empty(x.shape(), DType::f32);
    ctx_.kernels().unary(ctx_.stream(), {.x = x.raw(),
                                         .y = y.raw(),
                                         .count = x.numel(),
                                         .kind = kind,
                                         .shift = shift,
                                         .dtype = DType::f32});
    return y;
  }
  /// min(max(x, -limit), limit).
  Tensor clamp(const Tensor& x, float limit) const {
    Tensor y = ctx_.empty(x.shape(), DType::f32);
    ctx_.copy(y, x);
    ctx_.kernels().clamp(
        ctx_.stream(),
        {.x = y.raw(), .kept = nullptr, .count = y.numel(), .limit = limit, .dtype = DType::f32});
    return y;
  }
  Tensor mul(const Tensor& a, const Tensor& b) const {
    Tensor y = ctx_.empty(a.shape(), DType::f32);
    ctx_.kernels().mul(
        ctx_.stream(),
        {.a = a.raw(), .b = b.raw(), .y = y.raw(), .count = a.numel(), .dtype = DType::f32});
    return y;
  }
  /// y += factor * x.
  void add(const Tensor& y, const Tensor& x, float factor) const {
    ctx_.kernels().cast(ctx_.stream(), {.src = x.raw(),
                                        .dst = y.raw(),
                                        .count = x.numel(),
                                        .scale = factor,
                                        .accumulate = true,
                                        .src_dtype = DType::f32,
                                        .dst_dtype = DType::f32});
  }
  /// factor * x + offset.
  Tensor affine(const Tensor& x, float factor, float offset) const {
    Tensor y = ctx_.empty(x.shape(), DType::f32);
    ctx_.fill(y, offset);
    add(y, x, factor);
    return y;
  }
  Tensor rounded(const Tensor& x, DType dtype) const {
    if (dtype == DType::f32) return x;
    Tensor y = ctx_.empty(x.shape(), dtype);
    ctx_.copy(y, x);
    return y;
  }

 private:
  ExecutionContext& ctx_;
};

struct GatedSwish {
  SwishGate form;
  Tensor gate, up;

  MaybePlacement placed(const Tensor& g, const Tensor& u) const {
    return ResultPlacement("swish_gate", g)
        .with(PlacementRule::pointwise)
        .with(PlacementRule::add, u);
  }

  /// x, or the limit where x is beyond it: exact, and also where x is infinite. `below`: also where
  /// x is below -limit.
  Tensor limited(const Floats& f, const Tensor& x, bool below) const {
    if (form.limit == 0) return x;
    if (below) return f.clamp(x, form.limit);
    // The parts of x above and below 0, one of which is 0.
    Tensor y = f.clamp(f.unary(x, UnaryKind::relu), form.limit);
    f.add(y, f.unary(f.affine(x, -1, 0), UnaryKind::relu), -1);
    return y;
  }
  /// 1 where limited() is x, 0 where it is a limit; undefined without one.
  Tensor inside(const Floats& f, const Tensor& x, bool below) const {
    if (form.limit == 0) return {};
    Tensor under = f.unary(f.affine(x, -1, 0), UnaryKind::step, form.limit);
    return below ? f.mul(under, f.unary(x, UnaryKind::step, form.limit)) : under;
  }
  static Tensor masked(const Floats& f, const Tensor& gradient, const Tensor& inside) {
    return inside.defined() ? f.mul(gradient, inside) : gradient;
  }

  Tensor forward(ExecutionContext& ctx, const Tensor& gate_in, const Tensor& up_in) {
    gate = gate_in.detach(), up = up_in.detach();
    return recompute(ctx);
  }
  Tensor recompute(ExecutionContext& ctx) {
    const Floats f(ctx);
    Tensor g = limited(f, f.of(gate), false), u = limited(f, f.of(up), true);
    Tensor s = f.unary(f.affine(g, form.factor, 0), UnaryKind::sigmoid);
    return f.rounded(f.mul(f.mul(g, s), f.affine(u, 1, form.offset)), gate.dtype());
  }
  void backward(ExecutionContext& ctx, const Tensor& dy_in, Grads<2>& grads) {
    const Floats f(ctx);
    const Tensor gate_in = f.of(gate), up_in = f.of(up);
    Tensor g = limited(f, gate_in, false), u = limited(f, up_in, true);
    Tensor s = f.unary(f.affine(g, form.factor, 0), UnaryKind::sigmoid), dy = f.of(dy_in);
    if (grads[1].wanted()) {
      Tensor du = masked(f, f.mul(dy, f.mul(g, s)), inside(f, up_in, true));
      grads[1].give(ctx, f.rounded(du, up.dtype()));
    }
    if (!grads[0].wanted()) return;
    // d(g s)/dg = s (1 + f g (1 - s))
    Tensor slope = f.mul(f.affine(g, form.factor, 0), f.affine(s, -1, 1));
    Tensor dg = f.mul(f.mul(dy, f.affine(u, 1, form.offset)), f.mul(s, f.affine(slope, 1, 1)));
    grads[0].give(ctx, f.rounded(masked(f, dg, inside(f, gate_in, false)), gate.dtype()));
  }
};

}  // namespace

Tensor swish_gate(const Tensor& gate, const Tensor& up, const SwishGate& form) {
  MT_CHECK(gate.shape() == up.shape() && gate.contiguous() && up.contiguous() &&
               gate.dtype() == up.dtype(),
           gate.shape(), " vs ", up.shape());
  const KernelTable& kernels = gate.context().kernels();
  require_kernel(gate.context(), kernels.unary, "unary");
  require_kernel(gate.context(), kernels.mul, "mul");
  require_kernel(gate.context(), kernels.clamp, "clamp");
  require_kernel(gate.context(), kernels.cast, "cast");
  return apply(GatedSwish{.form = form, .gate = {}, .up = {}}, gate, up);
}

}  // namespace mtrain
