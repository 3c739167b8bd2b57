// The teams that run the row functions of mtrain/kernel on a GPU (mtrain/kernel/team.h): one warp
// or one block per row. The length of the row alone fixes the order of every sum. All members call
// the same functions in the same order. A team belongs to the threads of one warp or block.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "mtrain/kernel/team.h"

namespace mtrain::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAll = 0xFFFFFFFFu;

struct WarpTeam {
  static constexpr bool kSerial = false;
  int lane;  // 0 … 31
  template <class F>
  __device__ void each(int64_t n, F&& f) const {
    for (int64_t i = lane; i < n; i += kWarp) f(i);
    __syncwarp();
  }
  template <class F>
  __device__ float sum(int64_t n, F&& f) const {
    return sum2(n, [&](int64_t i) { return Pair{f(i), 0}; }).first;
  }
  template <class F>
  __device__ Pair sum2(int64_t n, F&& f) const {
    Pair total{0, 0};
    for (int64_t i = lane; i < n; i += kWarp) {
      Pair p = f(i);
      total.first += p.first;
      total.second += p.second;
    }
    return total_of(total);
  }
  /// The sum of one value per lane.
  __device__ Pair total_of(Pair mine) const {
    for (int step = kWarp / 2; step > 0; step /= 2) {
      mine.first += __shfl_xor_sync(kAll, mine.first, step);
      mine.second += __shfl_xor_sync(kAll, mine.second, step);
    }
    return mine;
  }
  template <class F>
  __device__ float max(int64_t n, F&& f) const {
    float top = -INFINITY;
    for (int64_t i = lane; i < n; i += kWarp) top = fmaxf(top, f(i));  // fmaxf ignores NaN
    for (int step = kWarp / 2; step > 0; step /= 2)
      top = fmaxf(top, __shfl_xor_sync(kAll, top, step));
    return top;
  }
  template <class F>
  __device__ void once(F&& f) const {
    if (lane == 0) f();
  }
};

/// All threads of a block: at most 1024, a multiple of 32.
struct BlockTeam {
  static constexpr bool kSerial = false;
  Pair* warps;  // [33], in shared memory

  template <class F>
  __device__ void each(int64_t n, F&& f) const {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) f(i);
    __syncthreads();
  }
  template <class F>
  __device__ float sum(int64_t n, F&& f) const {
    return sum2(n, [&](int64_t i) { return Pair{f(i), 0}; }).first;
  }
  template <class F>
  __device__ Pair sum2(int64_t n, F&& f) const {
    Pair mine{0, 0};
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      Pair p = f(i);
      mine.first += p.first;
      mine.second += p.second;
    }
    return total_of(mine);
  }
  /// The sum of one value per thread.
  __device__ Pair total_of(Pair mine) const {
    return combine(
        mine,
        [](Pair a, Pair b) {
          return Pair{a.first + b.first, a.second + b.second};
        },
        Pair{0, 0});
  }
  template <class F>
  __device__ float max(int64_t n, F&& f) const {
    float top = -INFINITY;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) top = fmaxf(top, f(i));
    return combine(
               Pair{top, 0},
               [](Pair a, Pair b) {
                 return Pair{fmaxf(a.first, b.first), 0};
               },
               Pair{-INFINITY, 0})
        .first;
  }
  template <class F>
  __device__ void once(F&& f) const {
    if (threadIdx.x == 0) f();
  }

  /// Reduces one value per thread by join(): a tree in each warp, then a tree over the warps.
  template <class Join>
  __device__ Pair combine(Pair mine, Join&& join, Pair neutral) const {
    auto in_warp = [&](Pair v) {
      for (int step = kWarp / 2; step > 0; step /= 2)
        v = join(v,
                 Pair{__shfl_xor_sync(kAll, v.first, step), __shfl_xor_sync(kAll, v.second, step)});
      return v;
    };
    mine = in_warp(mine);
    unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    if (lane == 0) warps[warp] = mine;
    __syncthreads();
    if (warp == 0) {
      Pair all = in_warp(lane < blockDim.x / kWarp ? warps[lane] : neutral);
      if (lane == 0) warps[kWarp] = all;
    }
    __syncthreads();
    Pair out = warps[kWarp];
    __syncthreads();  // the next call writes `warps` again
    return out;
  }
};

}  // namespace mtrain::cuda
