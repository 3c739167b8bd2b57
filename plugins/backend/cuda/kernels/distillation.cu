// The divergence of a student from a teacher. A block processes a row; formulas:
// mtrain/kernel/distillation.h.
#include "mtrain/kernel/distillation.h"
#include "mtrain/kernel/logit_map.h"
#include "rows.cuh"

namespace mtrain::cuda {

namespace {

constexpr int kThreads = 512;

/// Calls f(row, logarithms, divergence, team) for the block's rows.
template <class T, class Args, class Map, class Divergence, class F>
__device__ void each_distilled_row(const Args& a, Map map, Divergence divergence, F&& f) {
  __shared__ Pair warps[kWarp + 1];
  BlockTeam team{warps};
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const LogProbabilities<T, Map> logs{static_cast<const T*>(a.logits) + row * a.cols,
                                        static_cast<const T*>(a.teacher) + row * a.teacher_cols,
                                        map,
                                        1 / a.temperature,
                                        a.lse[row],
                                        a.teacher_lse[row]};
    f(row, logs, divergence, team);
    __syncthreads();
  }
}

template <class T, class Map, class Divergence>
__global__ void __launch_bounds__(kThreads)
    divergences(DistillationArgs a, Map map, Divergence divergence) {
  each_distilled_row<T>(a, map, divergence,
                        [&](int64_t row, const auto& logs, auto of, BlockTeam team) {
                          distillation_row(team, logs, of, a.targets[row], a.shared_cols,
                                           a.divergence + row, a.mean + row);
                        });
}

template <class T, class Map, class Divergence>
__global__ void __launch_bounds__(kThreads)
    distilled_gradients(DistillationBackwardArgs a, Map map, Divergence divergence) {
  each_distilled_row<T>(
      a, map, divergence, [&](int64_t row, const auto& logs, auto of, BlockTeam team) {
        distillation_row_backward(team, logs, of, a.targets[row], a.first_col, a.shared_cols,
                                  a.valid_cols, a.cols, a.token_lse[row], a.mean[row], a.alpha,
                                  a.d_loss[row], static_cast<T*>(a.d_logits) + row * a.cols);
      });
}

/// A block's threads: one for each column, in whole warps.
unsigned threads_of(int64_t cols) {
  return static_cast<unsigned>(std::clamp<int64_t>(ceil_div(cols, kWarp) * kWarp, kWarp, kThreads));
}
unsigned blocks_of(const Launch& launch, int64_t rows) {
  return static_cast<unsigned>(std::min<int64_t>(rows, int64_t{launch.processors} * 16));
}

}  // namespace

cudaError_t distillation(const Launch& launch, const DistillationArgs& a) {
  if (a.rows <= 0) return cudaSuccess;
  return with_float_type(a.dtype, [&]<class T>(T) {
    with_logits(a.map, [&](auto map) {
      with_divergence(a.beta, [&](auto of) {
        divergences<T>
            <<<blocks_of(launch, a.rows), threads_of(a.cols), 0, launch.stream>>>(a, map, of);
      });
    });
    return cudaGetLastError();
  });
}

cudaError_t distillation_backward(const Launch& launch, const DistillationBackwardArgs& a) {
  if (a.rows <= 0) return cudaSuccess;
  return with_float_type(a.dtype, [&]<class T>(T) {
    with_logits(a.map, [&](auto map) {
      with_divergence(a.beta, [&](auto of) {
        distilled_gradients<T>
            <<<blocks_of(launch, a.rows), threads_of(a.cols), 0, launch.stream>>>(a, map, of);
      });
    });
    return cudaGetLastError();
  });
}

}  // namespace mtrain::cuda
