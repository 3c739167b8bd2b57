// GELU, ReLU, the gates of MLPs, a sigmoid gate, and their gradients, by the formulas of
// mtrain/kernel.
#include <algorithm>

#include "mtrain/kernel/gelu.h"
#include "mtrain/kernel/relu.h"
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
      out.item[j] = T(mtrain::silu_mul(to_float(g.item[j]), to_float(u.item[j])));
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
      dg.item[j] = T(grad.gate);
      du.item[j] = T(grad.up);
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
      out.item[j] = T(mtrain::sigmoid_mul(to_float(g.item[j]), to_float(in.item[j])));
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
      dg.item[j] = T(grad.gate);
      din.item[j] = T(grad.x);
    }
    store(d_gate + i, dg);
    store(dx + i, din);
  }
};

/// The forms of an activation: its value and its derivative.
struct GeluErf {
  static __device__ float value(float x) { return gelu_erf(x); }
  static __device__ float slope(float x) { return gelu_erf_grad(x); }
};
struct GeluTanh {
  static __device__ float value(float x) { return gelu_tanh(x); }
  static __device__ float slope(float x) { return gelu_tanh_grad(x); }
};
struct Relu {
  static __device__ float value(float x) { return mtrain::relu(x); }
  static __device__ float slope(float x) { return relu_grad(x); }
};
struct SquaredRelu {
  static __device__ float value(float x) { return squared_relu(x); }
  static __device__ float slope(float x) { return squared_relu_grad(x); }
};

template <class T, class Form>
struct Activation {
  const T* x;
  T* y;
  template <int N>
  __device__ void at(int64_t i) const {
    auto in = load<N>(x + i);
    Pack<T, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) out.item[j] = T(Form::value(to_float(in.item[j])));
    store(y + i, out);
  }
};

template <class T, class Form>
struct ActivationGradient {
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
      float slope = Form::slope(to_float(in.item[j]));
      float before = accumulate ? to_float(out.item[j]) : 0.0f;
      out.item[j] = T(before + to_float(d.item[j]) * slope);
    }
    store(dx + i, out);
  }
};

template <class T, class Form>
struct Gate {
  const T *gate, *up;
  T* y;
  template <int N>
  __device__ void at(int64_t i) const {
    auto g = load<N>(gate + i), u = load<N>(up + i);
    Pack<T, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j)
      out.item[j] = T(Form::value(to_float(g.item[j])) * to_float(u.item[j]));
    store(y + i, out);
  }
};

template <class T, class Form>
struct GateGradient {
  const T *dy, *gate, *up;
  T *d_gate, *d_up;
  template <int N>
  __device__ void at(int64_t i) const {
    auto d = load<N>(dy + i), g = load<N>(gate + i), u = load<N>(up + i);
    Pack<T, N> dg, du;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      float dj = to_float(d.item[j]), gj = to_float(g.item[j]);
      dg.item[j] = T(dj * to_float(u.item[j]) * Form::slope(gj));
      du.item[j] = T(dj * Form::value(gj));
    }
    store(d_gate + i, dg);
    store(d_up + i, du);
  }
};

template <class Form, class Args>
cudaError_t activation_of(const Launch& launch, const Args& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    Activation<T, Form> f{static_cast<const T*>(a.x), static_cast<T*>(a.y)};
    return each_element<kPack<T>>(launch, a.count, aligned(16, a.x, a.y), f);
  });
}

template <class Form, class Args>
cudaError_t gradient_of(const Launch& launch, const Args& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    ActivationGradient<T, Form> f{static_cast<const T*>(a.dy), static_cast<const T*>(a.x),
                                  static_cast<T*>(a.dx), a.accumulate};
    return each_element<kPack<T>>(launch, a.count, aligned(16, a.dy, a.x, a.dx), f);
  });
}

template <class Form>
cudaError_t gate_of(const Launch& launch, const GeluMulArgs& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    Gate<T, Form> f{static_cast<const T*>(a.gate), static_cast<const T*>(a.up),
                    static_cast<T*>(a.y)};
    return each_element<kPack<T>>(launch, a.count, aligned(16, a.gate, a.up, a.y), f);
  });
}

template <class Form>
cudaError_t gate_gradient_of(const Launch& launch, const GeluMulBackwardArgs& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    GateGradient<T, Form> f{static_cast<const T*>(a.dy), static_cast<const T*>(a.gate),
                            static_cast<const T*>(a.up), static_cast<T*>(a.d_gate),
                            static_cast<T*>(a.d_up)};
    return each_element<kPack<T>>(launch, a.count,
                                  aligned(16, a.dy, a.gate, a.up, a.d_gate, a.d_up), f);
  });
}

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
  return a.kind == GeluKind::erf ? activation_of<GeluErf>(launch, a)
                                 : activation_of<GeluTanh>(launch, a);
}

cudaError_t gelu_backward(const Launch& launch, const GeluBackwardArgs& a) {
  return a.kind == GeluKind::erf ? gradient_of<GeluErf>(launch, a)
                                 : gradient_of<GeluTanh>(launch, a);
}

cudaError_t gelu_mul(const Launch& launch, const GeluMulArgs& a) {
  return a.kind == GeluKind::erf ? gate_of<GeluErf>(launch, a) : gate_of<GeluTanh>(launch, a);
}

cudaError_t gelu_mul_backward(const Launch& launch, const GeluMulBackwardArgs& a) {
  return a.kind == GeluKind::erf ? gate_gradient_of<GeluErf>(launch, a)
                                 : gate_gradient_of<GeluTanh>(launch, a);
}

cudaError_t relu(const Launch& launch, const ReluArgs& a) {
  return a.kind == ReluKind::plain ? activation_of<Relu>(launch, a)
                                   : activation_of<SquaredRelu>(launch, a);
}

cudaError_t relu_backward(const Launch& launch, const ReluBackwardArgs& a) {
  return a.kind == ReluKind::plain ? gradient_of<Relu>(launch, a)
                                   : gradient_of<SquaredRelu>(launch, a);
}

}  // namespace mtrain::cuda
