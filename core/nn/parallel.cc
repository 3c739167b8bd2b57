#include "mtrain/nn/parallel.h"

namespace mtrain {

const Axis* ParallelContext::of(std::string_view dim) const {
  if (dim == "heads" || dim == "mlp" || dim == "vocab") return tp;
  if (dim == "experts") return ep;
  return dim == "expert_mlp" ? etp : nullptr;
}

ShardPiece even_piece(int64_t size, const Axis* axis) {
  int64_t n = axis_size(axis), r = axis_index(axis);
  int64_t begin = size * r / n, end = size * (r + 1) / n;
  return {.global = begin, .local = 0, .size = end - begin};
}

}  // namespace mtrain
