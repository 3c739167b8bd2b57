// The divergence of a student from a teacher's most likely ids. A block processes a row; formulas:
// mtrain/kernel/top_k_distillation.h.
#include "mtrain/kernel/logit_map.h"
#include "mtrain/kernel/top_k_distillation.h"
#include "rows.cuh"

namespace mtrain::cuda {

namespace {

constexpr int kTopKThreads = 512;

/// Calls f(row, team) for the block's rows.
template <class F>
__device__ void each_top_k_row(int64_t rows, F&& f) {
  __shared__ Pair warps[kWarp + 1];
  BlockTeam team{warps};
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    f(row, team);
    __syncthreads();
  }
}

__device__ TopKOutcomes outcomes_of(const TopKTeacher& teacher, int64_t row) {
  return {teacher.ids + row * teacher.k, teacher.log_probabilities + row * teacher.k, teacher.k,
          teacher.log_rest[row], teacher.has_rest};
}

template <class T, class Map>
__global__ void __launch_bounds__(kTopKThreads) logits_of_ids(TopKLogitsArgs a, Map map) {
  each_top_k_row(a.rows, [&](int64_t r, BlockTeam team) {
    top_k_logits_row(team, static_cast<const T*>(a.logits) + r * a.cols, map, 1 / a.temperature,
                     a.ids + r * a.k, a.k, a.targets[r], a.first_col, a.shared_cols,
                     a.own + r * a.k, a.rest_lse + r);
  });
}

template <class Divergence>
__global__ void __launch_bounds__(kTopKThreads)
    top_k_divergences(TopKDistillationArgs a, Divergence divergence) {
  each_top_k_row(a.rows, [&](int64_t r, BlockTeam team) {
    top_k_distillation_row(team, outcomes_of(a.teacher, r), a.own + r * a.teacher.k, divergence,
                           1 / a.temperature, a.lse[r], a.rest_lse[r], a.targets[r], a.counts_rest,
                           a.divergence + r, a.mean + r);
  });
}

template <class T, class Map, class Divergence>
__global__ void __launch_bounds__(kTopKThreads)
    top_k_gradients(TopKDistillationBackwardArgs a, Map map, Divergence divergence) {
  each_top_k_row(a.rows, [&](int64_t r, BlockTeam team) {
    top_k_distillation_row_backward(
        team, static_cast<const T*>(a.logits) + r * a.cols, map, 1 / a.temperature,
        outcomes_of(a.teacher, r), a.own + r * a.teacher.k, divergence, a.targets[r], a.first_col,
        a.shared_cols, a.valid_cols, a.cols, a.token_lse[r], a.lse[r], a.rest_lse[r], a.mean[r],
        a.alpha, a.d_loss[r], static_cast<T*>(a.d_logits) + r * a.cols);
  });
}

/// A block's threads: one for each of n values, in whole warps.
unsigned top_k_threads(int64_t n) {
  return static_cast<unsigned>(
      std::clamp<int64_t>(ceil_div(n, kWarp) * kWarp, kWarp, kTopKThreads));
}
unsigned top_k_blocks(const Launch& launch, int64_t rows) {
  return static_cast<unsigned>(std::min<int64_t>(rows, int64_t{launch.processors} * 16));
}

}  // namespace

cudaError_t top_k_logits(const Launch& launch, const TopKLogitsArgs& a) {
  if (a.rows <= 0) return cudaSuccess;
  return with_float_type(a.dtype, [&]<class T>(T) {
    with_logits(a.map, [&](auto map) {
      logits_of_ids<T>
          <<<top_k_blocks(launch, a.rows), top_k_threads(a.cols), 0, launch.stream>>>(a, map);
    });
    return cudaGetLastError();
  });
}

cudaError_t top_k_distillation(const Launch& launch, const TopKDistillationArgs& a) {
  if (a.rows <= 0) return cudaSuccess;
  with_divergence(a.beta, [&](auto of) {
    top_k_divergences<<<top_k_blocks(launch, a.rows), top_k_threads(a.teacher.k), 0,
                        launch.stream>>>(a, of);
  });
  return cudaGetLastError();
}

cudaError_t top_k_distillation_backward(const Launch& launch,
                                        const TopKDistillationBackwardArgs& a) {
  if (a.rows <= 0) return cudaSuccess;
  return with_float_type(a.dtype, [&]<class T>(T) {
    with_logits(a.map, [&](auto map) {
      with_divergence(a.beta, [&](auto of) {
        top_k_gradients<T>
            <<<top_k_blocks(launch, a.rows), top_k_threads(a.cols), 0, launch.stream>>>(a, map, of);
      });
    });
    return cudaGetLastError();
  });
}

}  // namespace mtrain::cuda
