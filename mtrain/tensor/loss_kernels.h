// The arguments of the kernels of losses over logits: cross-entropy and distillation, forward and
// backward. Conventions as in kernel_table.h, which includes this file.
#pragma once
#include <cstdint>

#include "mtrain/base/dtype.h"

namespace mtrain {

/// The logits z of a loss from the results x of the head's product: z = scale * x, or
/// cap * tanh(scale * x / cap) with a cap, which keeps z in (-cap, cap) (Gemma Team 2024,
/// arXiv:2408.00118).
struct LogitMap {
  float scale = 1, cap = 0;  // cap 0: none
  bool identity() const { return scale == 1 && cap == 0; }
};
/// loss[t] = lse[t] - logits[t, target[t]]; 0 where target < 0 (ignored). Columns >= `valid_cols`
/// (vocabulary padding) count as minus infinity.
struct CrossEntropyArgs {
  const void* logits;      // [rows, cols]
  const int32_t* targets;  // [rows]
  float* loss;             // [rows]
  float* lse;              // [rows]
  int64_t rows, cols, valid_cols;
  DType dtype;
  bool part = false;  // logits are columns first_col … of a vocabulary that is sharded over ranks:
                      // lse covers only these; loss is minus the target's logit, or 0 if the target
                      // is in another shard or ignored
  int64_t first_col = 0;
  LogitMap map = {};  // the logits are map(logits)
};
/// d_logits = (softmax(logits) - onehot(target)) * d_loss[t]; 0 for ignored rows and padding.
/// d_logits may alias logits. With a `map`, d_logits is the gradient of what the map takes.
struct CrossEntropyBackwardArgs {
  const float* d_loss;  // [rows]
  const void* logits;
  const int32_t* targets;
  const float* lse;
  void* d_logits;
  int64_t rows, cols, valid_cols;
  DType dtype;
  int64_t first_col = 0;
  LogitMap map = {};
};

/// divergence[t] and mean[t] of student and teacher (mtrain/kernel/distillation.h), over the first
/// `shared_cols` columns; 0 where target < 0.
struct DistillationArgs {
  const void* logits;        // [rows, cols], of the student; `map` is applied to them
  const void* teacher;       // [rows, teacher_cols]
  const int32_t* targets;    // [rows]
  const float* lse;          // [rows]: of the student's logits divided by the temperature
  const float* teacher_lse;  // [rows]
  float* divergence;         // [rows]
  float* mean;               // [rows]
  int64_t rows, cols, teacher_cols, shared_cols;
  DType dtype;
  float beta, temperature;
  LogitMap map = {};
};
/// d_logits of d_loss[t] * (alpha * cross-entropy + (1 - alpha) * divergence); may alias logits.
struct DistillationBackwardArgs {
  const float* d_loss;  // [rows]
  const void* logits;
  const void* teacher;
  const int32_t* targets;
  const float* token_lse;  // [rows]: of the student's logits, at temperature 1
  const float* lse;
  const float* teacher_lse;
  const float* mean;
  void* d_logits;  // [rows, cols]
  int64_t rows, cols, teacher_cols, shared_cols, valid_cols;
  DType dtype;
  float beta, temperature, alpha;
  int64_t first_col = 0;
  LogitMap map = {};
};

}  // namespace mtrain
