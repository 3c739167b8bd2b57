// The operation graphs of attention forward and backward that cuDNN recognises and compiles to one
// kernel (Dao 2023, arXiv:2307.08691). Pure: no device, no memory.
//
// How a call is laid out for the library. Our query heads lie in groups that share a key head, and
// the distance from one group to the next is not that of the heads inside one, which four strides
// cannot say. So an *entry* of the library's batch is one group of one sequence: its queries have
// heads/groups heads, its keys one. Sequences of equal length lie one fixed distance apart only
// together with their groups, so there is one call per sequence; sequences of different lengths go
// in one call, each entry with an offset and a length of its own ("ragged").
#pragma once
#include <cstdint>

#include "cudnn_graph.h"

namespace mtrain::cuda {

/// Everything that a plan depends on.
struct SdpaShape {
  int64_t entries = 1;            // groups, or groups x sequences
  int64_t heads = 1;              // per group
  int64_t queries = 1, keys = 1;  // of each entry, at most where ragged
  int64_t head_dim = 64;
  int64_t q_row = 0, k_row = 0, v_row = 0, o_row = 0;  // elements from a token to the next
  int64_t q_entry = 0, k_entry = 0, v_entry = 0, o_entry = 0,
          lse_entry = 0;  // from an entry to the next; ragged: unused
  int64_t lse_head = 0;   // from a head's log-sums to the next head's
  int64_t dq_row = 0, dk_row = 0, dv_row = 0, dq_entry = 0, dk_entry = 0,
          dv_entry = 0;                              // backward only
  bool causal = true, ragged = false, half = false;  // half: fp16, else bf16
  auto operator<=>(const SdpaShape&) const = default;
};

/// Names of what is bound at each call.
enum Uid : int64_t {
  kQ = 1,
  kK,
  kV,
  kO,
  kLse,
  kScale,
  kMinusInfinity,
  kOne,
  kQueryLengths,
  kKeyLengths,
  kQOffsets,
  kKOffsets,
  kVOffsets,
  kOOffsets,
  kLseOffsets,
  kDo,
  kDq,
  kDk,
  kDv,
  kDelta,
  kDqOffsets,
  kDkOffsets,
  kDvOffsets
};

Descriptor forward_graph(const SdpaShape& shape, cudnnHandle_t handle);
/// Deterministic: dq is written once, by a kernel of its own order.
Descriptor backward_graph(const SdpaShape& shape, cudnnHandle_t handle);

}  // namespace mtrain::cuda
