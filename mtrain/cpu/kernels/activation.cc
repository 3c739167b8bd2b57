// Activations and their gradients on whole vector registers. They are bound by arithmetic, not by
// memory, so every saved instruction matters. The formulas are those of mtrain/kernel/gelu.h,
// silu_mul.h and sigmoid_mul.h, with constants folded.
#include "mtrain/cpu/kernels/launch.h"
#include "mtrain/cpu/kernels/vec_types.h"
#include "mtrain/kernel/gelu.h"

namespace mtrain::cpu::MT_ISA {

namespace {

// u = sqrt(2/π) (x + 0.044715 x³); sigmoid(2u) = 1 / (1 + 2^t), t = x (kLinear + kCubic x²).
using detail::kGeluCubic, detail::kGeluTwoC;
constexpr float kLinear = -kGeluTwoC * kLog2OfE, kCubic = kLinear * kGeluCubic;

struct ValueAndSlope {
  Vec value, slope;
};

struct GeluTanh {
  static MT_HD Vec value(Vec x) { return x * sigmoid_of_exp2(x * (kLinear + kCubic * (x * x))); }
  /// s + x s (1 - s) d(2u)/dx.
  static MT_HD ValueAndSlope both(Vec x) {
    Vec square = x * x, s = sigmoid_of_exp2(x * (kLinear + kCubic * square));
    return {x * s, s + (x * (s - s * s)) * (kGeluTwoC + (3.0f * kGeluCubic * kGeluTwoC) * square)};
  }
  static MT_HD Vec slope(Vec x) { return both(x).slope; }
};

struct GeluErf {
  struct Normal {
    Vec cdf, gauss;  // gauss = exp(-x²/2)
  };
  /// The same as mtrain::normal().
  static MT_HD Normal normal(Vec x) {
    Vec z = at_most(x < 0.0f ? -x : x, 1e18f) * 0.7071067811865476f;
    Vec gauss = exp2((x * x) * (-0.5f * kLog2OfE));
    Vec t = reciprocal(1.0f + detail::kErfcxScale * z);
    Vec tail = (0.5f * gauss) * detail::erfcx(t);
    return {x > 0.0f ? 1.0f - tail : tail, gauss};
  }
  static MT_HD Vec value(Vec x) { return x * normal(x).cdf; }
  static MT_HD ValueAndSlope both(Vec x) {
    Normal n = normal(x);
    return {x * n.cdf, n.cdf + x * (n.gauss * 0.3989422804014327f)};
  }
  static MT_HD Vec slope(Vec x) { return both(x).slope; }
};

struct Relu {
  static MT_HD Vec value(Vec x) { return x < 0.0f ? Vec{} : x; }
  static MT_HD Vec slope(Vec x) { return x > 0.0f ? splat(1.0f) : Vec{}; }
};
struct SquaredRelu {
  static MT_HD Vec value(Vec x) { return Relu::value(x) * Relu::value(x); }
  static MT_HD Vec slope(Vec x) { return 2.0f * Relu::value(x); }
};

/// N vectors, or N pointers. Not std::array, because the levels would share its functions.
template <class V, int N>
struct Pack {
  V item[N];
};
template <int N>
using Vecs = Pack<Vec, N>;

/// Applies f, which maps vectors of the inputs to vectors of the outputs, to all elements.
template <class T, int kIn, int kOut, class F>
void each_vector(Stream& stream, int64_t count, Pack<const T*, kIn> in, Pack<T*, kOut> out, F&& f) {
  for_blocks(cpu_stream(stream), count, kElementBlock, [&](int64_t begin, int64_t end) {
    auto step = [&](const Pack<const T*, kIn>& from, const Pack<T*, kOut>& to, int64_t at)
        __attribute__((always_inline)) {
      Vecs<kIn> x;
      for (int i = 0; i < kIn; ++i) x.item[i] = load_as(from.item[i] + at);
      Vecs<kOut> y = f(x);
      for (int i = 0; i < kOut; ++i) store_as(to.item[i] + at, y.item[i]);
    };
    int64_t at = begin;
    for (; at + kLanes <= end; at += kLanes) step(in, out, at);
    if (at == end) return;
    T padded[kIn + kOut][kLanes] = {};
    Pack<const T*, kIn> from;
    Pack<T*, kOut> to;
    for (int i = 0; i < kIn; ++i) {
      from.item[i] = padded[i];
      for (int64_t j = at; j < end; ++j) padded[i][j - at] = in.item[i][j];
    }
    for (int i = 0; i < kOut; ++i) to.item[i] = padded[kIn + i];
    step(from, to, 0);
    for (int i = 0; i < kOut; ++i)
      for (int64_t j = at; j < end; ++j) out.item[i][j] = padded[kIn + i][j - at];
  });
}

template <class Form, class T, class Args>
void activation_of(Stream& stream, const Args& args) {
  each_vector<T, 1, 1>(stream, args.count, {static_cast<const T*>(args.x)},
                       {static_cast<T*>(args.y)},
                       [](const Vecs<1>& x) { return Vecs<1>{Form::value(x.item[0])}; });
}

template <class Form, class T, class Args>
void activation_backward_of(Stream& stream, const Args& args) {
  auto dy = static_cast<const T*>(args.dy), x = static_cast<const T*>(args.x);
  auto dx = static_cast<T*>(args.dx);
  if (args.accumulate)
    each_vector<T, 3, 1>(stream, args.count, {dy, x, dx}, {dx}, [](const Vecs<3>& v) {
      return Vecs<1>{v.item[2] + v.item[0] * Form::slope(v.item[1])};
    });
  else
    each_vector<T, 2, 1>(stream, args.count, {dy, x}, {dx}, [](const Vecs<2>& v) {
      return Vecs<1>{v.item[0] * Form::slope(v.item[1])};
    });
}

template <class Form, class T>
void gelu_mul_of(Stream& stream, const GeluMulArgs& args) {
  each_vector<T, 2, 1>(
      stream, args.count, {static_cast<const T*>(args.gate), static_cast<const T*>(args.up)},
      {static_cast<T*>(args.y)},
      [](const Vecs<2>& v) { return Vecs<1>{Form::value(v.item[0]) * v.item[1]}; });
}

template <class Form, class T>
void gelu_mul_backward_of(Stream& stream, const GeluMulBackwardArgs& args) {
  each_vector<T, 3, 2>(stream, args.count,
                       {static_cast<const T*>(args.dy), static_cast<const T*>(args.gate),
                        static_cast<const T*>(args.up)},
                       {static_cast<T*>(args.d_gate), static_cast<T*>(args.d_up)},
                       [](const Vecs<3>& v) {
                         Vec dy = v.item[0], up = v.item[2];
                         ValueAndSlope gate = Form::both(v.item[1]);
                         return Vecs<2>{dy * up * gate.slope, dy * gate.value};
                       });
}

}  // namespace

void gelu(Stream& stream, const GeluArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    args.kind == GeluKind::erf ? activation_of<GeluErf, T>(stream, args)
                               : activation_of<GeluTanh, T>(stream, args);
  });
}

void gelu_backward(Stream& stream, const GeluBackwardArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    args.kind == GeluKind::erf ? activation_backward_of<GeluErf, T>(stream, args)
                               : activation_backward_of<GeluTanh, T>(stream, args);
  });
}

void gelu_mul(Stream& stream, const GeluMulArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    args.kind == GeluKind::erf ? gelu_mul_of<GeluErf, T>(stream, args)
                               : gelu_mul_of<GeluTanh, T>(stream, args);
  });
}

void gelu_mul_backward(Stream& stream, const GeluMulBackwardArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    args.kind == GeluKind::erf ? gelu_mul_backward_of<GeluErf, T>(stream, args)
                               : gelu_mul_backward_of<GeluTanh, T>(stream, args);
  });
}

void relu(Stream& stream, const ReluArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    args.kind == ReluKind::plain ? activation_of<Relu, T>(stream, args)
                                 : activation_of<SquaredRelu, T>(stream, args);
  });
}

void relu_backward(Stream& stream, const ReluBackwardArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    args.kind == ReluKind::plain ? activation_backward_of<Relu, T>(stream, args)
                                 : activation_backward_of<SquaredRelu, T>(stream, args);
  });
}

void silu_mul(Stream& stream, const SiluMulArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    each_vector<T, 2, 1>(
        stream, args.count, {static_cast<const T*>(args.gate), static_cast<const T*>(args.up)},
        {static_cast<T*>(args.y)},
        [](const Vecs<2>& v) { return Vecs<1>{v.item[0] * sigmoid(v.item[0]) * v.item[1]}; });
  });
}

void silu_mul_backward(Stream& stream, const SiluMulBackwardArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    each_vector<T, 3, 2>(
        stream, args.count,
        {static_cast<const T*>(args.dy), static_cast<const T*>(args.gate),
         static_cast<const T*>(args.up)},
        {static_cast<T*>(args.d_gate), static_cast<T*>(args.d_up)}, [](const Vecs<3>& v) {
          Vec dy = v.item[0], gate = v.item[1], up = v.item[2], s = sigmoid(gate), silu = gate * s;
          return Vecs<2>{dy * up * (s + (silu - silu * s)), dy * silu};
        });
  });
}

void sigmoid_mul(Stream& stream, const SigmoidMulArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    each_vector<T, 2, 1>(stream, args.count,
                         {static_cast<const T*>(args.gate), static_cast<const T*>(args.x)},
                         {static_cast<T*>(args.y)},
                         [](const Vecs<2>& v) { return Vecs<1>{sigmoid(v.item[0]) * v.item[1]}; });
  });
}

void sigmoid_mul_backward(Stream& stream, const SigmoidMulBackwardArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    each_vector<T, 3, 2>(stream, args.count,
                         {static_cast<const T*>(args.dy), static_cast<const T*>(args.gate),
                          static_cast<const T*>(args.x)},
                         {static_cast<T*>(args.d_gate), static_cast<T*>(args.dx)},
                         [](const Vecs<3>& v) {
                           Vec s = sigmoid(v.item[1]), scaled = v.item[0] * s;
                           return Vecs<2>{scaled * v.item[2] * (1.0f - s), scaled};
                         });
  });
}

}  // namespace mtrain::cpu::MT_ISA
