#include "mtrain/kernel/rope.h"
#include "rows.cuh"

namespace mtrain::cuda {

namespace {

/// One thread rotates N consecutive pairs of one head.
template <class T, int N>
__global__ void __launch_bounds__(256) rotate(RopeArgs a) {
  int64_t half = a.rotary_dim / 2, packs = half / N, heads = a.groups * a.heads_per_group;
  int64_t all = a.tokens * heads * packs, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  float direction = a.inverse ? -1.0f : 1.0f;
  for (int64_t k = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; k < all;
       k += step) {
    Split pack = split(k, packs), head = split(pack.quotient, heads),
          place = split(head.remainder, a.heads_per_group);
    int64_t i = pack.remainder * N, token = head.quotient;
    T* x = static_cast<T*>(a.x) + token * a.row_stride + place.quotient * a.group_stride +
           place.remainder * a.head_dim + i;
    const float *cos = a.cos + a.positions[token] * half + i,
                *sin = a.sin + a.positions[token] * half + i;
    auto low = load<N>(x), high = load<N>(x + half);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      float p = to_float(low.item[j]), q = to_float(high.item[j]), c = cos[j],
            s = sin[j] * direction;
      low.item[j] = T(p * c - q * s);
      high.item[j] = T(q * c + p * s);
    }
    store(x, low);
    store(x + half, high);
  }
}

/// The same for pairs of adjacent elements: one thread rotates N elements, N / 2 pairs.
template <class T, int N>
__global__ void __launch_bounds__(256) rotate_adjacent(RopeArgs a) {
  int64_t packs = a.rotary_dim / N, heads = a.groups * a.heads_per_group;
  int64_t all = a.tokens * heads * packs, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  float direction = a.inverse ? -1.0f : 1.0f;
  for (int64_t k = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; k < all;
       k += step) {
    Split pack = split(k, packs), head = split(pack.quotient, heads),
          place = split(head.remainder, a.heads_per_group);
    int64_t i = pack.remainder * N, token = head.quotient;
    T* x = static_cast<T*>(a.x) + token * a.row_stride + place.quotient * a.group_stride +
           place.remainder * a.head_dim + i;
    int64_t first = a.positions[token] * (a.rotary_dim / 2) + i / 2;
    Pack<T, N> pairs;
    if constexpr (N > 2) {
      pairs = load<N>(x);
    } else {  // a head of odd stride is not aligned for a pair
      pairs.item[0] = x[0];
      pairs.item[1] = x[1];
    }
#pragma unroll
    for (int j = 0; j < N; j += 2) {
      float p = to_float(pairs.item[j]), q = to_float(pairs.item[j + 1]), c = a.cos[first + j / 2],
            s = a.sin[first + j / 2] * direction;
      pairs.item[j] = T(p * c - q * s);
      pairs.item[j + 1] = T(q * c + p * s);
    }
    if constexpr (N > 2) {
      store(x, pairs);
    } else {
      x[0] = pairs.item[0];
      x[1] = pairs.item[1];
    }
  }
}

unsigned blocks_for(const Launch& launch, int64_t threads) {
  return static_cast<unsigned>(
      std::min<int64_t>(ceil_div(threads, 256), int64_t{launch.processors} * 16));
}

}  // namespace

cudaError_t rope(const Launch& launch, const RopeArgs& a) {
  int64_t half = a.rotary_dim / 2, pairs = a.tokens * a.groups * a.heads_per_group * half;
  if (pairs <= 0) return cudaSuccess;
  return with_float_type(a.dtype, [&]<class T>(T) {
    constexpr int kN = kPack<T>;
    bool vector = (a.interleaved ? a.rotary_dim : half) % kN == 0 && a.row_stride % kN == 0 &&
                  a.group_stride % kN == 0 && a.head_dim % kN == 0 && aligned(16, a.x);
    if (a.interleaved && vector)
      rotate_adjacent<T, kN><<<blocks_for(launch, 2 * pairs / kN), 256, 0, launch.stream>>>(a);
    else if (a.interleaved)
      rotate_adjacent<T, 2><<<blocks_for(launch, pairs), 256, 0, launch.stream>>>(a);
    else if (vector)
      rotate<T, kN><<<blocks_for(launch, pairs / kN), 256, 0, launch.stream>>>(a);
    else
      rotate<T, 1><<<blocks_for(launch, pairs), 256, 0, launch.stream>>>(a);
    return cudaGetLastError();
  });
}

}  // namespace mtrain::cuda
