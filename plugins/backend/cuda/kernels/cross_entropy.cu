// Softmax cross-entropy. A row of logits is read once for its loss: each thread keeps a maximum and
// a sum of exponentials relative to it, and these are merged (Milakov & Gimelshein 2018,
// arXiv:1805.02867). Formulas: mtrain/kernel/cross_entropy.h.
#include "mtrain/kernel/cross_entropy.h"
#include "mtrain/kernel/logit_map.h"
#include "rows.cuh"

namespace mtrain::cuda {

namespace {

constexpr int kThreads = 512;

/// Merges two pairs of (maximum, sum of exponentials relative to it).
__device__ __forceinline__ Pair join(Pair a, Pair b) {
  float top = fmaxf(a.first, b.first);
  if (top == -INFINITY) return {top, 0};
  return {top,
          a.second * exp_nonpositive(a.first - top) + b.second * exp_nonpositive(b.first - top)};
}

template <class T, int N, class Map>
__global__ void __launch_bounds__(kThreads) losses(CrossEntropyArgs a, Map map) {
  __shared__ Pair warps[kWarp + 1];
  BlockTeam team{warps};
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const T* logits = static_cast<const T*>(a.logits) + row * a.cols;
    auto valid = static_cast<int>(max(min(a.valid_cols, a.cols), int64_t{0}));
    Pair mine{-INFINITY, 0};
    bool broken = false;  // set by NaN, which fmaxf ignores
    // A pack of logits is joined to the pair at once. `there` says which of its items are valid.
    auto take = [&](const Pack<T, N>& pack, auto there) {
      float z[N], top = mine.first;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        z[j] = there(j) ? map.value(to_float(pack.item[j])) : -INFINITY;
        top = fmaxf(top, z[j]);
        broken |= z[j] != z[j];
      }
      if (top == -INFINITY) return;
      float sum = mine.second * exp_nonpositive(mine.first - top);
#pragma unroll
      for (int j = 0; j < N; ++j) sum += exp_nonpositive(z[j] - top);
      mine = {top, sum};
    };
    int at = static_cast<int>(threadIdx.x) * N, stride = static_cast<int>(blockDim.x) * N;
#pragma unroll 2
    for (; at + N <= valid; at += stride) take(load<N>(logits + at), [](int) { return true; });
    if (at < valid) take(load<N>(logits + at), [&](int j) { return at + j < valid; });
    Pair all = team.combine(mine, join, Pair{-INFINITY, 0});
    bool any_broken = __syncthreads_or(broken);
    if (threadIdx.x == 0) {
      float lse = any_broken ? NAN : all.first + std::log(all.second);
      int32_t target = a.targets[row];
      int64_t column = target - (a.part ? a.first_col : 0);
      float loss = a.part ? 0.0f : lse;
      if (target < 0)
        loss = 0;
      else if (!a.part || (column >= 0 && column < a.cols))
        loss = column < valid ? loss - map.value(to_float(logits[column])) : INFINITY;
      a.loss[row] = loss;
      a.lse[row] = valid <= 0 ? -INFINITY : lse;
    }
  }
}

template <class T, int N, class Map>
__global__ void __launch_bounds__(kThreads) gradients(CrossEntropyBackwardArgs a, Map map) {
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const T* logits = static_cast<const T*>(a.logits) + row * a.cols;
    T* d_logits = static_cast<T*>(a.d_logits) + row * a.cols;
    int32_t target = a.targets[row];
    int64_t column = target - a.first_col;
    float lse = a.lse[row], d_loss = target < 0 ? 0.0f : a.d_loss[row];
    for (int64_t i = static_cast<int64_t>(threadIdx.x) * N; i < a.cols;
         i += static_cast<int64_t>(blockDim.x) * N) {
      auto pack = load<N>(logits + i);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        float logit = map.value(to_float(pack.item[j])), p = exp_fast(logit - lse);
        float g = (p - (i + j == column ? 1.0f : 0.0f)) * d_loss * map.slope(logit);
        pack.item[j] = T(target < 0 || i + j >= a.valid_cols ? 0.0f : g);
      }
      store(d_logits + i, pack);
    }
  }
}

template <class T>
unsigned threads_for(int64_t cols) {
  return static_cast<unsigned>(
      std::clamp<int64_t>(ceil_div(ceil_div(cols, kPack<T>), kWarp) * kWarp, kWarp, kThreads));
}
unsigned blocks_for(const Launch& launch, int64_t rows) {
  return static_cast<unsigned>(std::min<int64_t>(rows, int64_t{launch.processors} * 16));
}

/// A scale or a cap, chosen at run time; the losses of plain logits have kernels of their own.
struct MappedLogits {
  float scale, cap;
  __device__ float value(float x) const {
    return cap != 0 ? CappedLogits{scale, cap}.value(x) : scale * x;
  }
  __device__ float slope(float z) const {
    return cap != 0 ? CappedLogits{scale, cap}.slope(z) : scale;
  }
};

template <class F>
void with_map(const LogitMap& map, F&& f) {
  if (map.identity())
    f(PlainLogits{});
  else
    f(MappedLogits{map.scale, map.cap});
}

}  // namespace

cudaError_t cross_entropy(const Launch& launch, const CrossEntropyArgs& a) {
  if (a.rows <= 0) return cudaSuccess;
  return with_float_type(a.dtype, [&]<class T>(T) {
    unsigned blocks = blocks_for(launch, a.rows), threads = threads_for<T>(a.cols);
    with_map(a.map, [&]<class Map>(Map map) {
      if (whole_packs<T>(a.cols) && aligned(16, a.logits))
        losses<T, kPack<T>><<<blocks, threads, 0, launch.stream>>>(a, map);
      else
        losses<T, 1><<<blocks, threads, 0, launch.stream>>>(a, map);
    });
    return cudaGetLastError();
  });
}

cudaError_t cross_entropy_backward(const Launch& launch, const CrossEntropyBackwardArgs& a) {
  if (a.rows <= 0) return cudaSuccess;
  return with_float_type(a.dtype, [&]<class T>(T) {
    unsigned blocks = blocks_for(launch, a.rows), threads = threads_for<T>(a.cols);
    with_map(a.map, [&]<class Map>(Map map) {
      if (whole_packs<T>(a.cols) && aligned(16, a.logits, a.d_logits))
        gradients<T, kPack<T>><<<blocks, threads, 0, launch.stream>>>(a, map);
      else
        gradients<T, 1><<<blocks, threads, 0, launch.stream>>>(a, map);
    });
    return cudaGetLastError();
  });
}

}  // namespace mtrain::cuda
