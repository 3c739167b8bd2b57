// Element types of tensors and files. Stateless; thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "mtrain/base/export.h"
#include "mtrain/base/float16.h"

namespace mtrain {

enum class DType : uint8_t { f32, bf16, f16, f64, i64, i32, i16, i8, u16, u8 };

/// Bytes of one element.
MT_API size_t size_of(DType dtype);
/// The name in recipes and messages: "fp32", "bf16", "fp16", "fp64", "int64" …
MT_API const char* name(DType dtype);
/// The inverse of name(); nothing for an unknown name.
MT_API std::optional<DType> dtype_from_name(std::string_view name);
MT_API bool is_floating(DType dtype);

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<f16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<int16_t> {
  static constexpr DType value = DType::i16;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr DType value = DType::i8;
};
template <>
struct DTypeOf<uint16_t> {
  static constexpr DType value = DType::u16;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::u8;
};

}  // namespace mtrain
