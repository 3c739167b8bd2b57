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

/// The outcomes of a teacher of which the most likely ids of each token are known
/// (mtrain/kernel/top_k_distillation.h).
struct TopKTeacher {
  const int32_t* ids;              // [rows, k], ascending
  const float* log_probabilities;  // [rows, k], at the temperature of the divergence
  const float* log_rest;           // [rows], of all other ids together
  int64_t k;
  bool has_rest;  // false: there are no other ids
};
/// own[t, j] = the student's logit of ids[t, j], -infinity if it is not among the first
/// `shared_cols` columns; rest_lse[t] = log-sum-exp of the logits divided by the temperature of the
/// other columns; 0 where target < 0.
struct TopKLogitsArgs {
  const void* logits;  // [rows, cols]; `map` is applied to them
  const int32_t* ids;
  const int32_t* targets;  // [rows]
  float* own;              // [rows, k]
  float* rest_lse;         // [rows]
  int64_t rows, cols, k, shared_cols;
  DType dtype;
  float temperature;
  int64_t first_col = 0;
  LogitMap map = {};
};
/// divergence[t] and mean[t], as DistillationArgs.
struct TopKDistillationArgs {
  TopKTeacher teacher;
  const int32_t* targets;  // [rows]
  const float* own;        // [rows, k], as all of the following from TopKLogitsArgs
  const float* lse;        // [rows], of all ids, at the temperature
  const float* rest_lse;   // [rows], of all ids but the k
  float* divergence;       // [rows]
  float* mean;             // [rows]
  int64_t rows;
  float beta, temperature;
  bool counts_rest = true;  // of a sharded vocabulary, one shard's sums have the rest
};
/// d_logits, as DistillationBackwardArgs; may alias logits.
struct TopKDistillationBackwardArgs {
  TopKTeacher teacher;
  const float* d_loss;  // [rows]
  const void* logits;
  const int32_t* targets;
  const float* own;
  const float* token_lse;  // [rows]: of the student's logits, at temperature 1
  const float* lse;
  const float* rest_lse;
  const float* mean;
  void* d_logits;  // [rows, cols]
  int64_t rows, cols, shared_cols, valid_cols;
  DType dtype;
  float beta, temperature, alpha;
  int64_t first_col = 0;
  LogitMap map = {};
};

}  // namespace mtrain
