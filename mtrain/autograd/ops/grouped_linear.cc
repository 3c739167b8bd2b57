// y_e = x_e w_eᵀ + b_e;  dx_e = dy_e w_e;  dw_e += dy_eᵀ x_e;  db_e += Σ dy_e, for each expert. If
// all experts have the same number of rows, each of the three products is one batched launch.
#include <algorithm>
#include <numeric>

#include "mtrain/autograd/expert_ops.h"
#include "mtrain/autograd/ops/products.h"

namespace mtrain {
namespace {

struct GroupedLinear {
  RowCounts rows;
  std::shared_ptr<DeferredGradients> later;
  Tensor x, w;

  /// Calls f(number of the expert, its first row, one past its last row).
  template <class F>
  void each(F&& f) const {
    int64_t begin = 0;
    for (size_t e = 0; e < rows->size(); ++e) {
      int64_t end = begin + (*rows)[e];
      f(static_cast<int64_t>(e), begin, end);
      begin = end;
    }
  }
  static Tensor matrix(const Tensor& stack, int64_t e) {
    return stack.slice(0, e, e + 1).view({stack.size(1), stack.size(2)});
  }

  /// The number of rows of each expert, if all have the same number and one launch computes them.
  int64_t equal_rows() const {
    const int64_t first = rows->size() > 1 ? rows->front() : 0;
    const bool equal =
        std::all_of(rows->begin(), rows->end(), [&](int64_t n) { return n == first; });
    return equal ? first : 0;
  }
  /// The products of all experts: C[m,n] = op(A) op(B) for each, of tensors that lie one after the
  /// other.
  void batched(ExecutionContext& ctx, GemmArgs g, DType c_dtype) const {
    g.batch = static_cast<int64_t>(rows->size());
    g.stride_a = g.m * g.k, g.stride_b = g.k * g.n, g.stride_c = g.m * g.n;
    g.lda = g.transpose_a ? g.m : g.k, g.ldb = g.transpose_b ? g.k : g.n, g.ldc = g.n;
    g.dtype = x.dtype(), g.c_dtype = c_dtype;
    ctx.kernels().gemm(ctx.stream(), g);
  }

  /// The bias of an expert; undefined if there is none.
  static Tensor bias_of(const Tensor& b, int64_t e) {
    return b.defined() ? b.slice(0, e, e + 1).view({b.size(1)}) : Tensor();
  }

  Tensor forward(ExecutionContext& ctx, const Tensor& x_in, const Tensor& w_in, const Tensor& b) {
    x = x_in.detach();
    w = w_in.detach();
    Tensor y = ctx.empty({x.size(0), w.size(1)}, x.dtype());
    if (const int64_t equal = equal_rows(); equal > 0 && !b.defined()) {
      batched(ctx,
              {.a = x.raw(),
               .b = w.raw(),
               .c = y.raw(),
               .transpose_b = true,
               .m = equal,
               .n = w.size(1),
               .k = w.size(2)},
              y.dtype());
      return y;
    }
    each([&](int64_t e, int64_t begin, int64_t end) {
      if (begin < end)
        linear_forward(ctx, x.slice(0, begin, end), matrix(w, e), bias_of(b, e), {},
                       y.slice(0, begin, end));
    });
    return y;
  }

  /// Passes on the gradient of the biases.
  void differentiate_bias(ExecutionContext& ctx, const Tensor& dy, InputGrad& bias) const {
    if (!bias.wanted()) return;
    auto [db, accumulate] = bias.slot(ctx, {w.size(0), w.size(1)}, DType::f32);
    MT_CHECK(db.dtype() == DType::f32, "a bias must be a parameter");
    each([&, all = db, add = accumulate](int64_t e, int64_t begin, int64_t end) {
      Tensor mine = bias_of(all.view({w.size(0), w.size(1)}), e);
      if (begin < end)
        ctx.kernels().column_sum(ctx.stream(), {.x = dy.slice(0, begin, end).raw(),
                                                .out = mine.data<float>(),
                                                .rows = end - begin,
                                                .cols = w.size(1),
                                                .accumulate = add,
                                                .dtype = dy.dtype()});
      else if (!add)
        ctx.fill_zero(mine);
    });
  }

  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<3>& g) {
    differentiate_bias(ctx, dy, g[2]);
    if (g[0].wanted()) input_gradient(ctx, dy, g[0]);
    if (!g[1].wanted()) return;
    auto work = [&ctx, dy, rows = rows, x = x, w = w](InputGrad& weights) {
      GroupedLinear{.rows = rows, .later = nullptr, .x = x, .w = w}.weight_gradient(ctx, dy,
                                                                                    weights);
    };
    if (later)
      g[1].or_later(*later).compute(std::move(work));
    else
      g[1].compute(std::move(work));
  }

  void input_gradient(ExecutionContext& ctx, const Tensor& dy, InputGrad& input) const {
    auto [dx, accumulate] = input.slot(ctx, x.shape(), x.dtype());
    if (const int64_t equal = equal_rows(); equal > 0)
      return batched(ctx,
                     {.a = dy.raw(),
                      .b = w.raw(),
                      .c = dx.raw(),
                      .m = equal,
                      .n = w.size(2),
                      .k = w.size(1),
                      .beta = accumulate ? 1.0f : 0.0f},
                     dx.dtype());
    each([&, dx = dx, accumulate = accumulate](int64_t e, int64_t begin, int64_t end) {
      if (begin < end)
        linear_input_gradient(ctx, dy.slice(0, begin, end), matrix(w, e), dx.slice(0, begin, end),
                              accumulate);
    });
  }

  void weight_gradient(ExecutionContext& ctx, const Tensor& dy, InputGrad& weights) const {
    auto [dw, accumulate] = weights.slot(ctx, w.shape(), w.dtype());
    if (const int64_t equal = equal_rows(); equal > 0)
      return batched(ctx,
                     {.a = dy.raw(),
                      .b = x.raw(),
                      .c = dw.raw(),
                      .transpose_a = true,
                      .m = w.size(1),
                      .n = w.size(2),
                      .k = equal,
                      .beta = accumulate ? 1.0f : 0.0f},
                     dw.dtype());
    each([&, dw = dw, accumulate = accumulate](int64_t e, int64_t begin, int64_t end) {
      Tensor mine = matrix(dw.view(w.shape()), e);
      if (begin < end)
        linear_weight_gradient(ctx, dy.slice(0, begin, end), x.slice(0, begin, end), mine,
                               accumulate);
      else if (!accumulate)
        ctx.fill_zero(mine);  // an expert without tokens
    });
  }
};

/// The same in a low-precision type: the rows and the matrix of each expert have their own scales.
struct QuantizedGroupedLinear {
  const QuantizedProducts* how = nullptr;
  GroupedLinear plain;
  std::vector<QuantizedProducts::Operand> x, w;  // by expert; empty for experts without rows
  int64_t first_token = 0;

  Tensor forward(ExecutionContext& ctx, const Tensor& x_in, const Tensor& w_in, const Tensor& b) {
    plain.x = x_in.detach();
    plain.w = w_in.detach();
    first_token = ctx.first_token;
    x.resize(plain.rows->size()), w.resize(plain.rows->size());
    Tensor y = ctx.empty({x_in.size(0), w_in.size(1)}, x_in.dtype());
    plain.each([&](int64_t e, int64_t begin, int64_t end) {
      if (begin == end) return;
      auto i = static_cast<size_t>(e);
      x[i] = how->prepare(ctx, plain.x.slice(0, begin, end), QuantOperand::input);
      w[i] = how->prepare(ctx, GroupedLinear::matrix(plain.w, e), QuantOperand::weight, e);
      how->forward(ctx, x[i], w[i], GroupedLinear::bias_of(b, e), {}, y.slice(0, begin, end));
    });
    return y;
  }

  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<3>& g) {
    plain.differentiate_bias(ctx, dy, g[2]);
    std::vector<QuantizedProducts::Operand> top(x.size());
    plain.each([&](int64_t e, int64_t begin, int64_t end) {
      if (begin < end)
        top[static_cast<size_t>(e)] =
            how->prepare(ctx, dy.slice(0, begin, end), QuantOperand::gradient);
    });
    if (g[0].wanted()) {
      auto [dx, accumulate] = g[0].slot(ctx, plain.x.shape(), plain.x.dtype());
      plain.each([&, dx = dx, accumulate = accumulate](int64_t e, int64_t begin, int64_t end) {
        auto i = static_cast<size_t>(e);
        if (begin < end)
          how->input_gradient(ctx, top[i], w[i], dx.slice(0, begin, end), accumulate,
                              first_token + begin);
      });
    }
    if (!g[1].wanted()) return;
    QuantizedGroupedLinear put_off = *this;
    put_off.plain.later = nullptr;  // avoids a cycle: `later` will own this work
    auto work = [&ctx, top, op = std::move(put_off)](InputGrad& weights) {
      op.weight_gradient(ctx, top, weights);
    };
    if (plain.later)
      g[1].or_later(*plain.later).compute(std::move(work));
    else
      g[1].compute(std::move(work));
  }

  void weight_gradient(ExecutionContext& ctx, const std::vector<QuantizedProducts::Operand>& top,
                       InputGrad& weights) const {
    auto [dw, accumulate] = weights.slot(ctx, plain.w.shape(), plain.w.dtype());
    plain.each([&, dw = dw, accumulate = accumulate](int64_t e, int64_t begin, int64_t end) {
      Tensor mine = GroupedLinear::matrix(dw.view(plain.w.shape()), e);
      auto i = static_cast<size_t>(e);
      if (begin < end)
        how->weight_gradient(ctx, top[i], x[i], mine, accumulate, first_token + begin);
      else if (!accumulate)
        ctx.fill_zero(mine);
    });
  }
};

}  // namespace

Tensor grouped_linear(const Tensor& x, const Tensor& w, const RowCounts& rows,
                      const std::shared_ptr<DeferredGradients>& later,
                      const QuantizedProducts* quantized, const Tensor& b) {
  MT_CHECK(x.shape().rank() == 2 && w.shape().rank() == 3 && x.size(1) == w.size(2), "x ",
           x.shape(), ", w ", w.shape());
  check_types(x, w, quantized);
  MT_CHECK(rows && static_cast<int64_t>(rows->size()) == w.size(0) &&
               std::accumulate(rows->begin(), rows->end(), int64_t{0}) == x.size(0),
           "rows of each of ", w.size(0), " experts that add up to ", x.size(0));
  MT_CHECK(!b.defined() || (b.shape() == Shape{w.size(0), w.size(1)} && b.contiguous()),
           "biases for ", w.shape());
  require_kernel(x.context(), x.context().kernels().gemm, "gemm");
  if (quantized)
    return apply(QuantizedGroupedLinear{.how = quantized, .plain = {.rows = rows, .later = later}},
                 x, w, b);
  return apply(GroupedLinear{.rows = rows, .later = later}, x, w, b);
}

}  // namespace mtrain
