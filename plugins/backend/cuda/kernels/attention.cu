// Attention without cuDNN: one block per query row and head for forward and dq, one block per key
// row and group for dk and dv. Every sum runs in a fixed order, without atomics. For shapes and
// dtypes that cuDNN does not support, as a reference in tests of cuDNN, and for keys that arrive in
// parts (ring attention). Slow: each key is read once per query.
#include "mtrain/kernel/math.h"
#include "rows.cuh"

namespace mtrain::cuda {

namespace {

constexpr int kThreads = 128;

/// Query i of a span attends to keys [begin, end).
struct Visible {
  int64_t begin, end;
};
__device__ Visible visible(const AttentionArgs& a, const AttentionSpan& s, int64_t i) {
  if (!a.causal) return {0, s.keys};
  int64_t next = i + s.offset + 1;
  return {a.window > 0 ? max(int64_t{0}, next - a.window) : 0,
          min(static_cast<int64_t>(s.keys), next)};
}

/// A scaled score with its cap, and the derivative.
__device__ float capped(const AttentionArgs& a, float score) {
  return a.cap > 0 ? a.cap * tanh_fast(score / a.cap) : score;
}
__device__ float cap_slope(const AttentionArgs& a, float score) {
  float bent = a.cap > 0 ? score / a.cap : 0.0f;
  return 1.0f - bent * bent;
}

/// The bias of the score of a query and a key of a span.
__device__ float bias_of(const AttentionArgs& a, const AttentionSpan& s, int64_t head,
                         int64_t query, int64_t key) {
  if (!a.bias.values) return 0.0f;
  return a.bias.values[head * a.bias.distances + a.bias.zero + key - query - s.offset];
}

/// The factor of dropout of a weight of span `z`; `first_tokens` is in device memory.
__device__ float keep(const AttentionArgs& a, const AttentionSpan& s, int64_t z, int64_t head,
                      int64_t query, int64_t key) {
  if (a.dropout.p == 0) return 1.0f;
  int64_t first = a.dropout.first_tokens[z];
  return AttentionKeep(a.dropout, head).factor(first + query, first - s.offset + key);
}

/// log(e^a + e^b). REQUIRES: not both -infinity.
__device__ float log_add(float a, float b) {
  float high = fmaxf(a, b);
  return high + std::log(exp_nonpositive(a - high) + exp_nonpositive(b - high));
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

/// Writes one row of forward: `sums` of values with weights that add up to `total`, whose scores
/// have the log-sum-exp `of_keys`.
template <class T>
__device__ void finish(const AttentionArgs& a, int64_t row, int64_t head, const float* sums,
                       float total, float of_keys) {
  int64_t dim = a.head_dim, at = (row * a.heads + head) * dim;
  float* lse = a.lse + head * a.tokens + row;
  float mine = of_keys, share = 1.0f;
  if (a.sinks) {
    mine = log_add(of_keys, to_float(static_cast<const T*>(a.sinks)[head]));
    share = of_keys == -INFINITY ? 0.0f : exp_nonpositive(of_keys - mine);
  }
  if (!a.add) {
    T* o = static_cast<T*>(a.o) + at;
    for (int64_t d = threadIdx.x; d < dim; d += kThreads)
      o[d] = T(total != 0 ? sums[d] / total * share : 0.0f);
    if (threadIdx.x == 0) *lse = mine;
  } else if (total != 0) {  // o and lse hold the result over other keys
    float before = *lse, high = fmaxf(before, mine);
    float old_weight = before == -INFINITY ? 0.0f : exp_nonpositive(before - high),
          new_weight = exp_nonpositive(mine - high);
    float both = old_weight + new_weight;
    float* o = static_cast<float*>(a.o) + at;
    for (int64_t d = threadIdx.x; d < dim; d += kThreads)
      o[d] = (o[d] * old_weight + sums[d] / total * share * new_weight) / both;
    __syncthreads();  // all threads have read lse
    if (threadIdx.x == 0) *lse = high + std::log(both);
  }
}

/// Keys are processed kThreads at a time: each thread scores one key, then each thread accumulates
/// its own elements of the output.
template <class T>
__global__ void __launch_bounds__(kThreads, 8)
    forward(AttentionArgs a, const AttentionSpan* spans) {
  extern __shared__ float shared[];
  __shared__ Pair warps[kWarp + 1];
  __shared__ float weights[kThreads];
  float *q = shared, *sums = shared + a.head_dim;
  AttentionSpan s = spans[blockIdx.z];
  int64_t i = blockIdx.x, head = blockIdx.y, per_group = a.heads / a.groups,
          group = head / per_group, dim = a.head_dim;
  if (i >= s.queries) return;
  BlockTeam team{warps};
  int64_t row = s.first_query + i;
  auto [begin, n] = visible(a, s, i);
  const T* from = static_cast<const T*>(a.q.data) + place(a.q, row, group, head % per_group, dim);
  for (int64_t d = threadIdx.x; d < dim; d += kThreads)
    q[d] = to_float(from[d]) * a.scale, sums[d] = 0;
  __syncthreads();
  float top = -INFINITY, total = 0;
  for (int64_t j = begin; j < n; j += kThreads) {
    int64_t key = j + threadIdx.x;
    const T* k = static_cast<const T*>(a.k.data) + place(a.k, s.first_key + key, group, 0, dim);
    float score = key < n ? capped(a, dot(k, q, dim)) + bias_of(a, s, head, i, key) : -INFINITY;
    float higher =
        fmaxf(top, team.max(kThreads, [&](int64_t) { return score; }));  // one score per thread
    float shrink = top == -INFINITY ? 0.0f : exp_nonpositive(top - higher);
    float weight = key < n ? exp_nonpositive(score - higher) : 0.0f;
    weights[threadIdx.x] = key < n ? weight * keep(a, s, blockIdx.z, head, i, key) : 0.0f;
    float added = team.sum(kThreads, [&](int64_t) { return weight; });
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
  finish<T>(a, row, head, sums, total, n > begin ? top + std::log(total) : -INFINITY);
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
    static_cast<T*>(to)[at] = T(value);
}

/// dq_i = scale Σ_j p_ij (dp_ij - delta_i) k_j.
template <class T>
__global__ void __launch_bounds__(kThreads, 8)
    query_gradients(AttentionBackwardArgs b, const AttentionSpan* spans, const float* delta) {
  extern __shared__ float shared[];
  __shared__ float slopes[kThreads];
  const AttentionArgs& a = b.forward;
  AttentionSpan s = spans[blockIdx.z];
  int64_t i = blockIdx.x, head = blockIdx.y, per_group = a.heads / a.groups,
          group = head / per_group, dim = a.head_dim;
  if (i >= s.queries) return;
  float *q = shared, *d_o = shared + dim, *sums = shared + 2 * dim;
  int64_t row = s.first_query + i;
  auto [begin, n] = visible(a, s, i);
  const T* q_row = static_cast<const T*>(a.q.data) + place(a.q, row, group, head % per_group, dim);
  const T* d_row = static_cast<const T*>(b.d_o) + (row * a.heads + head) * dim;
  for (int64_t d = threadIdx.x; d < dim; d += kThreads)
    q[d] = to_float(q_row[d]) * a.scale, d_o[d] = to_float(d_row[d]), sums[d] = 0;
  __syncthreads();
  float lse = a.lse[head * a.tokens + row], mine = delta[head * a.tokens + row];
  for (int64_t j = begin; j < n; j += kThreads) {
    int64_t key = s.first_key + j + threadIdx.x;
    if (j + static_cast<int64_t>(threadIdx.x) < n) {
      float score =
          capped(a, dot(static_cast<const T*>(a.k.data) + place(a.k, key, group, 0, dim), q, dim));
      float p = exp_fast(score + bias_of(a, s, head, i, j + threadIdx.x) - lse);
      float dp = dot(static_cast<const T*>(a.v.data) + place(a.v, key, group, 0, dim), d_o, dim) *
                 keep(a, s, blockIdx.z, head, i, j + threadIdx.x);
      slopes[threadIdx.x] = p * (dp - mine) * a.scale * cap_slope(a, score);
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
__global__ void __launch_bounds__(kThreads, 8)
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
  // Queries [begin, end) attend to this key.
  int64_t begin = a.causal ? max(int64_t{0}, j - s.offset) : 0,
          end = a.causal && a.window > 0
                    ? min(static_cast<int64_t>(s.queries), j - s.offset + a.window)
                    : s.queries;
  for (int64_t h = 0; h < per_group; ++h) {
    int64_t head = group * per_group + h;
    for (int64_t i = begin; i < end; i += kThreads) {
      if (int64_t query = s.first_query + i + threadIdx.x;
          i + static_cast<int64_t>(threadIdx.x) < end) {
        const T* q_row = static_cast<const T*>(a.q.data) + place(a.q, query, group, h, dim);
        float score = capped(a, dot(q_row, k, dim) * a.scale);
        float p = exp_fast(score + bias_of(a, s, head, i + threadIdx.x, j) -
                           a.lse[head * a.tokens + query]);
        float factor = keep(a, s, blockIdx.z, head, i + threadIdx.x, j);
        float dp =
            dot(static_cast<const T*>(b.d_o) + (query * a.heads + head) * dim, v, dim) * factor;
        weights[threadIdx.x] = p * factor;
        slopes[threadIdx.x] =
            p * (dp - delta[head * a.tokens + query]) * a.scale * cap_slope(a, score);
      }
      __syncthreads();
      int64_t some = min(end - i, static_cast<int64_t>(kThreads));
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

/// d_bias[h, n] += Σ p_ij (dp_ij - delta_i) over the pairs of distance n, one block per head and
/// distance: each thread sums every kThreads-th query of a span, span after span, and the sums of
/// the threads are added in order.
template <class T>
__global__ void __launch_bounds__(kThreads)
    bias_gradients(AttentionBackwardArgs b, const AttentionSpan* spans, int64_t count,
                   const float* delta) {
  __shared__ float parts[kThreads];
  const AttentionArgs& a = b.forward;
  int64_t distance = static_cast<int64_t>(blockIdx.x) - a.bias.zero, head = blockIdx.y,
          per_group = a.heads / a.groups, group = head / per_group, dim = a.head_dim;
  float mine = 0;
  for (int64_t z = 0; z < count; ++z) {
    AttentionSpan s = spans[z];
    for (int64_t i = threadIdx.x; i < s.queries; i += kThreads) {
      int64_t j = i + s.offset + distance, row = s.first_query + i, key = s.first_key + j;
      auto [begin, end] = visible(a, s, i);
      if (j < begin || j >= end) continue;
      const T* q = static_cast<const T*>(a.q.data) + place(a.q, row, group, head % per_group, dim);
      const T* k = static_cast<const T*>(a.k.data) + place(a.k, key, group, 0, dim);
      const T* v = static_cast<const T*>(a.v.data) + place(a.v, key, group, 0, dim);
      const T* d_o = static_cast<const T*>(b.d_o) + (row * a.heads + head) * dim;
      float score = 0, dp = 0;
      for (int64_t d = 0; d < dim; ++d) {
        score += to_float(k[d]) * (to_float(q[d]) * a.scale);
        dp += to_float(v[d]) * to_float(d_o[d]);
      }
      float p =
          exp_fast(capped(a, score) + bias_of(a, s, head, i, j) - a.lse[head * a.tokens + row]);
      mine += p * (dp * keep(a, s, z, head, i, j) - delta[head * a.tokens + row]);
    }
  }
  parts[threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float total = 0;
  for (float part : parts) total += part;
  b.d_bias[head * a.bias.distances + blockIdx.x] += total;
}

/// One block per head. Each warp sums every fourth token, and the sums of the warps are added in
/// order.
template <class T>
__global__ void __launch_bounds__(kThreads) sink_gradients(AttentionSinkBackwardArgs a) {
  constexpr int kWarps = kThreads / kWarp;
  __shared__ float parts[kWarps];
  int warp = static_cast<int>(threadIdx.x) / kWarp;
  WarpTeam team{static_cast<int>(threadIdx.x % kWarp)};
  int64_t head = blockIdx.x;
  float sink = to_float(static_cast<const T*>(a.sinks)[head]), mine = 0;
  for (int64_t t = warp; t < a.tokens; t += kWarps) {
    int64_t at = (t * a.heads + head) * a.head_dim;
    const T *o = static_cast<const T*>(a.o) + at, *d_o = static_cast<const T*>(a.d_o) + at;
    float delta =
        team.sum(a.head_dim, [&](int64_t d) { return to_float(o[d]) * to_float(d_o[d]); });
    mine += exp_fast(sink - a.lse[head * a.tokens + t]) * delta;
  }
  team.once([&] { parts[warp] = mine; });
  __syncthreads();
  if (threadIdx.x != 0) return;
  float total = 0;
  for (float part : parts) total += part;
  a.d_sinks[head] -= total;
}

size_t floats(int64_t rows, int64_t dim) { return sizeof(float) * static_cast<size_t>(rows * dim); }

}  // namespace

cudaError_t attention_sink_backward(const Launch& launch, const AttentionSinkBackwardArgs& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    sink_gradients<T><<<static_cast<unsigned>(a.heads), kThreads, 0, launch.stream>>>(a);
    return cudaGetLastError();
  });
}

cudaError_t plain_attention(const Launch& launch, const AttentionArgs& args,
                            const PlainSpans& spans) {
  AttentionArgs a = args;
  a.dropout.first_tokens = spans.first_tokens;
  if (spans.count <= 0 || spans.max_queries <= 0) return cudaSuccess;
  if (a.head_dim > 2048 || spans.count > 65535 || a.heads > 65535) return cudaErrorInvalidValue;
  dim3 grid(static_cast<unsigned>(spans.max_queries), static_cast<unsigned>(a.heads),
            static_cast<unsigned>(spans.count));
  return with_float_type(a.dtype, [&]<class T>(T) {
    forward<T><<<grid, kThreads, floats(2, a.head_dim), launch.stream>>>(a, spans.spans);
    return cudaGetLastError();
  });
}

cudaError_t plain_attention_backward(const Launch& launch, const AttentionBackwardArgs& args,
                                     const PlainSpans& spans) {
  AttentionBackwardArgs b = args;
  b.forward.dropout.first_tokens = spans.first_tokens;
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
    dim3 distances(static_cast<unsigned>(a.bias.distances), static_cast<unsigned>(a.heads));
    if (b.d_bias)
      bias_gradients<T>
          <<<distances, kThreads, 0, launch.stream>>>(b, spans.spans, spans.count, delta);
    return cudaGetLastError();
  });
}

}  // namespace mtrain::cuda
