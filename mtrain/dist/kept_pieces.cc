#include "mtrain/dist/kept_pieces.h"

#include <algorithm>

namespace mtrain {
namespace {

constexpr int64_t kAlignment = 32;  // elements: pieces begin at whole cache lines

int64_t piece_size(int64_t count, int64_t ranks) {
  int64_t even = (count + ranks - 1) / ranks;
  return (even + kAlignment - 1) / kAlignment * kAlignment;
}

// A copy: a view would keep the whole alive.
Tensor own_piece(const Tensor& x, const Axis& axis) {
  ExecutionContext& ctx = x.context();
  int64_t size = piece_size(x.numel(), axis.size());
  int64_t begin = std::min(x.numel(), size * axis.index()), end = std::min(x.numel(), begin + size);
  Tensor piece = ctx.empty({size}, x.dtype());
  if (end - begin < size) ctx.fill_zero(piece);
  if (begin < end)
    ctx.copy(piece.slice(0, 0, end - begin), x.view({x.numel()}).slice(0, begin, end));
  return piece;
}

Tensor gather(const Tensor& piece, const Axis& axis, const Shape& shape) {
  ExecutionContext& ctx = piece.context();
  Tensor pieces = ctx.empty({piece.numel() * axis.size()}, piece.dtype());
  // In a dry run there are no values to move, and ranks have no peers.
  if (ctx.backend().computes()) axis.comm().all_gather(piece, pieces);
  return pieces.slice(0, 0, shape.numel()).view(shape);
}

}  // namespace

KeepInput keep_in_pieces(const Axis& axis) {
  return [&axis](const Tensor& x) -> std::function<Tensor()> {
    MT_CHECK(x.contiguous(), x.shape(), " is kept in pieces and not contiguous");
    return [&axis, piece = own_piece(x, axis), shape = x.shape(), placement = x.placement()] {
      Tensor whole = gather(piece, axis, shape);
      whole.set_placement(placement);
      return whole;
    };
  };
}

}  // namespace mtrain
