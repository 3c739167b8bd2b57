// Quantizes matrices to low-precision types. The work is divided into bands of as many rows as a
// tile has. Within a band an array holds the scale of every column, so that one vectorized loop
// serves all tile shapes.
#include <array>
#include <cstring>

#include "mtrain/base/error.h"
#include "mtrain/base/rng.h"
#include "mtrain/cpu/kernels/launch.h"
#include "mtrain/kernel/quantize_patch.h"

namespace mtrain::cpu::MT_ISA {
namespace {

constexpr int64_t kHadamardRows = 16;

template <class T>
uint32_t largest_magnitude(const T* x, int64_t n) {
  constexpr int64_t kLanesHere = 64;
  uint32_t lane[kLanesHere] = {}, top = 0;
  int64_t i = 0;
  for (; i + kLanesHere <= n; i += kLanesHere)
    for (int64_t j = 0; j < kLanesHere; ++j)
      lane[j] = std::max(lane[j], magnitude_bits(to_float(x[i + j])));
  for (; i < n; ++i) top = std::max(top, magnitude_bits(to_float(x[i])));
  for (uint32_t l : lane) top = std::max(top, l);
  return top;
}

template <class Format, class T>
class Quantizer {
 public:
  Quantizer(CpuStream& stream, const QuantizeArgs& a)
      : stream_(stream), a_(a), x_(static_cast<const T*>(a.x)), rng_(a.seed, a.name_key, a.step) {}

  void run() {
    if (a_.packed) return patches();
    if constexpr (std::is_same_v<T, uint8_t>)
      carry();
    else
      round_all();
  }

 private:
  void round_all() {
    if (a_.scale == QuantScale::nvfp4) global_ = nvfp4_global(*a_.amax);
    if (a_.scale == QuantScale::tensor) return whole();
    if (a_.factor) *a_.factor = a_.scale == QuantScale::nvfp4 ? global_.decode : 1.0f;
    tiles();
  }

  /// x holds codes already: they are copied unchanged.
  void carry() {
    std::array<bf16, 256> value_of;
    for (size_t code = 0; code < value_of.size(); ++code)
      value_of[code] = bf16(decode_format<Format>(static_cast<uint8_t>(code)));
    for_blocks(stream_, a_.rows, rows_per_task(a_.cols), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * a_.cols; i < end * a_.cols; ++i) {
        if (a_.values) a_.values[i] = value_of[x_[i]];
        if (a_.codes) a_.codes[i] = x_[i];
      }
    });
  }

  /// With a hardware layout: the same code as on a GPU, patch by patch.
  void patches() {
    if (!patch_takes(a_.scale, a_.tile_rows, a_.tile_cols))
      throw_no_patch(a_.tile_rows, a_.tile_cols);
    QuantScaling all = whole_scaling<Format>(a_);
    if (a_.factor) *a_.factor = all.decode;
    QuantLayout layout = layout_of(a_);
    int64_t down = (a_.rows + kPatch - 1) / kPatch, across = (a_.cols + kPatch - 1) / kPatch;
    size_t bytes = (sizeof(PatchMemory<T>) + 63) / 64 * 64;
    std::byte* memory = stream_.scratch(bytes * static_cast<size_t>(stream_.threads()));
    for_uneven_tasks(stream_, down * across, [&](int64_t task, int thread) {
      auto& mine = *reinterpret_cast<PatchMemory<T>*>(memory + static_cast<size_t>(thread) * bytes);
      QuantizePatch<Format, T, SerialTeam, QuantizeArgs>{
          {}, a_, layout, all, task / across * kPatch, task % across * kPatch, mine}
          .run();
    });
  }

  void whole() {
    QuantScaling s = tensor_scaling(*a_.amax, Format::kMax, a_.headroom);
    if (a_.factor) *a_.factor = s.decode;
    for_blocks(stream_, a_.rows, rows_per_task(a_.cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        round_row(
            r, [e = s.encode](int64_t) { return e; }, [](int64_t) { return 1.0f; });
    });
  }

  void tiles() {
    int64_t bands = (a_.rows + a_.tile_rows - 1) / a_.tile_rows,
            per_task = std::max<int64_t>(1, rows_per_task(a_.cols) / a_.tile_rows);
    int64_t stride = (a_.cols + 15) / 16 * 16;
    auto scratch = reinterpret_cast<uint32_t*>(
        stream_.scratch(sizeof(uint32_t) * static_cast<size_t>(3 * stride * stream_.threads())));
    for_uneven_tasks(stream_, (bands + per_task - 1) / per_task, [&](int64_t task, int thread) {
      uint32_t* top = scratch + thread * 3 * stride;
      auto encode = reinterpret_cast<float*>(top + stride), decode = encode + stride;
      for (int64_t band = task * per_task; band < std::min(bands, (task + 1) * per_task); ++band) {
        int64_t begin = band * a_.tile_rows, end = std::min(a_.rows, begin + a_.tile_rows);
        measure(begin, end, top);
        scale_columns(band, top, encode, decode);
        for (int64_t r = begin; r < end; ++r)
          round_row(
              r, [=](int64_t c) { return encode[c]; }, [=](int64_t c) { return decode[c]; });
      }
    });
  }

  /// The largest magnitude in every column of a band.
  void measure(int64_t begin, int64_t end, uint32_t* top) const {
    std::memset(top, 0, sizeof(uint32_t) * static_cast<size_t>(a_.cols));
    for (int64_t r = begin; r < end; ++r) {
      const T* row = x_ + r * a_.cols;
      SerialTeam{}.each(
          a_.cols, [&](int64_t c) { top[c] = std::max(top[c], magnitude_bits(to_float(row[c]))); });
    }
  }

  void scale_columns(int64_t band, const uint32_t* top, float* encode, float* decode) const {
    int64_t tiles = (a_.cols + a_.tile_cols - 1) / a_.tile_cols;
    for (int64_t t = 0; t < tiles; ++t) {
      int64_t begin = t * a_.tile_cols, end = std::min(a_.cols, begin + a_.tile_cols);
      uint32_t most = 0;
      for (int64_t c = begin; c < end; ++c) most = most < top[c] ? top[c] : most;
      QuantScaling s = tile_scaling<Format>(a_.scale, detail::float_of(most), global_.encode);
      for (int64_t c = begin; c < end; ++c) encode[c] = s.encode;
      for (int64_t c = begin; c < end; ++c) decode[c] = s.decode;
      if (a_.scales) a_.scales[band * tiles + t] = s.decode;
    }
  }

  template <class Encode, class Decode>
  void round_row(int64_t r, Encode encode, Decode decode) const {
    const T* x = x_ + r * a_.cols;
    if (a_.stochastic) return draw_row(r, encode, decode);
    put(
        r, [&](int64_t c) { return round_to_format<Format>(to_float(x[c]) * encode(c)); }, decode);
  }

  template <class Rounded, class Decode>
  void put(int64_t r, Rounded rounded, Decode decode) const {
    if (a_.values) {
      bf16* values = a_.values + r * a_.cols;
      SerialTeam{}.each(a_.cols, [&](int64_t c) { values[c] = bf16(rounded(c) * decode(c)); });
    }
    if (a_.codes) {
      uint8_t* codes = a_.codes + r * a_.cols;
      for (int64_t c = 0; c < a_.cols; ++c) codes[c] = encode_format<Format>(rounded(c));
    }
  }

  /// Stochastic rounding with 24 random bits per element; four elements share a call of Philox.
  template <class Encode, class Decode>
  void draw_row(int64_t r, Encode encode, Decode decode) const {
    const T* x = x_ + r * a_.cols;
    auto element = static_cast<uint64_t>((a_.first_row + r) * a_.all_cols + a_.first_col);
    std::array<uint32_t, 4> words{};
    for (int64_t c = 0; c < a_.cols; ++c, ++element) {
      if (c == 0 || element % 4 == 0) words = rng_.words(element / 4);
      float u = static_cast<float>(words[element % 4] >> 8) * 0x1p-24f;
      float rounded = round_to_format_stochastic<Format>(to_float(x[c]) * encode(c), u);
      if (a_.values) a_.values[r * a_.cols + c] = bf16(rounded * decode(c));
      if (a_.codes) a_.codes[r * a_.cols + c] = encode_format<Format>(rounded);
    }
  }

  CpuStream& stream_;
  const QuantizeArgs& a_;
  const T* x_;
  RngStream rng_;
  QuantScaling global_{1, 1};
};

}  // namespace

void amax(Stream& stream, const AmaxArgs& args) {
  auto& cpu = cpu_stream(stream);
  int64_t blocks = (args.count + kElementBlock - 1) / kElementBlock;
  auto partial = reinterpret_cast<uint32_t*>(
      cpu.scratch(sizeof(uint32_t) * static_cast<size_t>(std::max<int64_t>(1, blocks))));
  with_float_type(args.dtype, [&]<class T>(T) {
    auto x = static_cast<const T*>(args.x);
    for_blocks(cpu, args.count, kElementBlock, [=](int64_t begin, int64_t end) {
      partial[begin / kElementBlock] = largest_magnitude(x + begin, end - begin);
    });
  });
  uint32_t top = args.accumulate ? magnitude_bits(*args.amax) : 0;
  for (int64_t b = 0; b < blocks; ++b) top = std::max(top, partial[b]);
  *args.amax = detail::float_of(top);
}

void quantize(Stream& stream, const QuantizeArgs& args) {
  if (args.dtype == DType::u8) {  // FP8 codes
    if (args.format == QuantFormat::e4m3)
      return Quantizer<E4M3, uint8_t>(cpu_stream(stream), args).run();
    return Quantizer<E5M2, uint8_t>(cpu_stream(stream), args).run();
  }
  with_float_type(args.dtype, [&]<class T>(T) {
    switch (args.format) {
      case QuantFormat::e4m3:
        return Quantizer<E4M3, T>(cpu_stream(stream), args).run();
      case QuantFormat::e5m2:
        return Quantizer<E5M2, T>(cpu_stream(stream), args).run();
      case QuantFormat::e2m1:
        return Quantizer<E2M1, T>(cpu_stream(stream), args).run();
    }
  });
}

void hadamard(Stream& stream, const HadamardArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    auto x = static_cast<const T*>(args.x);
    auto y = static_cast<T*>(args.y);
    constexpr int64_t kCols = 64;  // elements of a task's piece, which stays in registers and L1
    int64_t bands = (args.rows + kHadamardRows - 1) / kHadamardRows;
    for_tasks(cpu_stream(stream), bands, [&](int64_t band) {
      for (int64_t first = 0; first < args.cols; first += kCols) {
        int64_t cols = std::min(kCols, args.cols - first);
        float v[kHadamardRows][kCols] = {};
        for (int64_t r = 0; r < std::min(kHadamardRows, args.rows - band * kHadamardRows); ++r) {
          const T* row = x + (band * kHadamardRows + r) * args.cols + first;
          float sign = args.signs >> r & 1 ? -0.25f : 0.25f;
          SerialTeam{}.each(cols, [&](int64_t c) { v[r][c] = sign * to_float(row[c]); });
        }
        for (int64_t half = 1; half < kHadamardRows; half *= 2)
          for (int64_t r = 0; r < kHadamardRows; ++r) {
            if (r & half) continue;
            SerialTeam{}.each(cols, [&](int64_t c) {
              float a = v[r][c], b = v[r + half][c];
              v[r][c] = a + b;
              v[r + half][c] = a - b;
            });
          }
        for (int64_t r = 0; r < kHadamardRows; ++r) {
          T* row = y + (band * kHadamardRows + r) * args.cols + first;
          SerialTeam{}.each(cols, [&](int64_t c) { row[c] = T(v[r][c]); });
        }
      }
    });
  });
}

}  // namespace mtrain::cpu::MT_ISA
