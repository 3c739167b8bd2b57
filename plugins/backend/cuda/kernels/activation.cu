// GELU, SwiGLU's gate, a sigmoid gate, and their gradients, by the formulas of mtrain/kernel.
#include <algorithm>

#include "mtrain/kernel/gelu.h"
#include "mtrain/kernel/sigmoid_mul.h"
#include "mtrain/kernel/silu_mul.h"
#include "pack.cuh"

namespace mtrain::cuda {

namespace {

template <class T>
struct SiluMul {
  const T *gate, *up;
  T* y;
  template <int N>
  __device__ void at(int64_t i) const {
    auto g = load<N>(gate + i), u = load<N>(up + i);
    Pack<T, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j)
      out.item[j] = rounded<T>(mtrain::silu_mul(to_float(g.item[j]), to_float(u.item[j])));
    store(y + i, out);
  }
};

template <class T>
struct SiluMulGradient {
  const T *dy, *gate, *up;
  T *d_gate, *d_up;
  template <int N>
  __device__ void at(int64_t i) const {
    auto d = load<N>(dy + i), g = load<N>(gate + i), u = load<N>(up + i);
    Pack<T, N> dg, du;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      SiluMulGrad grad =
          mtrain::silu_mul_backward(to_float(d.item[j]), to_float(g.item[j]), to_float(u.item[j]));
      dg.item[j] = rounded<T>(grad.gate);
      du.item[j] = rounded<T>(grad.up);
    }
    store(d_gate + i, dg);
    store(d_up + i, du);
  }
};

template <class T>
struct SigmoidMul {
  const T *gate, *x;
  T* y;
  template <int N>
  __device__ void at(int64_t i) const {
    auto g = load<N>(gate + i), in = load<N>(x + i);
    Pack<T, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j)
      out.item[j] = rounded<T>(mtrain::sigmoid_mul(to_float(g.item[j]), to_float(in.item[j])));
    store(y + i, out);
  }
};

template <class T>
struct SigmoidMulGradient {
  const T *dy, *gate, *x;
  T *d_gate, *dx;
  template <int N>
  __device__ void at(int64_t i) const {
    auto d = load<N>(dy + i), g = load<N>(gate + i), in = load<N>(x + i);
    Pack<T, N> dg, din;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      SigmoidMulGrad grad = mtrain::sigmoid_mul_backward(to_float(d.item[j]), to_float(g.item[j]),
                                                         to_float(in.item[j]));
      dg.item[j] = rounded<T>(grad.gate);
      din.item[j] = rounded<T>(grad.x);
    }
    store(d_gate + i, dg);
    store(dx + i, din);
  }
};

template <class T, GeluKind kKind>
struct Gelu {
  const T* x;
  T* y;
  template <int N>
  __device__ void at(int64_t i) const {
    auto in = load<N>(x + i);
    Pack<T, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      float v = to_float(in.item[j]);
      out.item[j] = rounded<T>(kKind == GeluKind::erf ? gelu_erf(v) : gelu_tanh(v));
    }
    store(y + i, out);
  }
};

template <class T, GeluKind kKind>
struct GeluGradient {
  const T *dy, *x;
  T* dx;
  bool accumulate;
  template <int N>
  __device__ void at(int64_t i) const {
    auto d = load<N>(dy + i), in = load<N>(x + i);
    Pack<T, N> out;
    if (accumulate) out = load<N>(dx + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      float v = to_float(in.item[j]),
            slope = kKind == GeluKind::erf ? gelu_erf_grad(v) : gelu_tanh_grad(v);
      float before = accumulate ? to_float(out.item[j]) : 0.0f;
      out.item[j] = rounded<T>(before + to_float(d.item[j]) * slope);
    }
    store(dx + i, out);
  }
};

}  // namespace

cudaError_t silu_mul(const Launch& launch, const SiluMulArgs& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    SiluMul<T> f{static_cast<const T*>(a.gate), static_cast<const T*>(a.up), static_cast<T*>(a.y)};
    return each_element<kPack<T>>(launch, a.count, aligned(16, a.gate, a.up, a.y), f);
  });
}

cudaError_t silu_mul_backward(const Launch& launch, const SiluMulBackwardArgs& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    SiluMulGradient<T> f{static_cast<const T*>(a.dy), static_cast<const T*>(a.gate),
                         static_cast<const T*>(a.up), static_cast<T*>(a.d_gate),
                         static_cast<T*>(a.d_up)};
    return each_element<kPack<T>>(launch, a.count,
                                  aligned(16, a.dy, a.gate, a.up, a.d_gate, a.d_up), f);
  });
}

cudaError_t sigmoid_mul(const Launch& launch, const SigmoidMulArgs& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    SigmoidMul<T> f{static_cast<const T*>(a.gate), static_cast<const T*>(a.x),
                    static_cast<T*>(a.y)};
    return each_element<kPack<T>>(launch, a.count, aligned(16, a.gate, a.x, a.y), f);
  });
}

cudaError_t sigmoid_mul_backward(const Launch& launch, const SigmoidMulBackwardArgs& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    SigmoidMulGradient<T> f{static_cast<const T*>(a.dy), static_cast<const T*>(a.gate),
                            static_cast<const T*>(a.x), static_cast<T*>(a.d_gate),
                            static_cast<T*>(a.dx)};
    return each_element<kPack<T>>(launch, a.count, aligned(16, a.dy, a.gate, a.x, a.d_gate, a.dx),
                                  f);
  });
}

cudaError_t gelu(const Launch& launch, const GeluArgs& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    auto x = static_cast<const T*>(a.x);
    auto y = static_cast<T*>(a.y);
    bool vector = aligned(16, a.x, a.y);
    if (a.kind == GeluKind::erf)
      return each_element<kPack<T>>(launch, a.count, vector, Gelu<T, GeluKind::erf>{x, y});
    return each_element<kPack<T>>(launch, a.count, vector, Gelu<T, GeluKind::tanh>{x, y});
  });
}

cudaError_t gelu_backward(const Launch& launch, const GeluBackwardArgs& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    auto dy = static_cast<const T*>(a.dy), x = static_cast<const T*>(a.x);
    auto dx = static_cast<T*>(a.dx);
    bool vector = aligned(16, a.dy, a.x, a.dx);
    if (a.kind == GeluKind::erf)
      return each_element<kPack<T>>(launch, a.count, vector,
                                    GeluGradient<T, GeluKind::erf>{dy, x, dx, a.accumulate});
    return each_element<kPack<T>>(launch, a.count, vector,
                                  GeluGradient<T, GeluKind::tanh>{dy, x, dx, a.accumulate});
  });
}

}  // namespace mtrain::cuda
