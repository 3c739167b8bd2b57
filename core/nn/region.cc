#include "mtrain/nn/region.h"

#include "mtrain/dist/redistribute.h"

namespace mtrain {

Tensor Region::enter(const Tensor& x) const {
  return cut() ? redistribute(x, *parallel_->tp, parallel_->stream(), Placement::R()) : x;
}

Tensor Region::leave(const Tensor& x) const {
  return cut() ? redistribute(x, *parallel_->tp, Placement::P(), parallel_->stream()) : x;
}

Tensor Region::own_tokens(const Tensor& ids) const {
  if (!cut() || !parallel_->sequence) return ids;
  int64_t n = parallel_->tp->size(), r = parallel_->tp->index(), tokens = ids.size(0);
  MT_USER_CHECK(tokens % n == 0, ErrorClass::config, cat(tokens, " tokens of a micro-batch cannot be cut over dist.tp=", n),
                "with dist.sp, let dist.tp divide model.seq_length");
  Tensor own = ids.slice(0, tokens / n * r, tokens / n * (r + 1));
  own.set_placement(Placement::S(0));
  return own;
}

}  // namespace mtrain
