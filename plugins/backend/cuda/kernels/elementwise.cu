// Sums, products, functions of one number, conversions and dropout.
#include <algorithm>

#include "mtrain/kernel/dropout.h"
#include "mtrain/kernel/unary.h"
#include "pack.cuh"

namespace mtrain::cuda {

namespace {

template <class T>
struct Add {
  const T *a, *b;
  T* y;
  float factor;  // of b
  template <int N>
  __device__ void at(int64_t i) const {
    auto p = load<N>(a + i), q = load<N>(b + i);
#pragma unroll
    for (int j = 0; j < N; ++j) p.item[j] = T(to_float(p.item[j]) + factor * to_float(q.item[j]));
    store(y + i, p);
  }
};

/// REQUIRES: cols is a multiple of N, or N is 1.
template <class T, class R>
struct AddRow {
  const T *a, *b;
  const R* row;
  T* y;
  int64_t cols;
  float factor;  // of b
  template <int N>
  __device__ void at(int64_t i) const {
    auto p = load<N>(a + i);
    auto r = load<N>(row + i % cols);
    Pack<T, N> q;
    if (b) q = load<N>(b + i);
#pragma unroll
    for (int j = 0; j < N; ++j)
      p.item[j] =
          T(to_float(p.item[j]) + (b ? factor * to_float(q.item[j]) : 0.0f) + to_float(r.item[j]));
    store(y + i, p);
  }
};

template <class T>
struct Mul {
  const T *a, *b;
  T* y;
  template <int N>
  __device__ void at(int64_t i) const {
    auto p = load<N>(a + i), q = load<N>(b + i);
#pragma unroll
    for (int j = 0; j < N; ++j) p.item[j] = T(to_float(p.item[j]) * to_float(q.item[j]));
    store(y + i, p);
  }
};

template <class T, UnaryKind kKind>
struct Unary {
  const T* x;
  T* y;
  float shift;
  template <int N>
  __device__ void at(int64_t i) const {
    auto v = load<N>(x + i);
#pragma unroll
    for (int j = 0; j < N; ++j) v.item[j] = T(mtrain::unary<kKind>(to_float(v.item[j]) + shift));
    store(y + i, v);
  }
};

template <class S, class D>
struct Cast {
  const S* src;
  D* dst;
  float scale;
  bool accumulate;
  template <int N>
  __device__ void at(int64_t i) const {
    auto in = load<N>(src + i);
    Pack<D, N> out;
    if (accumulate) out = load<N>(dst + i);
#pragma unroll
    for (int j = 0; j < N; ++j)
      out.item[j] = D((accumulate ? to_float(out.item[j]) : 0.0f) + scale * to_float(in.item[j]));
    store(dst + i, out);
  }
};

template <class T>
struct Dropout {
  const T* x;
  T* y;
  RngStream rng;
  int64_t first;
  float p, scale;
  template <int N>
  __device__ void at(int64_t i) const {
    auto v = load<N>(x + i);
#pragma unroll
    for (int j = 0; j < N; ++j)
      v.item[j] = T(to_float(v.item[j]) * dropout_factor(rng, first + i + j, p, scale));
    store(y + i, v);
  }
};

/// REQUIRES: the block length is a multiple of N, or N is 1, so that a pack lies in one block.
template <class T>
struct CopyBlocks {
  const T* src;
  T* dst;
  int64_t inner, count, src_outer, src_inner, dst_outer, dst_inner;
  bool accumulate;
  template <int N>
  __device__ void at(int64_t k) const {
    Split place = split(k, count), block = split(place.quotient, inner);
    int64_t i = block.quotient, j = block.remainder, e = place.remainder;
    auto in = load<N>(src + i * src_outer + j * src_inner + e);
    T* to = dst + i * dst_outer + j * dst_inner + e;
    if (accumulate) {
      auto before = load<N>(to);
#pragma unroll
      for (int n = 0; n < N; ++n) in.item[n] = T(to_float(before.item[n]) + to_float(in.item[n]));
    }
    store(to, in);
  }
};

template <UnaryKind kKind>
cudaError_t unary_of(const Launch& launch, const UnaryArgs& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    Unary<T, kKind> f{static_cast<const T*>(a.x), static_cast<T*>(a.y), a.shift};
    return each_element<kPack<T>>(launch, a.count, aligned(16, a.x, a.y), f);
  });
}

}  // namespace

cudaError_t add(const Launch& launch, const AddArgs& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    auto x = static_cast<const T*>(a.a), b = static_cast<const T*>(a.b);
    auto y = static_cast<T*>(a.y);
    if (!a.row)
      return each_element<kPack<T>>(launch, a.count, aligned(16, x, b, y),
                                    Add<T>{x, b, y, a.factor});
    return with_float_type(a.row_dtype, [&]<class R>(R) {
      constexpr int kN = std::min(kPack<T>, kPack<R>);
      bool vector = a.cols % kN == 0 && aligned(16, x, b, y, a.row);
      return each_element<kN>(
          launch, a.count, vector,
          AddRow<T, R>{x, b, static_cast<const R*>(a.row), y, a.cols, a.factor});
    });
  });
}

cudaError_t mul(const Launch& launch, const MulArgs& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    Mul<T> f{static_cast<const T*>(a.a), static_cast<const T*>(a.b), static_cast<T*>(a.y)};
    return each_element<kPack<T>>(launch, a.count, aligned(16, a.a, a.b, a.y), f);
  });
}

cudaError_t unary(const Launch& launch, const UnaryArgs& a) {
  switch (a.kind) {
    case UnaryKind::sigmoid:
      return unary_of<UnaryKind::sigmoid>(launch, a);
    case UnaryKind::rsqrt:
      return unary_of<UnaryKind::rsqrt>(launch, a);
    case UnaryKind::normal_cdf:
      return unary_of<UnaryKind::normal_cdf>(launch, a);
    case UnaryKind::normal_pdf:
      return unary_of<UnaryKind::normal_pdf>(launch, a);
    case UnaryKind::tanh:
      return unary_of<UnaryKind::tanh>(launch, a);
    case UnaryKind::tanh_slope:
      return unary_of<UnaryKind::tanh_slope>(launch, a);
    case UnaryKind::relu:
      return unary_of<UnaryKind::relu>(launch, a);
    case UnaryKind::step:
      return unary_of<UnaryKind::step>(launch, a);
  }
  return cudaErrorInvalidValue;
}

cudaError_t cast(const Launch& launch, const CastArgs& a) {
  return with_float_type(a.src_dtype, [&]<class S>(S) {
    return with_float_type(a.dst_dtype, [&]<class D>(D) {
      constexpr int kN = std::min(kPack<S>, kPack<D>);
      Cast<S, D> f{static_cast<const S*>(a.src), static_cast<D*>(a.dst), a.scale, a.accumulate};
      return each_element<kN>(launch, a.count, aligned(16, a.src, a.dst), f);
    });
  });
}

cudaError_t copy_blocks(const Launch& launch, const CopyBlocksArgs& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    constexpr int kN = kPack<T>;
    auto whole = [](auto... strides) { return ((strides % kN == 0) && ...); };
    bool vector = whole(a.count, a.src_outer, a.src_inner, a.dst_outer, a.dst_inner) &&
                  aligned(16, a.src, a.dst);
    CopyBlocks<T> f{static_cast<const T*>(a.src),
                    static_cast<T*>(a.dst),
                    a.inner,
                    a.count,
                    a.src_outer,
                    a.src_inner,
                    a.dst_outer,
                    a.dst_inner,
                    a.accumulate};
    return each_element<kN>(launch, a.outer * a.inner * a.count, vector, f);
  });
}

cudaError_t dropout(const Launch& launch, const DropoutArgs& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    Dropout<T> f{static_cast<const T*>(a.x),
                 static_cast<T*>(a.y),
                 RngStream(a.seed, a.name_key, a.step),
                 a.first_index,
                 a.p,
                 a.p < 1.0f ? 1.0f / (1.0f - a.p) : 0.0f};
    return each_element<kPack<T>>(launch, a.count, aligned(16, a.x, a.y), f);
  });
}

}  // namespace mtrain::cuda
