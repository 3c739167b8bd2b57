// Norms of heads in place, sums over heads, and limits of values: what happens between the fused
// projection of attention and its products. Tokens are independent; the gradients of weights are
// summed over fixed blocks of tokens, and the blocks in order.
#include "mtrain/cpu/kernels/launch.h"
#include "mtrain/cpu/kernels/row_blocks.h"
#include "mtrain/kernel/layer_norm.h"
#include "mtrain/kernel/norm_weight.h"
#include "mtrain/kernel/piece_norm.h"
#include "mtrain/kernel/rms_norm.h"

namespace mtrain::cpu::MT_ISA {

namespace {

/// Calls f(start of the head, its number among the token's heads) for the heads of a token.
template <class T, class Args, class F>
inline void each_head(const HeadsView& view, const Args& a, int64_t token, F&& f) {
  T* row = static_cast<T*>(view.data) + token * view.row_stride;
  int64_t n = 0;
  for (int64_t g = 0; g < a.groups; ++g)
    for (int64_t j = 0; j < a.heads; ++j) f(row + g * view.group_stride + j * a.head_dim, n++);
}

template <class Args>
inline int64_t row_size(const Args& a) {
  return a.groups * a.heads * a.head_dim;
}
template <class Args>
inline Pieces whole_row(const HeadsView& view, const Args& a) {
  return {.count = a.groups, .cols = a.heads * a.head_dim, .stride = view.group_stride};
}

template <class T>
void norm_whole(const HeadNormArgs& a, int64_t t) {
  T* x = static_cast<T*>(a.x.data) + t * a.x.row_stride;
  Pieces row = whole_row(a.x, a);
  float squares = a.sums ? a.sums[t] : pieces_squares(SerialTeam{}, x, row);
  pieces_rms_norm(SerialTeam{}, x, a.kept ? static_cast<T*>(a.kept) + t * row_size(a) : nullptr,
                  static_cast<const T*>(a.w), a.rstd + t, squares, a.sums ? a.width : row_size(a),
                  a.eps, row);
}

template <class T>
void norm_heads(const HeadNormArgs& a, int64_t t) {
  const int64_t e = a.head_dim, first = t * a.groups * a.heads;
  each_head<T>(a.x, a, t, [&](T* x, int64_t n) {
    const int64_t row = first + n, own = a.own_weights ? n * e : 0;
    const OffsetWeight<T> w{static_cast<const T*>(a.w) + own, a.offset};
    if (a.kept) {
      T* kept = static_cast<T*>(a.kept) + row * e;
      SerialTeam{}.each(e, [&](int64_t i) { kept[i] = x[i]; });
    }
    if (!a.mean) return rms_norm_row(SerialTeam{}, x, w, x, a.rstd + row, e, a.eps);
    const T* b = a.b ? static_cast<const T*>(a.b) + own : nullptr;
    layer_norm_row(SerialTeam{}, x, w, b, x, a.mean + row, a.rstd + row, e, a.eps);
  });
}

/// dw and db: the sums of this token's block; null: not needed.
template <class T>
void norm_whole_backward(const HeadNormBackwardArgs& a, int64_t t, float* dw) {
  T* dy = static_cast<T*>(a.dx.data) + t * a.dx.row_stride;
  const T *x = static_cast<const T*>(a.kept) + t * row_size(a), *w = static_cast<const T*>(a.w);
  Pieces row = whole_row(a.dx, a);
  for (int64_t p = 0; dw && p < row.count; ++p)
    rms_norm_row_dw(SerialTeam{}, dy + p * row.stride, x + p * row.cols, a.rstd[t],
                    dw + p * row.cols, row.cols);
  float dots = a.sums ? a.sums[t] : pieces_dots(SerialTeam{}, dy, x, w, row);
  pieces_rms_norm_backward(SerialTeam{}, dy, x, w, a.rstd[t], dots, a.sums ? a.width : row_size(a),
                           row);
}

template <class T>
void norm_heads_backward(const HeadNormBackwardArgs& a, int64_t t, float* dw, float* db) {
  const int64_t e = a.head_dim, first = t * a.groups * a.heads;
  SerialTeam team;
  each_head<T>(a.dx, a, t, [&](T* dy, int64_t n) {
    const int64_t row = first + n, own = a.own_weights ? n * e : 0;
    const T* x = static_cast<const T*>(a.kept) + row * e;
    const OffsetWeight<T> w{static_cast<const T*>(a.w) + own, a.offset};
    if (db) team.each(e, [&](int64_t i) { db[own + i] += to_float(dy[i]); });
    if (!a.mean) {
      if (dw) rms_norm_row_dw(team, dy, x, a.rstd[row], dw + own, e);
      return rms_norm_row_backward(team, dy, x, w, a.rstd[row], dy, e, false);
    }
    if (dw) layer_norm_row_dw(team, dy, x, a.mean[row], a.rstd[row], dw + own, e);
    layer_norm_row_backward(team, dy, x, w, a.mean[row], a.rstd[row], dy, e, false);
  });
}

}  // namespace

void head_norm(Stream& stream, const HeadNormArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    for_blocks(cpu_stream(stream), args.tokens, rows_per_task(row_size(args)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t t = begin; t < end; ++t)
                   args.whole ? norm_whole<T>(args, t) : norm_heads<T>(args, t);
               });
  });
}

void head_norm_backward(Stream& stream, const HeadNormBackwardArgs& args) {
  const int64_t cols = args.own_weights ? row_size(args) : args.head_dim;
  with_float_type(args.dtype, [&]<class T>(T) {
    RowBlocks blocks(cpu_stream(stream), args.tokens, cols, args.dw || args.db ? 2 : 0);
    blocks.run([&](int64_t t, float* sums) {
      float *dw = args.dw ? sums : nullptr, *db = args.db ? sums + cols : nullptr;
      args.whole ? norm_whole_backward<T>(args, t, dw) : norm_heads_backward<T>(args, t, dw, db);
    });
    if (args.dw) blocks.combine(0, args.dw, args.accumulate_dw);
    if (args.db) blocks.combine(1, args.db, args.accumulate_db);
  });
}

void head_sums(Stream& stream, const HeadSumsArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    for_blocks(cpu_stream(stream), args.tokens, rows_per_task(row_size(args)),
               [&](int64_t begin, int64_t end) {
                 Pieces row = whole_row(args.x, args);
                 for (int64_t t = begin; t < end; ++t) {
                   const T* x = static_cast<const T*>(args.x.data) + t * args.x.row_stride;
                   const T* kept = static_cast<const T*>(args.kept);
                   args.out[t] = kept ? pieces_dots(SerialTeam{}, x, kept + t * row_size(args),
                                                    static_cast<const T*>(args.w), row)
                                      : pieces_squares(SerialTeam{}, x, row);
                 }
               });
  });
}

void clamp(Stream& stream, const ClampArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    auto x = static_cast<T*>(args.x);
    const float limit = args.limit;
    static_assert(kElementBlock % 8 == 0);  // blocks do not share bytes of `kept`
    for_blocks(cpu_stream(stream), args.count, kElementBlock, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; args.kept && i < end; i += 8) {
        unsigned bits = 0;
        for (int64_t j = i; j < std::min(end, i + 8); ++j) {
          float v = to_float(x[j]);
          bits |= static_cast<unsigned>(v >= -limit && v <= limit) << (j - i);
        }
        args.kept[i / 8] = static_cast<uint8_t>(bits);
      }
      SerialTeam{}.each(end - begin, [&](int64_t i) {
        float v = to_float(x[begin + i]);
        v = v > limit ? limit : v;
        x[begin + i] = T(v < -limit ? -limit : v);
      });
    });
  });
}

void clamp_backward(Stream& stream, const ClampBackwardArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    auto dx = static_cast<T*>(args.dx);
    for_blocks(cpu_stream(stream), args.count, kElementBlock, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i += 8) {
        const unsigned bits = args.kept[i / 8];
        if (bits == 0xFFu) continue;
        for (int64_t j = i; j < std::min(end, i + 8); ++j)
          if ((bits >> (j - i) & 1u) == 0) dx[j] = T(0.0f);
      }
    });
  });
}

}  // namespace mtrain::cpu::MT_ISA
