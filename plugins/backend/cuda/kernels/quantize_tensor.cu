// FP8 codes with one scale for the whole tensor, only in the layout that quantized_gemm reads: what
// every product of a training step on the device's unit needs. Each element is read once and its
// code is written once, both in units of 16 bytes. Bit-identical to the general kernel
// (quantize.cu) and to the CPU.
#include "mtrain/kernel/quantize_patch.h"
#include "pack.cuh"
#include "quantize_tensor.cuh"

namespace mtrain::cuda {

namespace {

/// Eight elements, of which only 16 bytes are aligned.
template <class T>
__device__ Pack<T, 8> load_eight(const T* from) {
  if constexpr (sizeof(T) == 2) {
    return load<8>(from);
  } else {
    Pack<T, 8> out;
    Pack<T, 4> half[2] = {load<4>(from), load<4>(from + 4)};
#pragma unroll
    for (int i = 0; i < 8; ++i) out.item[i] = half[i / 4].item[i % 4];
    return out;
  }
}

template <class Format>
__device__ uint32_t code_of(float x) {
  return encode_format<Format>(round_to_format<Format>(x));
}

/// The codes of two finite numbers, `low` in the low byte.
template <class Format>
__device__ uint32_t finite_pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint16_t out;
  if constexpr (Format::kFraction == 3)
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(out) : "f"(high), "f"(low));
  else
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(out) : "f"(high), "f"(low));
  return out;
#else
  return code_of<Format>(low) | code_of<Format>(high) << 8;
#endif
}

/// The codes of four numbers, the first in the low byte. The hardware's conversion has another
/// result for what is not finite.
template <class Format>
__device__ uint32_t four_codes(float a, float b, float c, float d) {
  unsigned top =
      max(max(magnitude_bits(a), magnitude_bits(b)), max(magnitude_bits(c), magnitude_bits(d)));
  if (top < 0x7F800000u) return finite_pair<Format>(a, b) | finite_pair<Format>(c, d) << 16;
  return code_of<Format>(a) | code_of<Format>(b) << 8 | code_of<Format>(c) << 16 |
         code_of<Format>(d) << 24;
}

template <class Format>
__device__ float encode_factor(const QuantizeArgs& a) {
  QuantScaling all = whole_scaling<Format>(a);
  if (a.factor && blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *a.factor = all.decode;
  return all.encode;
}

/// Codes in the order of the matrix. `packs`: of 16 elements.
template <class Format, class T>
__global__ void __launch_bounds__(kElementThreads) codes_in_order(QuantizeArgs a, int64_t packs) {
  float encode = encode_factor<Format>(a);
  auto x = static_cast<const T*>(a.x);
  auto* out = reinterpret_cast<uint4*>(a.packed);
  int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t p = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; p < packs;
       p += step) {
    Pack<T, 8> half[2] = {load_eight(x + p * 16), load_eight(x + p * 16 + 8)};
    uint32_t word[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const T* v = half[w / 2].item + w % 2 * 4;
      word[w] = four_codes<Format>(to_float(v[0]) * encode, to_float(v[1]) * encode,
                                   to_float(v[2]) * encode, to_float(v[3]) * encode);
    }
    out[p] = make_uint4(word[0], word[1], word[2], word[3]);
  }
}

constexpr int kTileRows = 128, kTileCols = 64, kTileThreads = 256;

/// Codes of the transposed matrix: a block reads a tile of 128 rows and 64 columns and writes 64
/// lines of 128 bytes. A thread converts 4 rows of 8 columns, so that four codes of a column are
/// one word of a line. Rows beyond the matrix are the padding of lines, and are 0.
template <class Format, class T>
__global__ void __launch_bounds__(kTileThreads)
    codes_transposed(QuantizeArgs a, int64_t line_bytes) {
  __shared__ uint32_t tile[kTileCols][kTileRows / 4 + 1];
  float encode = encode_factor<Format>(a);
  int thread = static_cast<int>(threadIdx.x), column = thread % 8 * 8, four = thread / 8;
  int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTileRows,
          first_col = static_cast<int64_t>(blockIdx.x) * kTileCols;
  int64_t row = first_row + 4 * four, col = first_col + column;
  auto x = static_cast<const T*>(a.x) + row * a.cols + col;
  Pack<T, 8> in[4];
  uint32_t inside = 0;
#pragma unroll
  for (int r = 0; r < 4; ++r)
    if (row + r < a.rows && col < a.cols) {
      in[r] = load_eight(x + r * a.cols);
      inside |= 0xFFu << 8 * r;
    } else {
#pragma unroll
      for (int c = 0; c < 8; ++c) in[r].item[c] = T(0.0f);
    }
#pragma unroll
  for (int c = 0; c < 8; ++c)
    tile[column + c][four] =
        inside &
        four_codes<Format>(to_float(in[0].item[c]) * encode, to_float(in[1].item[c]) * encode,
                           to_float(in[2].item[c]) * encode, to_float(in[3].item[c]) * encode);
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    int unit = half * kTileThreads + thread, line = unit / 8, at = unit % 8;
    if (first_col + line >= a.cols || first_row + 16 * at >= line_bytes) continue;
    const uint32_t* word = tile[line] + 4 * at;
    *reinterpret_cast<uint4*>(a.packed + (first_col + line) * line_bytes + first_row + 16 * at) =
        make_uint4(word[0], word[1], word[2], word[3]);
  }
}

template <class Format, class T>
cudaError_t launch_codes(const Launch& launch, const QuantizeArgs& a) {
  QuantLayout layout = layout_of(a);
  if (!a.contract_rows) {
    int64_t packs = a.rows * a.cols / 16;
    auto blocks = static_cast<unsigned>(std::min<int64_t>(
        ceil_div(packs, kElementThreads), static_cast<int64_t>(launch.processors) * 16));
    codes_in_order<Format, T><<<blocks, kElementThreads, 0, launch.stream>>>(a, packs);
    return cudaGetLastError();
  }
  dim3 grid(static_cast<unsigned>(ceil_div(a.cols, kTileCols)),
            static_cast<unsigned>(ceil_div(layout.line_bytes(), kTileRows)));
  codes_transposed<Format, T><<<grid, kTileThreads, 0, launch.stream>>>(a, layout.line_bytes());
  return cudaGetLastError();
}

}  // namespace

bool takes_tensor_codes(const QuantizeArgs& a) {
  constexpr int64_t kMostTiles = 65535;  // of a grid's second dimension
  return a.scale == QuantScale::tensor && a.format != QuantFormat::e2m1 && a.dtype != DType::u8 &&
         a.packed && !a.values && !a.codes && !a.stochastic && aligned(16, a.x, a.packed) &&
         (a.contract_rows ? a.cols % 8 == 0 && a.rows / kTileRows < kMostTiles : a.cols % 32 == 0);
}

cudaError_t tensor_codes(const Launch& launch, const QuantizeArgs& a) {
  return with_float_type(a.dtype, [&]<class T>(T) {
    return a.format == QuantFormat::e4m3 ? launch_codes<E4M3, T>(launch, a)
                                         : launch_codes<E5M2, T>(launch, a);
  });
}

}  // namespace mtrain::cuda
