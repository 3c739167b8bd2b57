#include "mtrain/train/file_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "mtrain/base/error.h"
#include "mtrain/base/float16.h"

namespace mtrain {
namespace {

/// Rounds values to T. A value that T cannot represent is only looked for if there is one, so that
/// the first loop is vectorized.
template <class T>
void pack(std::span<const float> values, int64_t begin, const std::string& tensor,
          std::vector<std::byte>& out) {
  out.resize(values.size() * sizeof(T));
  auto* to = reinterpret_cast<T*>(out.data());
  unsigned lost = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    to[i] = static_cast<T>(values[i]);
    lost |= static_cast<unsigned>(std::fabs(to_float(to[i])) == INFINITY) &
            static_cast<unsigned>(std::fabs(values[i]) < INFINITY);
  }
  for (size_t i = 0; lost != 0 && i < values.size(); ++i)
    MT_USER_CHECK(std::isfinite(to_float(to[i])) || !std::isfinite(values[i]), ErrorClass::numeric,
                  cat("tensor ", tensor, ": element ", begin + static_cast<int64_t>(i), " is ",
                      values[i], ", which this type cannot represent"),
                  "write bf16 or fp32: --dtype bf16");
}

template <class T>
void unpack(const std::vector<std::byte>& bytes, std::vector<float>& out) {
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    out[i] = to_float(value);
  }
}

}  // namespace

std::span<const std::byte> as_file_type(std::span<const float> values, int64_t begin,
                                        const TensorSpec& to, std::vector<std::byte>& buffer) {
  if (to.dtype == DType::bf16)
    pack<bf16>(values, begin, to.name, buffer);
  else if (to.dtype == DType::f16)
    pack<f16>(values, begin, to.name, buffer);
  else
    return std::as_bytes(values);
  return buffer;
}

std::vector<float> file_values(const SafetensorsFile& file, const TensorInfo& tensor) {
  std::vector<std::byte> bytes(tensor.data.size());
  file.read(tensor, bytes);
  std::vector<float> out(static_cast<size_t>(tensor.shape.numel()));
  switch (*tensor.dtype) {
    case DType::bf16:
      unpack<bf16>(bytes, out);
      break;
    case DType::f16:
      unpack<f16>(bytes, out);
      break;
    default:
      MT_CHECK(*tensor.dtype == DType::f32, name(*tensor.dtype));
      std::memcpy(out.data(), bytes.data(), bytes.size());
  }
  return out;
}

}  // namespace mtrain
