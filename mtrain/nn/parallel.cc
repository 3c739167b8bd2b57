#include "mtrain/nn/parallel.h"

namespace mtrain {

const Axis* ParallelContext::of(std::string_view dim) const {
  if (dim == "heads" || dim == "mlp" || dim == "vocab") return tp;
  if (dim == "experts") return ep;
  return dim == "expert_mlp" ? etp : nullptr;
}

ContextKind ParallelContext::context_kind(int64_t block) const {
  auto at = static_cast<size_t>(block);
  MT_CHECK(cp_comm.size() == 1 || at < cp_comm.size(), "block ", block, ", but dist.cp_comm has ",
           cp_comm.size());
  return cp_comm.size() == 1 ? cp_comm[0] : cp_comm[at];
}

ShardPiece even_piece(int64_t size, const Axis* axis) {
  int64_t n = axis_size(axis), r = axis_index(axis);
  int64_t begin = size * r / n, end = size * (r + 1) / n;
  return {.global = begin, .local = 0, .size = end - begin};
}

}  // namespace mtrain
