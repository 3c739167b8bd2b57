#include "mtrain/dist/overlapped_linear.h"

#include <memory>
#include <optional>

#include "mtrain/autograd/ops/products.h"
#include "mtrain/dist/row_messages.h"

namespace mtrain {
namespace {

/// State that the ops of one gathered_linear() share: the incoming stream and its outgoing
/// gradient.
struct Passage {
  const Axis* axis = nullptr;
  int readers = 0, read_back = 0;  // number of products; of products whose backward has run
  std::optional<PiecewiseAllGather> arrival;
  std::optional<PiecewiseReduceScatter> departure;

  int size() const { return axis->size(); }
  int me() const { return axis->index(); }
};

struct Enter {  // whole = x of all ranks
  std::shared_ptr<Passage> passage;

  MaybePlacement placed(const Tensor& x) const {
    return ResultPlacement("gathered_linear", x)
        .turn(Placement::S(0), Placement::R(), "the ranks' tokens are gathered");
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& x) {
    Tensor whole = ctx.empty({x.size(0) * passage->size(), x.size(1)}, x.dtype());
    passage->arrival.emplace(ctx, *passage->axis, x, whole);
    return whole;
  }
  // The last product that ran backward has sent the other ranks' shards.
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    MT_CHECK(passage->departure.has_value(), passage->read_back, " of ", passage->readers,
             " products ran backward");
    g[0].give(ctx, passage->departure->finish(rows_of_rank(dy, passage->me(), passage->size())));
    passage->departure.reset();
  }
};

struct Product {  // y = whole · wᵀ + b
  std::shared_ptr<Passage> passage;
  Tensor x, w;

  MaybePlacement placed(const Tensor& in, const Tensor& weight, const Tensor& b) const {
    return ResultPlacement("gathered_linear", in)
        .with(PlacementRule::linear, weight)
        .with(PlacementRule::bias, b);
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& x_in, const Tensor& w_in, const Tensor& b) {
    x = x_in.detach();
    w = w_in.detach();
    Tensor y = ctx.empty({x.size(0), w.size(0)}, x.dtype());
    if (!passage->arrival) {
      linear_forward(ctx, x, w, b, {}, y);
      return y;
    }
    int n = passage->size();
    for (int step = 0; step < n; ++step) {  // its own shard is there already
      int rank = ring_index(passage->me(), step, n);
      passage->arrival->wait(rank);
      linear_forward(ctx, rows_of_rank(x, rank, n), w, b, {}, rows_of_rank(y, rank, n));
    }
    passage->arrival->finish();
    passage->arrival.reset();
    return y;
  }

  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<3>& g) {
    if (g[0].wanted()) input_gradient(ctx, dy, g[0]);
    if (g[1].wanted())
      g[1].compute([&ctx, dy, x = x, w = w](InputGrad& weight) {
        auto [dw, accumulate] = weight.slot(ctx, w.shape(), w.dtype());
        linear_weight_gradient(ctx, dy, x, dw, accumulate);
      });
    if (g[2].wanted()) g[2].compute([&ctx, dy](InputGrad& bias) { bias_gradient(ctx, dy, bias); });
  }

  void input_gradient(ExecutionContext& ctx, const Tensor& dy, InputGrad& g) const {
    auto [dx, accumulate] = g.slot(ctx, x.shape(), x.dtype());
    if (++passage->read_back < passage->readers)
      return linear_input_gradient(ctx, dy, w, dx, accumulate);
    int n = passage->size(), me = passage->me();
    passage->departure.emplace(ctx, *passage->axis, rows_of_rank(dx, me, n).shape(), dx.dtype());
    for (int step = 1; step <= n; ++step) {  // its own shard last: no other rank waits for it
      int rank = ring_index(me, step, n);
      Tensor piece = rows_of_rank(dx, rank, n);
      linear_input_gradient(ctx, rows_of_rank(dy, rank, n), w, piece, accumulate);
      if (rank != me) passage->departure->send(rank, piece);
    }
  }
};

struct Scattered {  // y = this rank's shard of the sum over ranks of x · wᵀ
  const Axis* axis = nullptr;
  Tensor x, w;

  MaybePlacement placed(const Tensor& in, const Tensor& weight) const {
    return ResultPlacement("linear_scattered", in)
        .with(PlacementRule::linear, weight)
        .turn(Placement::P(), Placement::S(0), "products are added up over the ranks");
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& x_in, const Tensor& w_in) {
    x = x_in.detach();
    w = w_in.detach();
    int n = axis->size(), me = axis->index();
    Shape piece{x.size(0) / n, w.size(0)};
    PiecewiseReduceScatter out(ctx, *axis, piece, x.dtype());
    Tensor own;
    for (int step = 1; step <= n; ++step) {
      int rank = ring_index(me, step, n);
      Tensor y = ctx.empty(piece, x.dtype());
      linear_forward(ctx, rows_of_rank(x, rank, n), w, {}, {}, y);
      if (rank != me)
        out.send(rank, y);
      else
        own = y;
    }
    return out.finish(own);
  }

  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<2>& g) {
    int n = axis->size();
    Tensor whole = ctx.empty({dy.size(0) * n, dy.size(1)}, dy.dtype());
    PiecewiseAllGather in(ctx, *axis, dy, whole);
    if (g[0].wanted()) {
      auto [dx, accumulate] = g[0].slot(ctx, x.shape(), x.dtype());
      for (int step = 0; step < n; ++step) {
        int rank = ring_index(axis->index(), step, n);
        in.wait(rank);
        linear_input_gradient(ctx, rows_of_rank(whole, rank, n), w, rows_of_rank(dx, rank, n),
                              accumulate);
      }
    }
    in.finish();
    if (g[1].wanted())
      g[1].compute([&ctx, whole, x = x, w = w](InputGrad& weight) {
        auto [dw, accumulate] = weight.slot(ctx, w.shape(), w.dtype());
        linear_weight_gradient(ctx, whole, x, dw, accumulate);
      });
  }
};

void check(const Tensor& x, const Tensor& w) {
  MT_CHECK(x.shape().rank() == 2 && w.shape().rank() == 2 && x.size(1) == w.size(1), "x ",
           x.shape(), ", w ", w.shape());
  MT_CHECK(x.contiguous() && w.contiguous() && x.dtype() == w.dtype(), name(x.dtype()), " vs ",
           name(w.dtype()));
  require_kernel(x.context(), x.context().kernels().gemm, "gemm");
}

}  // namespace

Tensor linear(const Tensor& x, const LinearWeights& layer, const Tensor& residual) {
  return layer.coded ? linear(x, *layer.coded, layer.w, layer.b, residual)
                     : linear(x, layer.w, layer.b, residual, layer.quantized);
}

bool rows_may_be_split(int64_t rows, int64_t outputs, int64_t terms) {
  constexpr int64_t kFewRows = 32, kSmallest = 1 << 16;
  return rows >= kFewRows && rows * outputs * terms >= kSmallest;
}

GatheredProducts gathered_linear(const Tensor& x, const Axis& axis,
                                 std::span<const LinearWeights> weights) {
  MT_CHECK(!weights.empty(), "a gathered tensor without a reader");
  for (const LinearWeights& layer : weights) {
    check(x, layer.w);
    MT_CHECK(!layer.b.defined() || (layer.b.numel() == layer.w.size(0) && layer.b.contiguous()),
             "bias of ", layer.w.size(0));
  }
  auto passage = std::make_shared<Passage>();
  passage->axis = &axis;
  passage->readers = static_cast<int>(weights.size());
  GatheredProducts out{.whole_TD = apply(Enter{.passage = passage}, x), .y = {}};
  for (const LinearWeights& layer : weights)
    out.y.push_back(apply(Product{.passage = passage}, out.whole_TD, layer.w, layer.b));
  return out;
}

Tensor linear_scattered(const Tensor& x, const Axis& axis, const Tensor& w) {
  check(x, w);
  MT_CHECK(x.size(0) % axis.size() == 0, x.shape(), " on ", axis.size(), " ranks");
  return apply(Scattered{.axis = &axis}, x, w);
}

}  // namespace mtrain
