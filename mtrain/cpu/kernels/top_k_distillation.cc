#include "mtrain/kernel/top_k_distillation.h"

#include "mtrain/cpu/kernels/launch.h"
#include "mtrain/kernel/logit_map.h"

namespace mtrain::cpu::MT_ISA {
namespace {

/// Calls f(row) for every row; `cols`: how many values one has.
template <class F>
void each_top_k_row(Stream& stream, int64_t rows, int64_t cols, F&& f) {
  for_blocks(cpu_stream(stream), rows, rows_per_task(cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) f(r);
  });
}

TopKOutcomes outcomes_of(const TopKTeacher& teacher, int64_t row) {
  return {teacher.ids + row * teacher.k, teacher.log_probabilities + row * teacher.k, teacher.k,
          teacher.log_rest[row], teacher.has_rest};
}

}  // namespace

void top_k_logits(Stream& stream, const TopKLogitsArgs& a) {
  with_float_type(a.dtype, [&]<class T>(T) {
    with_logits(a.map, [&](auto map) {
      each_top_k_row(stream, a.rows, a.cols, [&](int64_t r) {
        top_k_logits_row(SerialTeam{}, static_cast<const T*>(a.logits) + r * a.cols, map,
                         1 / a.temperature, a.ids + r * a.k, a.k, a.targets[r], a.first_col,
                         a.shared_cols, a.own + r * a.k, a.rest_lse + r);
      });
    });
  });
}

void top_k_distillation(Stream& stream, const TopKDistillationArgs& a) {
  with_divergence(a.beta, [&](auto divergence) {
    each_top_k_row(stream, a.rows, a.teacher.k, [&](int64_t r) {
      top_k_distillation_row(SerialTeam{}, outcomes_of(a.teacher, r), a.own + r * a.teacher.k,
                             divergence, 1 / a.temperature, a.lse[r], a.rest_lse[r], a.targets[r],
                             a.counts_rest, a.divergence + r, a.mean + r);
    });
  });
}

void top_k_distillation_backward(Stream& stream, const TopKDistillationBackwardArgs& a) {
  with_float_type(a.dtype, [&]<class T>(T) {
    with_logits(a.map, [&](auto map) {
      with_divergence(a.beta, [&](auto divergence) {
        each_top_k_row(stream, a.rows, a.cols, [&](int64_t r) {
          top_k_distillation_row_backward(
              SerialTeam{}, static_cast<const T*>(a.logits) + r * a.cols, map, 1 / a.temperature,
              outcomes_of(a.teacher, r), a.own + r * a.teacher.k, divergence, a.targets[r],
              a.first_col, a.shared_cols, a.valid_cols, a.cols, a.token_lse[r], a.lse[r],
              a.rest_lse[r], a.mean[r], a.alpha, a.d_loss[r],
              static_cast<T*>(a.d_logits) + r * a.cols);
        });
      });
    });
  });
}

}  // namespace mtrain::cpu::MT_ISA
