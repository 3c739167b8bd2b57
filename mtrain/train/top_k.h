// The most likely ids of a teacher's distributions: selected from its logits on the host, with the
// probability of all other ids as one number. Ties go to the smaller id, so the result depends
// neither on the layout nor on threads. Stateless functions and a value.
#pragma once
#include <cstdint>
#include <vector>

#include "mtrain/dist/mesh.h"
#include "mtrain/tensor/tensor.h"

namespace mtrain {

/// Of each of T tokens, at one temperature.
struct TopKRows {
  int64_t k = 0;
  std::vector<int32_t> ids;              // [T, k], ascending
  std::vector<float> log_probabilities;  // [T, k]
  std::vector<float> log_rest;           // [T], of all other ids together

  explicit TopKRows(int64_t of = 0, int64_t tokens = 0);
  int64_t tokens() const { return static_cast<int64_t>(log_rest.size()); }
  /// Copies the row of a token from `other`, which has the same k.
  void set(int64_t token, const TopKRows& other, int64_t from);
};

/// The logarithm of a probability that is too small for fp16, in place of minus infinity.
inline constexpr float kLeastLogProbability = -65504;

/// Of softmax(logits / temperature) over the first `shared` ids. With `vocabulary`, the logits are
/// this rank's columns of a vocabulary of `vocab` rows that is sharded over this axis, and the
/// result is that of all of them on every rank; collective over the axis. Error(numeric) that names
/// the teacher if a logit is NaN or infinity. In a dry run there are no values. REQUIRES: 0 < k <=
/// shared.
TopKRows most_likely(const Tensor& logits_TV, int64_t shared, int64_t k, double temperature,
                     const Axis* vocabulary, int64_t vocab);

}  // namespace mtrain
