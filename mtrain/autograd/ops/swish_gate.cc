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

  /// x within the limit, and 1 where it is (0 where the limit replaces it). Both are exact.
  struct Limited {
    Tensor x, inside;
  };
  Limited limited(const Floats& f, const Tensor& x, bool below) const {
    if (form.limit == 0) return {x, {}};
    const float c = form.limit;
    Tensor inside = f.unary(f.affine(x, -1, 0), UnaryKind::step, c);  // x < c
    Tensor y = f.affine(inside, -c, c);
    if (below) {
      Tensor above = f.unary(x, UnaryKind::step, c);  // x > -c
      f.add(y, f.affine(above, c, -c), 1);
      inside = f.mul(inside, above);
    }
    f.add(y, f.mul(x, inside), 1);
    return {y, inside};
  }

  Tensor forward(ExecutionContext& ctx, const Tensor& gate_in, const Tensor& up_in) {
    gate = gate_in.detach(), up = up_in.detach();
    return recompute(ctx);
  }
  Tensor recompute(ExecutionContext& ctx) {
    const Floats f(ctx);
    Tensor g = limited(f, f.of(gate), false).x, u = limited(f, f.of(up), true).x;
    Tensor s = f.unary(f.affine(g, form.factor, 0), UnaryKind::sigmoid);
    return f.rounded(f.mul(f.mul(g, s), f.affine(u, 1, form.offset)), gate.dtype());
  }
  void backward(ExecutionContext& ctx, const Tensor& dy_in, Grads<2>& grads) {
    const Floats f(ctx);
    Limited g = limited(f, f.of(gate), false), u = limited(f, f.of(up), true);
    Tensor s = f.unary(f.affine(g.x, form.factor, 0), UnaryKind::sigmoid), dy = f.of(dy_in);
    if (grads[1].wanted()) {
      Tensor du = f.mul(dy, f.mul(g.x, s));
      grads[1].give(ctx, f.rounded(u.inside.defined() ? f.mul(du, u.inside) : du, up.dtype()));
    }
    if (!grads[0].wanted()) return;
    // d(g s)/dg = s (1 + f g (1 - s))
    Tensor slope = f.mul(f.affine(g.x, form.factor, 0), f.affine(s, -1, 1));
    Tensor dg = f.mul(f.mul(dy, f.affine(u.x, 1, form.offset)), f.mul(s, f.affine(slope, 1, 1)));
    grads[0].give(ctx, f.rounded(g.inside.defined() ? f.mul(dg, g.inside) : dg, gate.dtype()));
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
  require_kernel(gate.context(), kernels.cast, "cast");
  return apply(GatedSwish{.form = form, .gate = {}, .up = {}}, gate, up);
}

}  // namespace mtrain
