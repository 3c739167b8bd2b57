// Attention row by row: scores of one query against the keys it may see, softmax, weighted sum of values.
#include <cmath>

#include "mtrain/cpu/kernels/launch.h"
#include "mtrain/kernel/cast.h"
#include "mtrain/kernel/math.h"

namespace mtrain::cpu::MT_ISA {

namespace {

int64_t longest(const AttentionArgs& a) {
  int64_t n = 0;
  for (int64_t s = 0; s < a.sequences; ++s) n = std::max<int64_t>(n, a.cu_seqlens[s + 1] - a.cu_seqlens[s]);
  return n;
}

template <class T>
void load(const T* from, int64_t stride, float* to, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) cast_row(SerialTeam{}, from + r * stride, to + r * cols, cols, 1.0f, false);
}
template <class T>
void store(const float* from, T* to, int64_t stride, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) cast_row(SerialTeam{}, from + r * cols, to + r * stride, cols, 1.0f, false);
}

float dot(const float* a, const float* b, int64_t n) {
  return SerialTeam{}.sum(n, [&](int64_t i) { return a[i] * b[i]; });
}
void axpy(float a, const float* x, float* y, int64_t n) {
  SerialTeam{}.each(n, [&](int64_t i) { y[i] += a * x[i]; });
}

}  // namespace

void attention(Stream& stream, const AttentionArgs& args) {
  auto& cpu = cpu_stream(stream);
  int64_t n_max = longest(args), e = args.head_dim, per_group = args.heads / args.groups;
  int64_t per_thread = n_max * e * 2 + n_max + 2 * e;
  auto* scratch = reinterpret_cast<float*>(cpu.scratch(sizeof(float) * static_cast<size_t>(per_thread * cpu.threads())));
  with_float_type(args.dtype, [&]<class T>(T) {
    for_uneven_tasks(cpu, args.sequences * args.groups, [&](int64_t task, int thread) {
      int64_t s = task / args.groups, g = task % args.groups, t0 = args.cu_seqlens[s], n = args.cu_seqlens[s + 1] - t0;
      float *k = scratch + per_thread * thread, *v = k + n_max * e, *p = v + n_max * e, *q = p + n_max, *o = q + e;
      auto base = [&](const HeadsView& view, int64_t t) {
        return static_cast<T*>(view.data) + t * view.row_stride + g * view.group_stride;
      };
      load(base(args.k, t0), args.k.row_stride, k, n, e);
      load(base(args.v, t0), args.v.row_stride, v, n, e);
      for (int64_t j = 0; j < per_group; ++j)
        for (int64_t i = 0; i < n; ++i) {
          int64_t h = g * per_group + j, seen = args.causal ? i + 1 : n;
          load(base(args.q, t0 + i) + j * e, 0, q, 1, e);
          float top = -std::numeric_limits<float>::infinity(), sum = 0;
          for (int64_t c = 0; c < seen; ++c) {
            p[c] = args.scale * dot(q, k + c * e, e);
            top = p[c] > top ? p[c] : top;
          }
          for (int64_t d = 0; d < e; ++d) o[d] = 0;
          for (int64_t c = 0; c < seen; ++c) {
            float w = exp_nonpositive(p[c] - top);
            sum += w;
            axpy(w, v + c * e, o, e);
          }
          args.lse[h * args.tokens + t0 + i] = top + std::log(sum);
          for (int64_t d = 0; d < e; ++d) o[d] /= sum;
          store(o, static_cast<T*>(args.o) + ((t0 + i) * args.heads + h) * e, 0, 1, e);
        }
    });
  });
}

void attention_backward(Stream& stream, const AttentionBackwardArgs& back) {
  auto& cpu = cpu_stream(stream);
  const AttentionArgs& args = back.forward;
  int64_t n_max = longest(args), e = args.head_dim, per_group = args.heads / args.groups;
  int64_t per_thread = n_max * e * 4 + 4 * e;
  auto* scratch = reinterpret_cast<float*>(cpu.scratch(sizeof(float) * static_cast<size_t>(per_thread * cpu.threads())));
  with_float_type(args.dtype, [&]<class T>(T) {
    for_uneven_tasks(cpu, args.sequences * args.groups, [&](int64_t task, int thread) {
      int64_t s = task / args.groups, g = task % args.groups, t0 = args.cu_seqlens[s], n = args.cu_seqlens[s + 1] - t0;
      float *k = scratch + per_thread * thread, *v = k + n_max * e, *dk = v + n_max * e, *dv = dk + n_max * e;
      float *q = dv + n_max * e, *o = q + e, *d_o = o + e, *dq = d_o + e;
      auto base = [&](const HeadsView& view, int64_t t) {
        return static_cast<T*>(view.data) + t * view.row_stride + g * view.group_stride;
      };
      load(base(args.k, t0), args.k.row_stride, k, n, e);
      load(base(args.v, t0), args.v.row_stride, v, n, e);
      for (int64_t i = 0; i < n * e; ++i) dk[i] = dv[i] = 0;
      for (int64_t j = 0; j < per_group; ++j)
        for (int64_t i = 0; i < n; ++i) {
          int64_t h = g * per_group + j, seen = args.causal ? i + 1 : n, at = ((t0 + i) * args.heads + h) * e;
          load(base(args.q, t0 + i) + j * e, 0, q, 1, e);
          load(static_cast<const T*>(args.o) + at, 0, o, 1, e);
          load(static_cast<const T*>(back.d_o) + at, 0, d_o, 1, e);
          float delta = dot(o, d_o, e), lse = args.lse[h * args.tokens + t0 + i];
          for (int64_t d = 0; d < e; ++d) dq[d] = 0;
          for (int64_t c = 0; c < seen; ++c) {
            float p = exp_fast(args.scale * dot(q, k + c * e, e) - lse);
            float ds = args.scale * p * (dot(d_o, v + c * e, e) - delta);
            axpy(p, d_o, dv + c * e, e);
            axpy(ds, q, dk + c * e, e);
            axpy(ds, k + c * e, dq, e);
          }
          store(dq, base(back.dq, t0 + i) + j * e, 0, 1, e);
        }
      store(dk, base(back.dk, t0), back.dk.row_stride, n, e);
      store(dv, base(back.dv, t0), back.dv.row_stride, n, e);
    });
  });
}

}  // namespace mtrain::cpu::MT_ISA
