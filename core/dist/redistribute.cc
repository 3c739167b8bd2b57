#include "mtrain/dist/redistribute.h"

#include <cstring>

namespace mtrain {
namespace {

size_t bytes_of(const Tensor& t) {
  return static_cast<size_t>(t.numel()) * size_of(t.dtype());
}
Buffer buffer(const Tensor& t) {
  return {t.raw(), t.numel(), t.dtype()};
}

// How the n pieces along a dim lie in a tensor: `rows` times n runs of `run` bytes.
struct Cut {
  int64_t parts, rows = 1;
  size_t run = 0;

  Cut(const Tensor& whole, int dim, int n) : parts(n) {
    for (int d = 0; d < dim; ++d) rows *= whole.size(d);
    run = bytes_of(whole) / static_cast<size_t>(std::max<int64_t>(1, rows * parts));
  }
  size_t in_whole(int64_t part, int64_t row) const { return static_cast<size_t>(row * parts + part) * run; }
  size_t in_pieces(int64_t part, int64_t row) const { return static_cast<size_t>(part * rows + row) * run; }
  bool adjacent() const { return rows == 1; }  // pieces are already one behind the other
};
using OffsetOf = size_t (Cut::*)(int64_t part, int64_t row) const;

char* bytes(const Tensor& t) {
  return static_cast<char*>(t.raw());
}

Shape resized(const Tensor& t, int dim, int64_t size) {
  Shape shape = t.shape();
  shape[dim] = size;
  return shape;
}

// One transfer of one rank. Planning backends have no values to move, and their ranks no peers.
class Carrier {
 public:
  Carrier(Run& run, const Axis& axis)
      : run_(run), axis_(axis), n_(axis.size()), moves_(run.backend().computes()) {}

  /// `writable`: nobody reads x afterwards, so that the result may take its place.
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
    Tensor y = writable ? x : run_.empty(x.shape(), x.dtype());
    if (moves_ && !writable) std::memcpy(y.raw(), x.raw(), bytes_of(x));
    if (moves_) axis_.comm().all_reduce(buffer(y));
    return y;
  }

  Tensor all_gather(const Tensor& x, int dim) const {
    Shape shape = resized(x, dim, x.size(dim) * n_);
    Tensor pieces = run_.empty(shape, x.dtype());
    if (moves_) axis_.comm().all_gather(buffer(x), buffer(pieces));
    return joined(pieces, dim);
  }

  Tensor reduce_scatter(const Tensor& x, int dim) const {
    Tensor pieces = in_pieces(x, dim), y = run_.empty(piece_shape(x, dim), x.dtype());
    if (moves_) axis_.comm().reduce_scatter(buffer(pieces), buffer(y));
    return y;
  }

  // A copy: a view would keep the whole alive for as long as the piece.
  Tensor slice(const Tensor& x, int dim) const {
    Tensor y = run_.empty(piece_shape(x, dim), x.dtype());
    Cut cut(x, dim, n_);
    for (int64_t row = 0; moves_ && row < cut.rows; ++row)
      std::memcpy(bytes(y) + cut.run * static_cast<size_t>(row), bytes(x) + cut.in_whole(axis_.index(), row),
                  cut.run);
    return y;
  }

  Tensor all_to_all(const Tensor& x, int from, int to) const {
    Tensor pieces = in_pieces(x, to);
    Shape shape = piece_shape(x, to);
    shape[from] *= n_;
    Tensor arrived = run_.empty(shape, x.dtype());
    if (moves_) axis_.comm().all_to_all(buffer(pieces), buffer(arrived));
    return joined(arrived, from);
  }

  Shape piece_shape(const Tensor& x, int dim) const {
    MT_USER_CHECK(x.size(dim) % n_ == 0, ErrorClass::config,
                  cat("dim ", dim, " of ", x.shape(), " cannot be cut into ", n_,
                      " equal pieces for the ranks of axis '", axis_.name(), "'"),
                  cat("make its size a multiple of ", n_));
    return resized(x, dim, x.size(dim) / n_);
  }

  // The pieces of `x` along a dim, one behind the other.
  Tensor in_pieces(const Tensor& x, int dim) const {
    (void)piece_shape(x, dim);
    return rearranged(x, dim, &Cut::in_whole, &Cut::in_pieces);
  }
  // The inverse; `pieces` has the shape of the whole already.
  Tensor joined(const Tensor& pieces, int dim) const { return rearranged(pieces, dim, &Cut::in_pieces, &Cut::in_whole); }

  Tensor rearranged(const Tensor& x, int dim, OffsetOf from, OffsetOf to) const {
    Cut cut(x, dim, n_);
    if (cut.adjacent()) return x;
    Tensor out = run_.empty(x.shape(), x.dtype());
    for (int64_t part = 0; moves_ && part < n_; ++part)
      for (int64_t row = 0; row < cut.rows; ++row)
        std::memcpy(bytes(out) + (cut.*to)(part, row), bytes(x) + (cut.*from)(part, row), cut.run);
    return out;
  }

  Run& run_;
  const Axis& axis_;
  int n_;
  bool moves_;
};

struct Redistribute {  // y = x, placed otherwise;  dx = dy, placed dual(from)
  const Axis* axis = nullptr;
  Placement from = Placement::I(), to = Placement::I();
  Placed placed(const Tensor& x) const { return x.run().typed->axis == axis ? Placed(to) : x.placement(); }
  Tensor forward(Run& run, const Tensor& x) { return Carrier(run, *axis).carry(x, from, to, false); }
  void backward(Run& run, const Tensor& dy, Grads<1>& g) {
    g[0].give(run, Carrier(run, *axis).carry(dy, dual(to), dual(from), dy.unique()));
  }
};

/// Tensors that know how they lie along the axis are not mistaken for others.
void check_placement(const Tensor& x, const Axis& axis, Placement from, Placement to) {
  if (!x.run().typed || x.run().typed->axis != &axis || !x.placement()) return;
  MT_CHECK(*x.placement() == from, "redistribute ", from, " -> ", to, " over '", axis.name(), "' of a tensor ", x.shape(),
           " that is placed ", *x.placement());
}

bool floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

}  // namespace

Tensor redistribute(const Tensor& x, const Axis& axis, Placement from, Placement to) {
  (void)transition(from, to);  // an edge that is not there is one on any number of ranks
  for (Placement p : {from, to})
    MT_CHECK(p.letter() != Placement::Letter::S || p.dim() < x.shape().rank(), p, " of ", x.shape());
  MT_CHECK(x.contiguous() && floating(x.dtype()), x.shape(), " ", name(x.dtype()));
  check_placement(x, axis, from, to);
  if (from == to || axis.size() == 1) return x;
  MT_USER_CHECK(x.run().backend().name() == "cpu", ErrorClass::config,
                cat("axis '", axis.name(), "' exchanges host memory, but the tensor is on '",
                    x.run().backend().name(), "'"),
                "choose dist.backend=cpu, or a communicator of that device");
  return apply(Redistribute{.axis = &axis, .from = from, .to = to}, x);
}

}  // namespace mtrain
