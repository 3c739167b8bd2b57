// Values of weights that are stored as codes: rows in any order.
#include "mtrain/cpu/kernels/launch.h"
#include "mtrain/cpu/kernels/vec_types.h"

namespace mtrain::cpu::MT_ISA {

namespace {

#if defined(__AVX2__)

/// The codes of kLanes elements, in words.
MT_HD auto nibbles(const uint8_t* codes) {
  __m128i raw = _mm_setzero_si128();
  std::memcpy(&raw, codes, kLanes / 2);
  const __m128i half = _mm_set1_epi8(15);
  const __m128i high = _mm_and_si128(_mm_srli_epi16(raw, 4), half), low = _mm_and_si128(raw, half);
  const __m128i both = _mm_unpacklo_epi8(high, low);
#if defined(__AVX512F__)
  return _mm512_cvtepu8_epi32(both);
#else
  return _mm256_cvtepu8_epi32(both);
#endif
}

struct Nf4Table {
#if defined(__AVX512F__)
  Vec all = load(kNf4Values.of);
  MT_HD Vec values(__m512i index) const { return _mm512_permutexvar_ps(index, all); }
#else
  Vec low = load(kNf4Values.of), high = load(kNf4Values.of + 8);
  MT_HD Vec values(__m256i index) const {  // bit 3 is moved to the sign, which selects
    const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(index, 28));
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, index),
                            _mm256_permutevar8x32_ps(high, index), upper);
  }
#endif
};

template <class T>
MT_HD void nf4_block(const Nf4Table& table, const uint8_t* codes, float scale, T* w) {
  for (int64_t i = 0; i < kNf4Block; i += kLanes)
    store_as(w + i, table.values(nibbles(codes + i / 2)) * scale);
}

#else

struct Nf4Table {};

template <class T>
MT_HD void nf4_block(const Nf4Table&, const uint8_t* codes, float scale, T* w) {
  float values[kNf4Block];
  for (int64_t i = 0; i < kNf4Block / 2; ++i) {
    values[2 * i] = kNf4Values.of[codes[i] >> 4];
    values[2 * i + 1] = kNf4Values.of[codes[i] & 15];
  }
  for (int64_t i = 0; i < kNf4Block; i += kLanes) store_as(w + i, load(values + i) * scale);
}

#endif

typedef uint8_t ByteVec __attribute__((vector_size(kLanes)));
typedef int8_t SignedByteVec __attribute__((vector_size(kLanes)));

/// fp8_value() and int8_value() of kLanes codes.
MT_HD Vec fp8_values(ByteVec codes, float scale) {
  const UintVec code = __builtin_convertvector(codes, UintVec), m = code & 0x7F;
  const Vec tiny = __builtin_convertvector(bits_as<IntVec>(m), Vec) * 0x1p-9f;
  UintVec bits = m >= 8 ? (m + (120u << 3)) << 20 : bits_as<UintVec>(tiny);
  bits = m == 0x7F ? UintVec{} + 0x7FC00000u : bits;
  return bits_as<Vec>(bits | (code & 0x80) << 24) * scale;
}
MT_HD Vec int8_values(ByteVec codes, float scale) {
  return __builtin_convertvector(bits_as<SignedByteVec>(codes), Vec) * scale *
         7.874015718698502e-3f;
}

/// `vector` and `one` decode kLanes codes, and one.
template <class T, class Many, class One>
MT_HD void decode_bytes(const uint8_t* codes, int64_t cols, T* w, Many&& vector, One&& one) {
  int64_t i = 0;
  for (; i + kLanes <= cols; i += kLanes) {
    ByteVec some;
    std::memcpy(&some, codes + i, sizeof some);
    store_as(w + i, vector(some));
  }
  for (; i < cols; ++i) w[i] = T(one(codes[i]));
}

float block_scale(const DecodeWeightArgs& a, int64_t row, int64_t block) {
  const int64_t at = row * (a.cols / kNf4Block) + block;
  if (a.scales) return a.scales[at];
  const float* group = a.groups + 2 * ((a.first_block[row] + block) / kScaleGroup);
  return decoded_scale(kScaleCodeValues, a.scale_codes[at], group[0], group[1]);
}

template <class T>
void decode_row(const DecodeWeightArgs& a, int64_t row) {
  const int64_t cols = a.cols;
  const uint8_t* codes = a.codes + row * code_bytes(a.format, cols);
  T* w = static_cast<T*>(a.w) + row * cols;
  switch (a.format) {
    case WeightFormat::nf4: {
      const Nf4Table table;
      for (int64_t b = 0; b < cols / kNf4Block; ++b)
        nf4_block(table, codes + b * kNf4Block / 2, block_scale(a, row, b), w + b * kNf4Block);
      return;
    }
    case WeightFormat::int8: {
      const float scale = a.scales[row];
      return decode_bytes(
          codes, cols, w, [=](ByteVec c) { return int8_values(c, scale); },
          [=](uint8_t c) { return int8_value(c, scale); });
    }
    case WeightFormat::fp8: {
      const float scale = a.scales[row];
      return decode_bytes(
          codes, cols, w, [=](ByteVec c) { return fp8_values(c, scale); },
          [=](uint8_t c) { return fp8_value(c, scale); });
    }
  }
}

}  // namespace

void decode_weight(Stream& stream, const DecodeWeightArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    for_blocks(cpu_stream(stream), args.rows, rows_per_task(args.cols),
               [&](int64_t begin, int64_t end) {
                 for (int64_t row = begin; row < end; ++row) decode_row<T>(args, row);
               });
  });
}

}  // namespace mtrain::cpu::MT_ISA
