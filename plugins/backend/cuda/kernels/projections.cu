// Norms of heads in place, sums over heads, and limits of values: what happens between the fused
// projection of attention and its products.
#include <algorithm>

#include "column_sums.cuh"
#include "mtrain/kernel/layer_norm.h"
#include "mtrain/kernel/norm_weight.h"
#include "mtrain/kernel/piece_norm.h"
#include "mtrain/kernel/rms_norm.h"
#include "rows.cuh"

namespace mtrain::cuda {

namespace {

template <class Args>
__host__ __device__ int64_t row_size(const Args& a) {
  return a.groups * a.heads * a.head_dim;
}
template <class Args>
__device__ Pieces whole_row(const HeadsView& view, const Args& a) {
  return {.count = a.groups, .cols = a.heads * a.head_dim, .stride = view.group_stride};
}
/// Where head number `head` of all tokens starts.
template <class T, class Args>
__device__ T* head_at(const HeadsView& view, const Args& a, int64_t head) {
  Split token = split(head, a.groups * a.heads), group = split(token.remainder, a.heads);
  return static_cast<T*>(view.data) + token.quotient * view.row_stride +
         group.quotient * view.group_stride + group.remainder * a.head_dim;
}
/// The offset of its weights.
template <class Args>
__device__ int64_t weights_of(const Args& a, int64_t head) {
  return a.own_weights ? split(head, a.groups * a.heads).remainder * a.head_dim : 0;
}

/// A row is a head.
template <class T>
struct Forward {
  static constexpr int kInputs = 1, kResult = 0;
  HeadNormArgs a;
  __device__ const T* in(int, int64_t row) const { return head_at<T>(a.x, a, row); }
  __device__ T* out(int64_t row) const { return head_at<T>(a.x, a, row); }
  template <class Team>
  __device__ void run(Team team, int64_t row, const T* const (&in)[1], T* out) const {
    int64_t at = weights_of(a, row);
    const OffsetWeight<T> w{static_cast<const T*>(a.w) + at, a.offset};
    if (a.kept) {
      T* kept = static_cast<T*>(a.kept) + row * a.head_dim;
      team.each(a.head_dim, [&](int64_t i) { kept[i] = in[0][i]; });
    }
    if (!a.mean) return rms_norm_row(team, in[0], w, out, a.rstd + row, a.head_dim, a.eps);
    const T* b = a.b ? static_cast<const T*>(a.b) + at : nullptr;
    layer_norm_row(team, in[0], w, b, out, a.mean + row, a.rstd + row, a.head_dim, a.eps);
  }
};

template <class T>
struct Backward {
  static constexpr int kInputs = 2, kResult = 0;
  HeadNormBackwardArgs a;
  __device__ const T* in(int which, int64_t row) const {
    return which == 0 ? head_at<T>(a.dx, a, row) : static_cast<const T*>(a.kept) + row * a.head_dim;
  }
  __device__ T* out(int64_t row) const { return head_at<T>(a.dx, a, row); }
  template <class Team>
  __device__ void run(Team team, int64_t row, const T* const (&in)[2], T* out) const {
    const OffsetWeight<T> w{static_cast<const T*>(a.w) + weights_of(a, row), a.offset};
    if (!a.mean)
      return rms_norm_row_backward(team, in[0], in[1], w, a.rstd[row], out, a.head_dim, false);
    layer_norm_row_backward(team, in[0], in[1], w, a.mean[row], a.rstd[row], out, a.head_dim,
                            false);
  }
};

/// A row is all heads of a token, in device memory.
template <class T>
struct WholeForward {
  static constexpr int kInputs = 1, kResult = 0;
  HeadNormArgs a;
  __device__ const T* in(int, int64_t row) const { return out(row); }
  __device__ T* out(int64_t row) const { return static_cast<T*>(a.x.data) + row * a.x.row_stride; }
  template <class Team>
  __device__ void run(Team team, int64_t row, const T* const (&)[1], T* x) const {
    Pieces pieces = whole_row(a.x, a);
    float squares = a.sums ? a.sums[row] : pieces_squares(team, x, pieces);
    pieces_rms_norm(team, x, a.kept ? static_cast<T*>(a.kept) + row * row_size(a) : nullptr,
                    static_cast<const T*>(a.w), a.rstd + row, squares,
                    a.sums ? a.width : row_size(a), a.eps, pieces);
  }
};

template <class T>
struct WholeBackward {
  static constexpr int kInputs = 1, kResult = 0;
  HeadNormBackwardArgs a;
  __device__ const T* in(int, int64_t row) const { return out(row); }
  __device__ T* out(int64_t row) const {
    return static_cast<T*>(a.dx.data) + row * a.dx.row_stride;
  }
  template <class Team>
  __device__ void run(Team team, int64_t row, const T* const (&)[1], T* dy) const {
    const T *x = static_cast<const T*>(a.kept) + row * row_size(a), *w = static_cast<const T*>(a.w);
    Pieces pieces = whole_row(a.dx, a);
    float dots = a.sums ? a.sums[row] : pieces_dots(team, dy, x, w, pieces);
    pieces_rms_norm_backward(team, dy, x, w, a.rstd[row], dots, a.sums ? a.width : row_size(a),
                             pieces);
  }
};

template <class T>
struct Sums {
  static constexpr int kInputs = 1, kResult = 0;
  HeadSumsArgs a;
  __device__ const T* in(int, int64_t row) const {
    return static_cast<const T*>(a.x.data) + row * a.x.row_stride;
  }
  __device__ T* out(int64_t) const { return nullptr; }
  template <class Team>
  __device__ void run(Team team, int64_t row, const T* const (&in)[1], T*) const {
    Pieces pieces = whole_row(a.x, a);
    float sum = a.kept ? pieces_dots(team, in[0], static_cast<const T*>(a.kept) + row * row_size(a),
                                     static_cast<const T*>(a.w), pieces)
                       : pieces_squares(team, in[0], pieces);
    team.once([&] { a.out[row] = sum; });
  }
};

/// dw and db. A row is a head; with own weights, it is a token, and a column is one of its heads'.
template <class T>
struct WeightGradients {
  static constexpr int kSums = 2;
  HeadNormBackwardArgs a;
  template <int N>
  __device__ void add(int64_t row, int64_t col, float (&sums)[2][N]) const {
    int64_t head = row, at = col;
    if (a.own_weights) {
      Split place = split(col, a.head_dim);
      head = row * a.groups * a.heads + place.quotient, at = place.remainder;
    }
    auto d = load<N>(head_at<T>(a.dx, a, head) + at);
    auto x = load<N>(static_cast<const T*>(a.kept) + head * a.head_dim + at);
    int64_t statistic = a.whole ? row : head;
    float r = a.rstd[statistic], m = a.mean ? a.mean[statistic] : 0.0f;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      float dy = to_float(d.item[j]);
      sums[0][j] += dy * ((to_float(x.item[j]) - m) * r);
      sums[1][j] += dy;
    }
  }
};

template <class T, class Args>
bool whole_packs_of(const Args& a, const HeadsView& view) {
  constexpr int64_t kN = kPack<T>;
  return whole_packs<T>(a.head_dim) && view.row_stride % kN == 0 && view.group_stride % kN == 0 &&
         aligned(16, view.data);
}

/// Eight elements, of which `there` exist, are a byte of `kept`. `whole`: they may be accessed as
/// one pack.
template <class T>
__device__ __forceinline__ Pack<T, 8> load_eight(const T* x, int64_t there, bool whole) {
  if (whole) return load<8>(x);
  Pack<T, 8> pack;
#pragma unroll
  for (int j = 0; j < 8; ++j) pack.item[j] = j < there ? x[j] : T(0.0f);
  return pack;
}
template <class T>
__device__ __forceinline__ void store_eight(T* x, const Pack<T, 8>& pack, int64_t there,
                                            bool whole) {
  if (whole) return store(x, pack);
#pragma unroll
  for (int j = 0; j < 8; ++j)
    if (j < there) x[j] = pack.item[j];
}

template <class T>
struct Clamp {
  T* x;
  uint8_t* kept;
  int64_t count;
  float limit;
  bool aligned;
  template <int N>
  __device__ void at(int64_t byte) const {
    static_assert(N == 1);
    int64_t i = byte * 8, there = count - i;
    bool whole = aligned && there >= 8;
    auto pack = load_eight(x + i, there, whole);
    unsigned bits = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float v = to_float(pack.item[j]);
      bits |= static_cast<unsigned>(v >= -limit && v <= limit) << j;
      v = v > limit ? limit : v;
      pack.item[j] = T(v < -limit ? -limit : v);
    }
    store_eight(x + i, pack, there, whole);
    if (kept) kept[byte] = static_cast<uint8_t>(bits);
  }
};
template <class T>
struct ClampGradient {
  T* dx;
  const uint8_t* kept;
  int64_t count;
  template <int N>
  __device__ void at(int64_t byte) const {
    unsigned bits = kept[byte];
    if (bits == 0xFFu) return;
    for (int j = 0; j < 8; ++j)
      if (byte * 8 + j < count && (bits >> j & 1u) == 0) dx[byte * 8 + j] = T(0.0f);
  }
};

}  // namespace

cudaError_t head_norm(const Launch& launch, const HeadNormArgs& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    if (a.whole) return each_row<T>(launch, a.tokens, row_size(a), false, WholeForward<T>{a});
    return each_row<T>(launch, a.tokens * a.groups * a.heads, a.head_dim, whole_packs_of<T>(a, a.x),
                       Forward<T>{a});
  });
}

cudaError_t head_norm_backward(const Launch& launch, const HeadNormBackwardArgs& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    bool vector = whole_packs_of<T>(a, a.dx) && aligned(16, a.kept);
    int64_t heads = a.tokens * a.groups * a.heads;
    if (a.dw || a.db) {  // before dx overwrites dy
      ColumnResult results[2] = {{a.dw, a.accumulate_dw}, {a.db, a.accumulate_db}};
      if (cudaError_t status = column_sums<T>(launch, a.own_weights ? a.tokens : heads,
                                              a.own_weights ? row_size(a) : a.head_dim, vector,
                                              WeightGradients<T>{a}, results))
        return status;
    }
    if (a.whole) return each_row<T>(launch, a.tokens, row_size(a), false, WholeBackward<T>{a});
    return each_row<T>(launch, heads, a.head_dim, vector, Backward<T>{a});
  });
}

cudaError_t head_sums(const Launch& launch, const HeadSumsArgs& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    return each_row<T>(launch, a.tokens, row_size(a), false, Sums<T>{a});
  });
}

cudaError_t clamp(const Launch& launch, const ClampArgs& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    return each_element<1>(
        launch, ceil_div(a.count, 8), false,
        Clamp<T>{static_cast<T*>(a.x), a.kept, a.count, a.limit, aligned(8 * sizeof(T), a.x)});
  });
}

cudaError_t clamp_backward(const Launch& launch, const ClampBackwardArgs& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    return each_element<1>(launch, ceil_div(a.count, 8), false,
                           ClampGradient<T>{static_cast<T*>(a.dx), a.kept, a.count});
  });
}

}  // namespace mtrain::cuda
