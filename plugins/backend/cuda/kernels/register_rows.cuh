// Rows that a warp or a block keeps in registers: every thread loads its elements of a row in packs
// of 16 bytes, the row function of mtrain/kernel reads and writes them there, and the result is
// stored in packs. A vector that all rows share, such as a norm's weight, is loaded once for each
// block. Rows that do not consist of whole packs, or are too long, go the way of rows.cuh.
// Stateless.
#pragma once
#include <algorithm>

#include "rows.cuh"

namespace mtrain::cuda {

/// The place of an element: its index in the row, and the pack and item of the thread's registers.
/// Loops over it are unrolled, so that both are constants.
struct Slot {
  int64_t index;
  int pack, item;
  __device__ __forceinline__ operator int64_t() const { return index; }
};

/// A thread's part of a row. A view: the packs belong to the kernel.
template <class T>
struct RegisterRow {
  using value_type = T;
  Pack<T, kPack<T>>* packs;
  bool present = true;
  __device__ __forceinline__ T& operator[](Slot s) const { return packs[s.pack].item[s.item]; }
  __device__ __forceinline__ explicit operator bool() const { return present; }
};

/// The team of `Base` (WarpTeam, BlockTeam) whose threads have kPacks packs of kN elements of each
/// row.
template <class Base, int kN, int kPacks>
struct RegisterTeam {
  static constexpr bool kSerial = false;
  Base base;
  int lane, lanes;

  template <class F>
  __device__ __forceinline__ void each(int64_t n, F&& f) const {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      int at = (k * lanes + lane) * kN;
      if (at < n)
#pragma unroll
        for (int j = 0; j < kN; ++j) f(Slot{at + j, k, j});
    }
  }
  template <class F>
  __device__ __forceinline__ Pair sum2(int64_t n, F&& f) const {
    Pair mine{0, 0};
    each(n, [&](Slot s) {
      Pair p = f(s);
      mine.first += p.first;
      mine.second += p.second;
    });
    return base.total_of(mine);
  }
  template <class F>
  __device__ __forceinline__ float sum(int64_t n, F&& f) const {
    return sum2(n, [&](Slot s) { return Pair{f(s), 0}; }).first;
  }
  template <class F>
  __device__ __forceinline__ void once(F&& f) const {
    if (lane == 0) f();
  }
};

/// Loads the team's packs of a row; zeros where `from` is null. `wide`: `from` is a multiple of 16
/// bytes.
template <class T, class Team, int kPacks>
__device__ __forceinline__ void load_packs(const Team& team, const T* from, int n, bool wide,
                                           Pack<T, kPack<T>> (&to)[kPacks]) {
  constexpr int kN = kPack<T>;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    int at = (k * team.lanes + team.lane) * kN;
    if (!from || at >= n) {
#pragma unroll
      for (int j = 0; j < kN; ++j) to[k].item[j] = T(0.0f);
    } else if (wide) {
      to[k] = load<kN>(from + at);
    } else {
#pragma unroll
      for (int j = 0; j < kN; ++j) to[k].item[j] = from[at + j];
    }
  }
}

constexpr int kPacksOfThread = 2;   // more would not leave registers for several blocks
constexpr int kLongestTeam = 1024;  // threads

/// Work is that of rows.cuh, with `static constexpr int kVectors`, `const T* vector(int which)`
/// (null: none), and `run(team, row, in[kInputs], out, vectors[kVectors])`, a template over rows:
/// pointers or RegisterRow. The result is in the registers of input kResult.
template <bool kWarpRows, class T, class Work>
__global__ void __launch_bounds__(kWarpRows ? kWarp* kWarpsPerBlock : kLongestTeam)
    register_rows(int64_t rows, int cols, bool wide, Work work) {
  constexpr int kN = kPack<T>, kPacks = kPacksOfThread;
  using Base = std::conditional_t<kWarpRows, WarpTeam, BlockTeam>;
  int lane = static_cast<int>(threadIdx.x), lanes = static_cast<int>(blockDim.x);
  int64_t row = blockIdx.x, step = gridDim.x;
  Base base;
  if constexpr (kWarpRows) {
    row = row * kWarpsPerBlock + lane / kWarp;
    step *= kWarpsPerBlock;
    lane %= kWarp;
    lanes = kWarp;
    base.lane = lane;
  } else {
    __shared__ Pair warps[kWarp + 1];
    base.warps = warps;
  }
  const RegisterTeam<Base, kN, kPacks> team{base, lane, lanes};
  Pack<T, kN> shared[Work::kVectors][kPacks];
  RegisterRow<T> vectors[Work::kVectors];
#pragma unroll
  for (int v = 0; v < Work::kVectors; ++v) {
    load_packs(team, work.vector(v), cols, wide, shared[v]);
    vectors[v] = {shared[v], work.vector(v) != nullptr};
  }
  for (; row < rows; row += step) {
    Pack<T, kN> packs[Work::kInputs][kPacks];
    RegisterRow<T> in[Work::kInputs];
#pragma unroll
    for (int k = 0; k < Work::kInputs; ++k) {
      load_packs(team, work.in(k, row), cols, wide, packs[k]);
      in[k] = {packs[k]};
    }
    work.run(team, row, in, in[Work::kResult], vectors);
    T* out = work.out(row);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      int at = (k * lanes + lane) * kN;
      if (at >= cols) continue;
      if (wide) {
        store(out + at, packs[Work::kResult][k]);
      } else {
#pragma unroll
        for (int j = 0; j < kN; ++j) out[at + j] = packs[Work::kResult][k].item[j];
      }
    }
  }
}

/// The same work for rows.cuh: all rows are pointers.
template <class T, class Work>
struct PointerRows {
  static constexpr int kInputs = Work::kInputs, kResult = Work::kResult;
  Work work;
  __device__ const T* in(int which, int64_t row) const { return work.in(which, row); }
  __device__ T* out(int64_t row) const { return work.out(row); }
  template <class Team>
  __device__ void run(Team team, int64_t row, const T* const (&in)[kInputs], T* out) const {
    const T* vectors[Work::kVectors];
    for (int v = 0; v < Work::kVectors; ++v) vectors[v] = work.vector(v);
    work.run(team, row, in, out, vectors);
  }
};

/// The weight of a norm as a function of the place in the row (mtrain/kernel/norm_weight.h).
template <class Vector>
struct VectorWeight {
  Vector w;
  float offset;
  template <class I>
  __device__ __forceinline__ float operator()(I i) const {
    return w ? to_float(w[i]) + offset : offset;
  }
};

/// `wide`: all rows and vectors start at multiples of 16 bytes.
template <class T, class Work>
cudaError_t each_register_row(const Launch& launch, int64_t rows, int64_t cols, bool wide,
                              const Work& work) {
  constexpr int kN = kPack<T>;
  if (rows <= 0 || cols <= 0) return cudaSuccess;
  int64_t packs = ceil_div(cols, kN);
  if (cols % kN != 0 || packs > int64_t{kPacksOfThread} * kLongestTeam)
    return each_row<T>(launch, rows, cols, wide && cols % kN == 0, PointerRows<T, Work>{work});
  int n = static_cast<int>(cols);
  int64_t warps = ceil_div(packs, kPacksOfThread * kWarp);
  if (warps == 1) {
    auto blocks =
        std::min<int64_t>(ceil_div(rows, kWarpsPerBlock), int64_t{launch.processors} * 32);
    register_rows<true, T>
        <<<static_cast<unsigned>(blocks), kWarp * kWarpsPerBlock, 0, launch.stream>>>(rows, n, wide,
                                                                                      work);
  } else {
    auto blocks = std::min<int64_t>(rows, int64_t{launch.processors} * 16);
    register_rows<false, T>
        <<<static_cast<unsigned>(blocks), static_cast<unsigned>(warps * kWarp), 0, launch.stream>>>(
            rows, n, wide, work);
  }
  return cudaGetLastError();
}

}  // namespace mtrain::cuda
