// Sums, products, functions of one number, conversions and dropout: blocks of elements in any
// order.
#include <cstring>

#include "mtrain/cpu/kernels/launch.h"
#include "mtrain/kernel/cast.h"
#include "mtrain/kernel/dropout.h"
#include "mtrain/kernel/unary.h"

namespace mtrain::cpu::MT_ISA {

namespace {
template <class F>
void each_element(Stream& stream, int64_t count, F&& f) {
  for_blocks(cpu_stream(stream), count, kElementBlock, [&](int64_t begin, int64_t end) {
    SerialTeam{}.each(end - begin, [&](int64_t i) { f(begin + i); });
  });
}
}  // namespace

namespace {
void add_row(Stream& stream, const AddArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    with_float_type(args.row_dtype, [&]<class R>(R) {
      auto a = static_cast<const T*>(args.a), b = static_cast<const T*>(args.b);
      auto row = static_cast<const R*>(args.row);
      auto y = static_cast<T*>(args.y);
      int64_t cols = args.cols, rows = args.count / cols;
      float factor = args.factor;
      for_blocks(cpu_stream(stream), rows, rows_per_task(cols), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r)
          SerialTeam{}.each(cols, [&](int64_t c) {
            int64_t i = r * cols + c;
            y[i] = T(to_float(a[i]) + (b ? factor * to_float(b[i]) : 0.0f) + to_float(row[c]));
          });
      });
    });
  });
}
}  // namespace

void add(Stream& stream, const AddArgs& args) {
  if (args.row) return add_row(stream, args);
  with_float_type(args.dtype, [&]<class T>(T) {
    auto a = static_cast<const T*>(args.a), b = static_cast<const T*>(args.b);
    auto y = static_cast<T*>(args.y);
    if (float factor = args.factor; factor != 1)
      return each_element(stream, args.count,
                          [=](int64_t i) { y[i] = T(to_float(a[i]) + factor * to_float(b[i])); });
    each_element(stream, args.count, [=](int64_t i) { y[i] = T(to_float(a[i]) + to_float(b[i])); });
  });
}

void mul(Stream& stream, const MulArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    auto a = static_cast<const T*>(args.a), b = static_cast<const T*>(args.b);
    auto y = static_cast<T*>(args.y);
    each_element(stream, args.count, [=](int64_t i) { y[i] = T(to_float(a[i]) * to_float(b[i])); });
  });
}

namespace {
template <UnaryKind kKind>
void unary_of(Stream& stream, const UnaryArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    auto x = static_cast<const T*>(args.x);
    auto y = static_cast<T*>(args.y);
    float shift = args.shift;
    each_element(stream, args.count,
                 [=](int64_t i) { y[i] = T(mtrain::unary<kKind>(to_float(x[i]) + shift)); });
  });
}
}  // namespace

void unary(Stream& stream, const UnaryArgs& args) {
  switch (args.kind) {
    case UnaryKind::sigmoid:
      return unary_of<UnaryKind::sigmoid>(stream, args);
    case UnaryKind::rsqrt:
      return unary_of<UnaryKind::rsqrt>(stream, args);
    case UnaryKind::normal_cdf:
      return unary_of<UnaryKind::normal_cdf>(stream, args);
    case UnaryKind::normal_pdf:
      return unary_of<UnaryKind::normal_pdf>(stream, args);
    case UnaryKind::tanh:
      return unary_of<UnaryKind::tanh>(stream, args);
    case UnaryKind::tanh_slope:
      return unary_of<UnaryKind::tanh_slope>(stream, args);
    case UnaryKind::relu:
      return unary_of<UnaryKind::relu>(stream, args);
    case UnaryKind::step:
      return unary_of<UnaryKind::step>(stream, args);
  }
}

void cast(Stream& stream, const CastArgs& args) {
  with_float_type(args.src_dtype, [&]<class S>(S) {
    with_float_type(args.dst_dtype, [&]<class D>(D) {
      auto src = static_cast<const S*>(args.src);
      auto dst = static_cast<D*>(args.dst);
      for_blocks(cpu_stream(stream), args.count, kElementBlock, [&](int64_t begin, int64_t end) {
        if (std::is_same_v<S, D> && args.scale == 1.0f && !args.accumulate)
          std::memmove(static_cast<void*>(dst + begin), src + begin,
                       sizeof(D) * static_cast<size_t>(end - begin));
        else
          cast_row(SerialTeam{}, src + begin, dst + begin, end - begin, args.scale,
                   args.accumulate);
      });
    });
  });
}

void copy_blocks(Stream& stream, const CopyBlocksArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    auto src = static_cast<const T*>(args.src);
    auto dst = static_cast<T*>(args.dst);
    int64_t n = args.count;
    for_blocks(cpu_stream(stream), args.outer * args.inner, rows_per_task(n),
               [&](int64_t begin, int64_t end) {
                 for (int64_t block = begin; block < end; ++block) {
                   int64_t i = block / args.inner, j = block % args.inner;
                   const T* from = src + i * args.src_outer + j * args.src_inner;
                   T* to = dst + i * args.dst_outer + j * args.dst_inner;
                   if (args.accumulate)
                     cast_row(SerialTeam{}, from, to, n, 1.0f, true);
                   else
                     std::memcpy(static_cast<void*>(to), from, sizeof(T) * static_cast<size_t>(n));
                 }
               });
  });
}

void dropout(Stream& stream, const DropoutArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    auto x = static_cast<const T*>(args.x);
    auto y = static_cast<T*>(args.y);
    RngStream rng(args.seed, args.name_key, args.step);
    float p = args.p, scale = p < 1.0f ? 1.0f / (1.0f - p) : 0.0f;
    int64_t first = args.first_index;
    each_element(stream, args.count, [=](int64_t i) {
      y[i] = T(to_float(x[i]) * dropout_factor(rng, first + i, p, scale));
    });
  });
}

}  // namespace mtrain::cpu::MT_ISA
