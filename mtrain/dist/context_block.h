// Internal to context parallelism: attention between this rank's queries and some rows of keys and
// values, either this rank's own or packed ones from another rank. A value type; for the rank's own
// thread.
#pragma once
#include <span>

#include "mtrain/autograd/ops/attention_scores.h"

namespace mtrain {

struct ContextBlock {
  HeadLayout layout;
  AttentionScores scores;
  AttentionDropout dropout = {};  // of this forward and its backward
  int64_t first_token = 0;        // index of the micro-batch's first token, as for `dropout`

  /// Sets `dropout` and `first_token` to those of the forward that runs now.
  void draw(const ExecutionContext& ctx);
  /// Width of packed keys and values: key and value of each group.
  int64_t packed_width() const { return 2 * layout.groups * layout.head_dim; }
  /// Packs the keys and values of a fused projection [T, width] into [T, packed_width].
  Tensor pack(ExecutionContext& ctx, const Tensor& qkv) const;
  /// Adds packed gradients [T, packed_width] to those of a fused projection [T, width]; both float.
  void add_packed(ExecutionContext& ctx, const Tensor& d_packed, const Tensor& d_qkv) const;

  /// Which queries attend to which keys, and whether queries attend only to keys that are not after
  /// them.
  struct AttentionMask {
    std::span<const AttentionSpan> spans;
    bool causal = false;
    std::span<const int64_t> first_tokens = {};  // dropout: the first query's token of each span
  };
  /// Attention of the queries of `qkv` to the keys in `packed`, or to their own keys if it is
  /// undefined. `add`: o is float, and the result is merged into o and lse. `sinks`: passed once
  /// for each query; may be undefined. Shapes: o [rows, H*E], lse [H, rows].
  void forward(ExecutionContext& ctx, const Tensor& qkv, const Tensor& packed,
               const AttentionMask& mask, const Tensor& o, const Tensor& lse, bool add,
               const Tensor& sinks) const;
  /// Adds the gradients of forward() to d_qkv and d_packed (undefined if `packed` is); both float.
  void backward(ExecutionContext& ctx, const Tensor& qkv, const Tensor& packed,
                const AttentionMask& mask, const Tensor& o, const Tensor& lse, const Tensor& d_o,
                const Tensor& d_qkv, const Tensor& d_packed) const;

 private:
  AttentionArgs args(const Tensor& qkv, const Tensor& packed, const AttentionMask& mask,
                     const Tensor& o, const Tensor& lse) const;
  HeadsView fused(const Tensor& t, int64_t first_head) const;
  HeadsView keys(const Tensor& qkv, const Tensor& packed, int64_t which) const;
};

/// The lse of zero keys: -inf [heads, rows].
Tensor empty_lse(ExecutionContext& ctx, int64_t heads, int64_t rows);
/// `x`, converted to `dtype` unless that is float.
Tensor rounded(ExecutionContext& ctx, const Tensor& x, DType dtype);

}  // namespace mtrain
