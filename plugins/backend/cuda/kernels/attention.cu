// Attention without cuDNN: one block per query row and head for forward and dq, one block per key
// row and group for dk and dv. Every sum runs in a fixed order, without atomics. For shapes and
// dtypes that cuDNN does not support, as a reference in tests of cuDNN, and for keys that arrive in
// parts (ring attention). Slow: each key is read once per query.
#include "mtrain/kernel/math.h"
#include "rows.cuh"

namespace mtrain::cuda {

namespace {

constexpr int kThreads = 128;

/// The number of keys, counted from the first, that query i of a span attends to.
__device__ int64_t visible(const AttentionSpan& s, int64_t i, bool causal) {
  return causal ? min(static_cast<int64_t>(s.keys), i + s.offset + 1) : s.keys;
}

__device__ int64_t place(const HeadsView& v, int64_t row, int64_t group, int64_t head_in_group,
                         int64_t dim) {
  return row * v.row_stride + group * v.group_stride + head_in_group * dim;
}

template <class T>
__device__ float dot(const T* a, const float* b, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += to_float(a[i]) * b[i];
  return sum;
}

/// Keys are processed kThreads at a time: each thread scores one key, then each thread accumulates
/// its own elements of the output.
template <class T>
__global__ void __launch_bounds__(kThreads) forward(AttentionArgs a, const AttentionSpan* spans) {
  extern __shared__ float shared[];
  __shared__ Pair warps[kWarp + 1];
  __shared__ float weights[kThreads];
  float *q = shared, *sums = shared + a.head_dim;
  AttentionSpan s = spans[blockIdx.z];
  int64_t i = blockIdx.x, head = blockIdx.y, per_group = a.heads / a.groups,
          group = head / per_group, dim = a.head_dim;
  if (i >= s.queries) return;
  BlockTeam team{warps};
  int64_t row = s.first_query + i, n = visible(s, i, a.causal);
  const T* from = static_cast<const T*>(a.q.data) + place(a.q, row, group, head % per_group, dim);
  for (int64_t d = threadIdx.x; d < dim; d += kThreads)
    q[d] = to_float(from[d]) * a.scale, sums[d] = 0;
  __syncthreads();
  float top = -INFINITY, total = 0;
  for (int64_t j = 0; j < n; j += kThreads) {
    int64_t key = j + threadIdx.x;
    float score =
        key < n
            ? dot(static_cast<const T*>(a.k.data) + place(a.k, s.first_key + key, group, 0, dim), q,
                  dim)
            : -INFINITY;
    float higher =
        fmaxf(top, team.max(kThreads, [&](int64_t) { return score; }));  // one score per thread
    float shrink = top == -INFINITY ? 0.0f : exp_nonpositive(top - higher);
    weights[threadIdx.x] = key < n ? exp_nonpositive(score - higher) : 0.0f;
    float added = team.sum(kThreads, [&](int64_t t) { return weights[t]; });
    total = total * shrink + added;
    top = higher;
    int64_t some = min(n - j, static_cast<int64_t>(kThreads));
    for (int64_t d = threadIdx.x; d < dim; d += kThreads) {
      float sum = sums[d] * shrink;
      for (int64_t t = 0; t < some; ++t)
        sum += weights[t] * to_float(static_cast<const T*>(
                                a.v.data)[place(a.v, s.first_key + j + t, group, 0, dim) + d]);
      sums[d] = sum;
    }
    __syncthreads();
  }
  float* lse = a.lse + head * a.tokens + row;
  float mine = n > 0 ? top + std::log(total) : -INFINITY;
  if (!a.add) {
    T* o = static_cast<T*>(a.o) + (row * a.heads + head) * dim;
    for (int64_t d = threadIdx.x; d < dim; d += kThreads)
      o[d] = rounded<T>(n > 0 ? sums[d] / total : 0.0f);
    team.once([&] { *lse = mine; });
  } else if (n > 0) {  // o and lse hold the result over other keys
    float before = *lse, high = fmaxf(before, mine);
    float old_weight = before == -INFINITY ? 0.0f : exp_nonpositive(before - high),
          new_weight = exp_nonpositive(mine - high);
    float both = old_weight + new_weight;
    float* o = static_cast<float*>(a.o) + (row * a.heads + head) * dim;
    for (int64_t d = threadIdx.x; d < dim; d += kThreads)
      o[d] = (o[d] * old_weight + sums[d] / total * new_weight) / both;
    __syncthreads();  // all threads have read lse
    team.once([&] { *lse = high + std::log(both); });
  }
}

/// delta[head, row] = <do, o>.
template <class T>
__global__ void __launch_bounds__(kThreads) deltas(AttentionBackwardArgs b, float* delta) {
  const AttentionArgs& a = b.forward;
  WarpTeam team{static_cast<int>(threadIdx.x % kWarp)};
  int64_t all = a.tokens * a.heads;
  for (int64_t k = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
       k < all; k += static_cast<int64_t>(gridDim.x) * (kThreads / kWarp)) {
    const T *d_o = static_cast<const T*>(b.d_o) + k * a.head_dim,
            *o = static_cast<const T*>(a.o) + k * a.head_dim;
    float sum = team.sum(a.head_dim, [&](int64_t i) { return to_float(d_o[i]) * to_float(o[i]); });
    team.once([&] { delta[k % a.heads * a.tokens + k / a.heads] = sum; });
  }
}

template <class T>
__device__ void write(void* to, int64_t at, float value, bool add) {
  if (add)
    static_cast<float*>(to)[at] += value;
  else
    static_cast<T*>(to)[at] = rounded<T>(value);
}

/// dq_i = scale Σ_j p_ij (dp_ij - delta_i) k_j.
template <class T>
__global__ void __launch_bounds__(kThreads)
    query_gradients(AttentionBackwardArgs b, const AttentionSpan* spans, const float* delta) {
  extern __shared__ float shared[];
  __shared__ float slopes[kThreads];
  const AttentionArgs& a = b.forward;
  AttentionSpan s = spans[blockIdx.z];
  int64_t i = blockIdx.x, head = blockIdx.y, per_group = a.heads / a.groups,
          group = head / per_group, dim = a.head_dim;
  if (i >= s.queries) return;
  float *q = shared, *d_o = shared + dim, *sums = shared + 2 * dim;
  int64_t row = s.first_query + i, n = visible(s, i, a.causal);
  const T* q_row = static_cast<const T*>(a.q.data) + place(a.q, row, group, head % per_group, dim);
  const T* d_row = static_cast<const T*>(b.d_o) + (row * a.heads + head) * dim;
  for (int64_t d = threadIdx.x; d < dim; d += kThreads)
    q[d] = to_float(q_row[d]) * a.scale, d_o[d] = to_float(d_row[d]), sums[d] = 0;
  __syncthreads();
  float lse = a.lse[head * a.tokens + row], mine = delta[head * a.tokens + row];
  for (int64_t j = 0; j < n; j += kThreads) {
    int64_t key = s.first_key + j + threadIdx.x;
    if (j + static_cast<int64_t>(threadIdx.x) < n) {
      float p = exp_fast(
          dot(static_cast<const T*>(a.k.data) + place(a.k, key, group, 0, dim), q, dim) - lse);
      float dp = dot(static_cast<const T*>(a.v.data) + place(a.v, key, group, 0, dim), d_o, dim);
      slopes[threadIdx.x] = p * (dp - mine) * a.scale;
    }
    __syncthreads();
    int64_t some = min(n - j, static_cast<int64_t>(kThreads));
    for (int64_t d = threadIdx.x; d < dim; d += kThreads) {
      float sum = sums[d];
      for (int64_t t = 0; t < some; ++t)
        sum += slopes[t] * to_float(static_cast<const T*>(
                               a.k.data)[place(a.k, s.first_key + j + t, group, 0, dim) + d]);
      sums[d] = sum;
    }
    __syncthreads();
  }
  int64_t at = place(b.dq, row, group, head % per_group, dim);
  for (int64_t d = threadIdx.x; d < dim; d += kThreads) write<T>(b.dq.data, at + d, sums[d], b.add);
}

/// dv_j = Σ_i p_ij do_i, dk_j = scale Σ_i p_ij (dp_ij - delta_i) q_i, over all heads of the group.
template <class T>
__global__ void __launch_bounds__(kThreads)
    key_gradients(AttentionBackwardArgs b, const AttentionSpan* spans, const float* delta) {
  extern __shared__ float shared[];
  __shared__ float weights[kThreads], slopes[kThreads];
  const AttentionArgs& a = b.forward;
  AttentionSpan s = spans[blockIdx.z];
  int64_t j = blockIdx.x, group = blockIdx.y, per_group = a.heads / a.groups, dim = a.head_dim;
  if (j >= s.keys) return;
  float *k = shared, *v = shared + dim, *dk = shared + 2 * dim, *dv = shared + 3 * dim;
  int64_t key = s.first_key + j;
  for (int64_t d = threadIdx.x; d < dim; d += kThreads) {
    k[d] = to_float(static_cast<const T*>(a.k.data)[place(a.k, key, group, 0, dim) + d]);
    v[d] = to_float(static_cast<const T*>(a.v.data)[place(a.v, key, group, 0, dim) + d]);
    dk[d] = 0, dv[d] = 0;
  }
  __syncthreads();
  int64_t begin =
      a.causal ? max(int64_t{0}, j - s.offset) : 0;  // the first query that attends to this key
  for (int64_t h = 0; h < per_group; ++h) {
    int64_t head = group * per_group + h;
    for (int64_t i = begin; i < s.queries; i += kThreads) {
      if (int64_t query = s.first_query + i + threadIdx.x;
          i + static_cast<int64_t>(threadIdx.x) < s.queries) {
        const T* q_row = static_cast<const T*>(a.q.data) + place(a.q, query, group, h, dim);
        float p = exp_fast(dot(q_row, k, dim) * a.scale - a.lse[head * a.tokens + query]);
        float dp = dot(static_cast<const T*>(b.d_o) + (query * a.heads + head) * dim, v, dim);
        weights[threadIdx.x] = p;
        slopes[threadIdx.x] = p * (dp - delta[head * a.tokens + query]) * a.scale;
      }
      __syncthreads();
      int64_t some = min(s.queries - i, static_cast<int64_t>(kThreads));
      for (int64_t d = threadIdx.x; d < dim; d += kThreads) {
        float sum_k = dk[d], sum_v = dv[d];
        for (int64_t t = 0; t < some; ++t) {
          int64_t query = s.first_query + i + t;
          sum_k += slopes[t] *
                   to_float(static_cast<const T*>(a.q.data)[place(a.q, query, group, h, dim) + d]);
          sum_v += weights[t] *
                   to_float(static_cast<const T*>(b.d_o)[(query * a.heads + head) * dim + d]);
        }
        dk[d] = sum_k, dv[d] = sum_v;
      }
      __syncthreads();
    }
  }
  for (int64_t d = threadIdx.x; d < dim; d += kThreads) {
    write<T>(b.dk.data, place(b.dk, key, group, 0, dim) + d, dk[d], b.add);
    write<T>(b.dv.data, place(b.dv, key, group, 0, dim) + d, dv[d], b.add);
  }
}

size_t floats(int64_t rows, int64_t dim) { return sizeof(float) * static_cast<size_t>(rows * dim); }

}  // namespace

cudaError_t plain_attention(const Launch& launch, const AttentionArgs& a, const PlainSpans& spans) {
  if (spans.count <= 0 || spans.max_queries <= 0) return cudaSuccess;
  if (a.head_dim > 2048 || spans.count > 65535 || a.heads > 65535) return cudaErrorInvalidValue;
  dim3 grid(static_cast<unsigned>(spans.max_queries), static_cast<unsigned>(a.heads),
            static_cast<unsigned>(spans.count));
  return with_float_type(a.dtype, [&]<class T>(T) {
    forward<T><<<grid, kThreads, floats(2, a.head_dim), launch.stream>>>(a, spans.spans);
    return cudaGetLastError();
  });
}

cudaError_t plain_attention_backward(const Launch& launch, const AttentionBackwardArgs& b,
                                     const PlainSpans& spans) {
  const AttentionArgs& a = b.forward;
  if (spans.count <= 0 || a.tokens <= 0) return cudaSuccess;
  if (a.head_dim > 2048 || spans.count > 65535 || a.heads > 65535) return cudaErrorInvalidValue;
  auto delta = static_cast<float*>(launch.scratch(floats(a.heads, a.tokens)));
  if (!delta) return cudaErrorMemoryAllocation;
  return with_float_type(a.dtype, [&]<class T>(T) {
    auto blocks = static_cast<unsigned>(std::min<int64_t>(
        ceil_div(a.tokens * a.heads, kThreads / kWarp), int64_t{launch.processors} * 32));
    deltas<T><<<blocks, kThreads, 0, launch.stream>>>(b, delta);
    auto count = static_cast<unsigned>(spans.count);
    dim3 queries(static_cast<unsigned>(spans.max_queries), static_cast<unsigned>(a.heads), count);
    if (spans.max_queries > 0)
      query_gradients<T>
          <<<queries, kThreads, floats(3, a.head_dim), launch.stream>>>(b, spans.spans, delta);
    dim3 keys(static_cast<unsigned>(spans.max_keys), static_cast<unsigned>(a.groups), count);
    if (spans.max_keys > 0)
      key_gradients<T>
          <<<keys, kThreads, floats(4, a.head_dim), launch.stream>>>(b, spans.spans, delta);
    return cudaGetLastError();
  });
}

}  // namespace mtrain::cuda
