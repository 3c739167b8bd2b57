// Quantizes a matrix to a low-precision type, one patch of 128 x 128 elements at a time. A tile is
// a block of elements that share a scale; patch_takes() says which tiles lie within one patch. On a
// GPU a thread block processes a patch; the same code compiled for the CPU is the reference in
// tests of the CPU's vector code. A member of the team reads what other members wrote only after
// the each() in which they wrote it. For one team; patches are independent of each other.
#pragma once
#include <array>
#include <type_traits>

#include "mtrain/base/dtype.h"
#include "mtrain/base/rng.h"
#include "mtrain/kernel/quant_layout.h"
#include "mtrain/kernel/quantize.h"
#include "mtrain/kernel/team.h"

namespace mtrain {

constexpr int64_t kPatch = 128;    // rows and columns of a patch
constexpr int64_t kPatchRun = 16;  // a run: consecutive elements whose maximum one member computes
constexpr int64_t kPatchCodeStride = kPatch + 4;

/// Memory that a team shares while it processes a patch.
template <class T>
struct PatchMemory {
  T x[kPatch * kPatch];
  uint32_t top[kPatch * kPatch / kPatchRun];
  float encode[kPatch * kPatch / kPatchRun], decode[kPatch * kPatch / kPatchRun];
  uint8_t codes[kPatch * kPatchCodeStride];  // in the lines of the layout
};

MT_HD bool divides_patch(int64_t side) { return side >= 1 && side <= kPatch && kPatch % side == 0; }
/// Whether tiles of this size fit into patches: both sides divide 128, and each tile consists of
/// whole runs of 16 elements along one dimension.
MT_HD bool patch_takes(QuantScale scale, int64_t tile_rows, int64_t tile_cols) {
  if (scale == QuantScale::tensor) return true;
  return divides_patch(tile_rows) && divides_patch(tile_cols) &&
         (tile_cols % kPatchRun == 0 || (tile_cols == 1 && tile_rows % kPatchRun == 0));
}

/// The bits of |x|. They sort like the magnitudes, with infinity and NaN last.
MT_HD uint32_t magnitude_bits(float x) { return detail::bits_of(x) & 0x7FFFFFFFu; }

/// The value of an element; where x holds codes already (u8), the decoded value.
template <class Format, class T>
MT_HD float element_of(T x) {
  if constexpr (std::is_same_v<T, uint8_t>)
    return decode_format<Format>(x);
  else
    return to_float(x);
}

template <class Format>
MT_HD QuantScaling tile_scaling(QuantScale scale, float amax, float global) {
  return scale == QuantScale::power_of_two ? power_of_two_scaling(amax, Format::kMax)
         : scale == QuantScale::e8m0       ? e8m0_scaling(amax, Format::kMax)
                                           : nvfp4_scaling(amax, global);
}

/// log2 of a power of two from 1 to 128, so that divisions by tile sides become shifts.
MT_HD int shift_of(int64_t side) {
  int shift = 0;
  while ((int64_t{1} << shift) < side) ++shift;
  return shift;
}

/// Args: QuantizeArgs (mtrain/tensor/kernel_table.h). (first_row, first_col) is the patch's first
/// element; `whole` is the scaling of the whole tensor; {1, 1} if only tiles have scales.
template <class Format, class T, class Team, class Args>
class QuantizePatch {
 public:
  MT_HD QuantizePatch(Team members, const Args& args, const QuantLayout& where, QuantScaling whole,
                      int64_t first_row, int64_t first_col, PatchMemory<T>& memory)
      : team_(members),
        a_(args),
        layout_(where),
        all_(whole),
        row_(first_row),
        col_(first_col),
        m_(memory) {
    if (args.scale == QuantScale::tensor) return;
    down_ = shift_of(args.tile_rows), across_ = shift_of(args.tile_cols),
    group_ = shift_of(where.group);
  }

  MT_HD void run() const {
    load();
    if (a_.scale != QuantScale::tensor) {
      measure();
      scale_tiles();
      if (a_.packed_scales) pack_scales();
    }
    round();
    if (a_.packed) pack_codes();
  }

 private:
  static constexpr int kSide = 7;  // log2 of the side of a patch
  static constexpr int64_t kLast = kPatch - 1;
  MT_HD bool by_columns() const { return across_ == 0; }
  MT_HD void load() const {
    team_.each(kPatch * kPatch, [&](int64_t i) {
      int64_t r = row_ + (i >> kSide), c = col_ + (i & kLast);
      m_.x[i] = r < a_.rows && c < a_.cols ? static_cast<const T*>(a_.x)[r * a_.cols + c] : T(0.0f);
    });
  }

  /// top[…] = the largest magnitude of each run of 16, then of each tile, stored at its first run.
  /// Runs are numbered row by row.
  MT_HD void measure() const {
    int per_row = by_columns() ? kSide : 3;  // log2 of the number of runs per row
    int64_t step = by_columns() ? kPatch : 1;
    team_.each(kPatch * kPatch / kPatchRun, [&](int64_t i) {
      const T* x = by_columns() ? m_.x + (i >> kSide) * kPatchRun * kPatch + (i & kLast)
                                : m_.x + i * kPatchRun;
      uint32_t top = 0;
      for (int64_t k = 0; k < kPatchRun; ++k) {
        uint32_t bits = magnitude_bits(element_of<Format>(x[k * step]));
        top = top < bits ? bits : top;
      }
      m_.top[i] = top;
    });
    fold(0, per_row, by_columns() ? 1 : a_.tile_cols / kPatchRun);
    fold(per_row, 10 - per_row, by_columns() ? a_.tile_rows / kPatchRun : a_.tile_rows);
  }
  /// Reduces 2^count runs, which are 2^stride apart, in groups of `together` neighbours to their
  /// maximum.
  MT_HD void fold(int stride, int count, int64_t together) const {
    static_assert(kPatch * kPatch / kPatchRun == 1 << 10, "runs of a patch");
    for (int64_t half = 1; half < together; half *= 2)
      team_.each(kPatch * kPatch / kPatchRun, [&](int64_t i) {
        int64_t at = i >> stride & ((1 << count) - 1);
        if ((at & (2 * half - 1)) != 0) return;
        uint32_t other = m_.top[i + (half << stride)];
        m_.top[i] = m_.top[i] < other ? other : m_.top[i];
      });
  }

  MT_HD void scale_tiles() const {
    int64_t all_across = (a_.cols + a_.tile_cols - 1) >> across_,
            runs_across = by_columns() ? kPatch : kPatch / kPatchRun;
    int per_row = kSide - across_;  // log2 of the number of tiles per row
    team_.each(kPatch >> down_ << per_row, [&](int64_t i) {
      int64_t r = i >> per_row << down_, c = (i & ((1 << per_row) - 1)) << across_;
      int64_t run =
          by_columns() ? r / kPatchRun * runs_across + c : r * runs_across + c / kPatchRun;
      QuantScaling s = tile_scaling<Format>(a_.scale, detail::float_of(m_.top[run]), all_.encode);
      m_.encode[i] = s.encode;
      m_.decode[i] = s.decode;
      if (a_.scales && row_ + r < a_.rows && col_ + c < a_.cols)
        a_.scales[((row_ + r) >> down_) * all_across + ((col_ + c) >> across_)] = s.decode;
    });
  }

  MT_HD int64_t tile_of(int64_t r, int64_t c) const {
    return (r >> down_ << (kSide - across_)) + (c >> across_);
  }

  /// Also writes the padding of the layout beyond the matrix.
  MT_HD void pack_scales() const {
    int64_t first_line = a_.contract_rows ? col_ : row_,
            first_group = (a_.contract_rows ? row_ : col_) >> group_;
    int per_line = kSide - group_;
    bool bytes = a_.scale != QuantScale::power_of_two;
    team_.each(kPatch << per_line, [&](int64_t i) {
      int64_t l = i >> per_line, g = i & ((1 << per_line) - 1), line = first_line + l,
              at = first_group + g;
      if (at >= (bytes ? layout_.padded_groups() : layout_.groups())) return;
      if (!bytes && (line >= layout_.lines || (layout_.square() && l > 0))) return;
      float decode =
          m_.decode[a_.contract_rows ? tile_of(g << group_, l) : tile_of(l, g << group_)];
      put_scale(layout_, a_.packed_scales, layout_.scale_index(line, at), decode);
      if (!bytes && layout_.square() && at == layout_.groups() - 1)
        for (int64_t rest = at + 1; rest < layout_.padded_groups(); ++rest)
          put_scale(layout_, a_.packed_scales, layout_.scale_index(line, rest), 0);
    });
  }

  MT_HD void round() const {
    RngStream rng(a_.seed, a_.name_key, a_.step);
    bool whole = a_.scale == QuantScale::tensor;
    team_.each(kPatch * kPatch, [&](int64_t i) {
      int64_t r = i >> kSide, c = i & kLast, tile = whole ? 0 : tile_of(r, c);
      bool inside = row_ + r < a_.rows && col_ + c < a_.cols;
      float scaled = element_of<Format>(m_.x[i]) * (whole ? all_.encode : m_.encode[tile]);
      float rounded = a_.stochastic ? drawn(rng, scaled, r, c) : round_to_format<Format>(scaled);
      uint8_t code = inside ? encode_format<Format>(rounded) : uint8_t{0};
      m_.codes[a_.contract_rows ? c * kPatchCodeStride + r : r * kPatchCodeStride + c] = code;
      if (!inside) return;
      int64_t at = (row_ + r) * a_.cols + col_ + c;
      if (a_.values) a_.values[at] = bf16(rounded * (whole ? 1.0f : m_.decode[tile]));
      if (a_.codes) a_.codes[at] = code;
    });
  }

  /// Stochastic rounding, with random bits that depend only on the element's position in the
  /// matrix.
  MT_HD float drawn(const RngStream& rng, float scaled, int64_t r, int64_t c) const {
    auto element =
        static_cast<uint64_t>((a_.first_row + row_ + r) * a_.all_cols + a_.first_col + col_ + c);
    std::array<uint32_t, 4> words = rng.words(element / 4);
    uint64_t k = element % 4;  // comparisons instead of an index keep the words in registers
    uint32_t word = k == 0 ? words[0] : k == 1 ? words[1] : k == 2 ? words[2] : words[3];
    return round_to_format_stochastic<Format>(scaled, static_cast<float>(word >> 8) * 0x1p-24f);
  }

  MT_HD void pack_codes() const {
    int64_t first_line = a_.contract_rows ? col_ : row_, first = a_.contract_rows ? row_ : col_;
    constexpr bool kHalves = Format::kBits == 4;
    constexpr int64_t kBytes = kHalves ? kPatch / 2 : kPatch;
    int64_t line_bytes = layout_.line_bytes();
    team_.each(kPatch * kBytes, [&](int64_t i) {
      int64_t l = i / kBytes, b = i % kBytes, at = (kHalves ? first / 2 : first) + b;
      if (first_line + l >= layout_.lines || at >= line_bytes) return;
      const uint8_t* line = m_.codes + l * kPatchCodeStride;
      a_.packed[(first_line + l) * line_bytes + at] =
          kHalves ? static_cast<uint8_t>(line[2 * b] | line[2 * b + 1] << 4) : line[b];
    });
  }

  Team team_;
  const Args& a_;
  const QuantLayout& layout_;
  QuantScaling all_;
  int64_t row_, col_;
  PatchMemory<T>& m_;
  int down_ = 0, across_ = 0, group_ = 0;  // log2 of the tile's height and width, and of the group
};

/// The scaling of the whole tensor, which all patches of a matrix share.
template <class Format, class Args>
MT_HD QuantScaling whole_scaling(const Args& a) {
  if (a.dtype == DType::u8) return {1.0f, 1.0f};
  if (a.scale == QuantScale::tensor) return tensor_scaling(*a.amax, Format::kMax, a.headroom);
  return a.scale == QuantScale::nvfp4 ? nvfp4_global(*a.amax) : QuantScaling{1.0f, 1.0f};
}

/// The Walsh-Hadamard transform of 16 values, in float; see HadamardArgs
/// (mtrain/tensor/kernel_table.h).
MT_HD void hadamard16(float (&v)[16]) {
  for (int half = 1; half < 16; half *= 2)
    for (int r = 0; r < 16; ++r) {
      if (r & half) continue;
      float a = v[r], b = v[r + half];
      v[r] = a + b;
      v[r + half] = a - b;
    }
}

}  // namespace mtrain
