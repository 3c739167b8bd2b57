#include "mtrain/dist/redistribute.h"

namespace mtrain {
namespace {

// The layout of the n shards along a dim in a tensor: `rows` times n runs of `run` elements.
struct ShardLayout {
  int64_t parts, rows = 1, run = 0;

  ShardLayout(const Tensor& whole, int dim, int n) : parts(n) {
    for (int d = 0; d < dim; ++d) rows *= whole.size(d);
    run = whole.numel() / std::max<int64_t>(1, rows * parts);
  }
  bool adjacent() const { return rows == 1; }  // the shards are contiguous already

  /// Copies the whole into its contiguous shards, or back.
  CopyBlocksArgs apart(const Tensor& whole, const Tensor& pieces) const {
    return {.src = whole.raw(),
            .dst = pieces.raw(),
            .outer = parts,
            .inner = rows,
            .count = run,
            .src_outer = run,
            .src_inner = parts * run,
            .dst_outer = rows * run,
            .dst_inner = run,
            .accumulate = false,
            .dtype = whole.dtype()};
  }
  CopyBlocksArgs together(const Tensor& pieces, const Tensor& whole) const {
    return {.src = pieces.raw(),
            .dst = whole.raw(),
            .outer = parts,
            .inner = rows,
            .count = run,
            .src_outer = rows * run,
            .src_inner = run,
            .dst_outer = run,
            .dst_inner = parts * run,
            .accumulate = false,
            .dtype = whole.dtype()};
  }
  /// Copies one shard of the whole.
  CopyBlocksArgs one(const Tensor& whole, int part, const Tensor& piece) const {
    return {.src = static_cast<const char*>(whole.raw()) +
                   static_cast<size_t>(part * run) * size_of(whole.dtype()),
            .dst = piece.raw(),
            .outer = rows,
            .inner = 1,
            .count = run,
            .src_outer = parts * run,
            .src_inner = 0,
            .dst_outer = run,
            .dst_inner = 0,
            .accumulate = false,
            .dtype = whole.dtype()};
  }
};

Shape resized(const Tensor& t, int dim, int64_t size) {
  Shape shape = t.shape();
  shape[dim] = size;
  return shape;
}

// One transfer of one rank. In a dry run there are no values to move, and ranks have no peers.
class Carrier {
 public:
  Carrier(ExecutionContext& ctx, const Axis& axis)
      : ctx_(ctx), axis_(axis), n_(axis.size()), moves_(ctx.backend().computes()) {}

  /// `writable`: x is not read afterwards, so the result may overwrite it.
  Tensor carry(const Tensor& x, Placement from, Placement to, bool writable) const {
    switch (transition(from, to).forward) {
      case Transfer::none:
        return x;
      case Transfer::all_reduce:
        return all_reduce(x, writable);
      case Transfer::all_gather:
        return all_gather(x, from.dim());
      case Transfer::reduce_scatter:
        return reduce_scatter(x, to.dim());
      case Transfer::slice:
        return slice(x, to.dim());
      case Transfer::all_to_all:
        return all_to_all(x, from.dim(), to.dim());
    }
    return x;
  }

 private:
  Tensor all_reduce(const Tensor& x, bool writable) const {
    Tensor y = writable ? x : ctx_.empty(x.shape(), x.dtype());
    if (!writable) ctx_.copy(y, x);
    if (moves_) axis_.comm().all_reduce(y);
    return y;
  }

  Tensor all_gather(const Tensor& x, int dim) const {
    Shape shape = resized(x, dim, x.size(dim) * n_);
    Tensor pieces = ctx_.empty(shape, x.dtype());
    if (moves_) axis_.comm().all_gather(x, pieces);
    return joined(pieces, dim);
  }

  Tensor reduce_scatter(const Tensor& x, int dim) const {
    Tensor pieces = in_pieces(x, dim), y = ctx_.empty(piece_shape(x, dim), x.dtype());
    if (moves_) axis_.comm().reduce_scatter(pieces, y);
    return y;
  }

  // A copy: a view would keep the whole alive as long as the shard.
  Tensor slice(const Tensor& x, int dim) const {
    Tensor y = ctx_.empty(piece_shape(x, dim), x.dtype());
    ShardLayout layout(x, dim, n_);
    copy(layout.one(x, axis_.index(), y));
    return y;
  }

  Tensor all_to_all(const Tensor& x, int from, int to) const {
    Tensor pieces = in_pieces(x, to);
    Shape shape = piece_shape(x, to);
    shape[from] *= n_;
    Tensor arrived = ctx_.empty(shape, x.dtype());
    if (moves_) axis_.comm().all_to_all(pieces, arrived);
    return joined(arrived, from);
  }

  Shape piece_shape(const Tensor& x, int dim) const {
    MT_USER_CHECK(x.size(dim) % n_ == 0, ErrorClass::config,
                  cat("dim ", dim, " of ", x.shape(), " cannot be divided into ", n_,
                      " equal pieces for the ranks of axis '", axis_.name(), "'"),
                  cat("make its size a multiple of ", n_));
    return resized(x, dim, x.size(dim) / n_);
  }

  // The shards of `x` along a dim, each contiguous, one after the other.
  Tensor in_pieces(const Tensor& x, int dim) const {
    (void)piece_shape(x, dim);
    ShardLayout layout(x, dim, n_);
    if (layout.adjacent()) return x;
    Tensor out = ctx_.empty(x.shape(), x.dtype());
    copy(layout.apart(x, out));
    return out;
  }
  // The inverse of in_pieces(); `pieces` has the shape of the whole already.
  Tensor joined(const Tensor& pieces, int dim) const {
    ShardLayout layout(pieces, dim, n_);
    if (layout.adjacent()) return pieces;
    Tensor out = ctx_.empty(pieces.shape(), pieces.dtype());
    copy(layout.together(pieces, out));
    return out;
  }

  void copy(const CopyBlocksArgs& args) const { ctx_.kernels().copy_blocks(ctx_.stream(), args); }

  ExecutionContext& ctx_;
  const Axis& axis_;
  int n_;
  bool moves_;
};

struct Redistribute {  // y = x with another placement;  dx = dy with placement dual(from)
  const Axis* axis = nullptr;
  Placement from = Placement::I(), to = Placement::I();
  MaybePlacement placed(const Tensor& x) const {
    return x.context().tracked_axis->axis == axis ? MaybePlacement(to) : x.placement();
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& x) {
    return Carrier(ctx, *axis).carry(x, from, to, false);
  }
  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<1>& g) {
    g[0].give(ctx, Carrier(ctx, *axis).carry(dy, dual(to), dual(from), dy.unique()));
  }
};

/// Checks `from` against the placement that the tensor carries, if it carries one.
void check_placement(const Tensor& x, const Axis& axis, Placement from, Placement to) {
  if (!x.context().tracked_axis || x.context().tracked_axis->axis != &axis || !x.placement())
    return;
  MT_CHECK(*x.placement() == from, "redistribute ", from, " -> ", to, " over '", axis.name(),
           "' of a tensor ", x.shape(), " that is placed ", *x.placement());
}

bool floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

}  // namespace

Tensor redistribute(const Tensor& x, const Axis& axis, Placement from, Placement to) {
  (void)transition(from, to);  // an unknown transition is an error for any number of ranks
  for (Placement p : {from, to})
    MT_CHECK(p.letter() != Placement::Letter::S || p.dim() < x.shape().rank(), p, " of ",
             x.shape());
  MT_CHECK(x.contiguous() && floating(x.dtype()), x.shape(), " ", name(x.dtype()));
  check_placement(x, axis, from, to);
  if (from == to || axis.size() == 1) return x;
  return apply(Redistribute{.axis = &axis, .from = from, .to = to}, x);
}

}  // namespace mtrain
