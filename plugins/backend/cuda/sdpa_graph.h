// The operation graphs of attention forward and backward that cuDNN recognizes and compiles to one
// kernel (Dao 2023, arXiv:2307.08691). Pure functions: no device, no memory.
//
// The mapping of a call to the library. Our query heads are in groups that share a key head, and
// the stride between groups differs from the stride between heads of a group, which four strides
// cannot express. Therefore an *entry* of the library's batch is one group of one sequence: its
// queries have heads/groups heads, its keys one. For sequences of equal length there is one call
// per sequence, because entries of several sequences do not have one fixed stride. Sequences of
// different lengths share one call, in which each entry has its own offset and length ("ragged").
#pragma once
#include <cstdint>

#include "cudnn_graph.h"

namespace mtrain::cuda {

/// Everything that a plan depends on.
struct SdpaShape {
  int64_t entries = 1;            // groups, or groups x sequences
  int64_t heads = 1;              // per group
  int64_t queries = 1, keys = 1;  // of each entry; the maximum if ragged
  int64_t head_dim = 64;
  int64_t q_row = 0, k_row = 0, v_row = 0, o_row = 0;  // stride between tokens, in elements
  int64_t q_entry = 0, k_entry = 0, v_entry = 0, o_entry = 0,
          lse_entry = 0;  // stride between entries; unused if ragged
  int64_t lse_head = 0;   // stride between heads in lse
  int64_t dq_row = 0, dk_row = 0, dv_row = 0, dq_entry = 0, dk_entry = 0,
          dv_entry = 0;                              // backward only
  bool causal = true, ragged = false, half = false;  // half: fp16, else bf16
  bool window = false;     // causal: each query attends to its last keys, as many as kWindow says
  bool any_order = false;  // backward: dq is a sum of atomic additions, in kDqSum
  auto operator<=>(const SdpaShape&) const = default;
};

/// Identifiers of the tensors that are bound at each call.
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
  kDvOffsets,
  kWindow,
  kDqSum
};

Descriptor forward_graph(const SdpaShape& shape, cudnnHandle_t handle);
/// With any_order, the parts of dq are added to kDqSum as they are computed, and repeated runs
/// differ in the last bits; without, one kernel writes dq once.
Descriptor backward_graph(const SdpaShape& shape, cudnnHandle_t handle);

}  // namespace mtrain::cuda
