// Internal to context parallelism: attention between this rank's queries and some rows of keys and
// values, which are this rank's own or came packed from elsewhere. Host memory.
#pragma once
#include <span>

#include "mtrain/autograd/ops.h"

namespace mtrain {

struct ContextBlock {
  HeadLayout layout;
  float scale = 1;
  bool causal = true;

  /// Width of packed keys and values: key and value of each group.
  int64_t packed_width() const { return 2 * layout.groups * layout.head_dim; }
  /// The keys and values in a fused projection [T, width]: [T, packed_width].
  Tensor pack(Run& run, const Tensor& qkv) const;
  /// Adds packed gradients to those of a fused projection; both float.
  void add_packed(Run& run, const Tensor& d_packed, const Tensor& d_qkv) const;

  /// Which queries meet which keys, and whether queries see only what is not after them.
  struct Meeting {
    std::span<const AttentionSpan> spans;
    bool causal = false;
  };
  /// Queries of `qkv` meet the keys in `packed`, or their own where it is undefined. `add`: o is
  /// float, and it and lse take these keys in.
  void forward(Run& run, const Tensor& qkv, const Tensor& packed, Meeting meeting, const Tensor& o,
               const Tensor& lse, bool add) const;
  /// Adds the gradients of such a meeting to d_qkv and d_packed (undefined where `packed` is); both
  /// float.
  void backward(Run& run, const Tensor& qkv, const Tensor& packed, Meeting meeting, const Tensor& o,
                const Tensor& lse, const Tensor& d_o, const Tensor& d_qkv,
                const Tensor& d_packed) const;

 private:
  AttentionArgs args(const Tensor& qkv, const Tensor& packed, Meeting meeting, const Tensor& o,
                     const Tensor& lse) const;
  HeadsView fused(const Tensor& t, int64_t first_head) const;
  HeadsView keys(const Tensor& qkv, const Tensor& packed, int64_t which) const;
};

/// lse of no keys at all: -inf [heads, rows].
Tensor empty_lse(Run& run, int64_t heads, int64_t rows);
/// `x`, rounded to the dtype where that is not float.
Tensor rounded(Run& run, const Tensor& x, DType dtype);

}  // namespace mtrain
