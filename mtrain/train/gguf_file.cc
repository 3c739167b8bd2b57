#include "mtrain/train/gguf_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "mtrain/base/error.h"
#include "mtrain/base/float16.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace {

constexpr int64_t kBlock = 32;  // elements of q8_0 with one scale
// Numbers of the types of metadata.
constexpr uint32_t kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9;

template <class T>
void put(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void put_text(std::string& out, std::string_view text) {
  put<uint64_t>(out, text.size());
  out += text;
}

uint64_t aligned(uint64_t bytes) {
  return (bytes + GgufHeader::kAlignment - 1) / GgufHeader::kAlignment * GgufHeader::kAlignment;
}

void require_representable(float value, float given, size_t i, const std::string& tensor) {
  MT_USER_CHECK(std::isfinite(value) || !std::isfinite(given), ErrorClass::numeric,
                cat("tensor ", tensor, ": element ", i, " of a piece is ", given,
                    ", which this type cannot represent"),
                "write bf16 or f32: --dtype bf16");
}

template <class T>
std::vector<std::byte> rounded(std::span<const float> values, const std::string& tensor) {
  std::vector<std::byte> out(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    const T value = static_cast<T>(values[i]);
    require_representable(to_float(value), values[i], i, tensor);
    std::memcpy(out.data() + i * sizeof(T), &value, sizeof(T));
  }
  return out;
}

std::vector<std::byte> quantized(std::span<const float> values, const std::string& tensor) {
  constexpr size_t kBytes = sizeof(f16) + kBlock;
  std::vector<std::byte> out(values.size() / kBlock * kBytes);
  std::byte* to = out.data();
  for (size_t at = 0; at < values.size(); at += kBlock, to += kBytes) {
    const std::span<const float> block = values.subspan(at, kBlock);
    float most = 0;
    for (float x : block) {
      MT_USER_CHECK(std::isfinite(x), ErrorClass::numeric,
                    cat("tensor ", tensor, " has a value that is not finite"),
                    "q8_0 cannot store it: write fp32 or bf16");
      most = std::max(most, std::fabs(x));
    }
    const float scale = most / 127.0f;
    const f16 stored = static_cast<f16>(scale);
    require_representable(to_float(stored), most, at, tensor);
    std::memcpy(to, &stored, sizeof stored);
    const float inverse = scale == 0 ? 0 : 1.0f / scale;
    for (size_t i = 0; i < kBlock; ++i)
      to[sizeof(f16) + i] = static_cast<std::byte>(
          static_cast<int8_t>(std::round(block[i] * inverse)));  // half away from zero
  }
  return out;
}

}  // namespace

uint64_t gguf_bytes(GgmlType type, int64_t count) {
  const auto n = static_cast<uint64_t>(count);
  switch (type) {
    case GgmlType::f32:
      return n * 4;
    case GgmlType::q8_0:
      MT_CHECK_EQ(count % kBlock, 0);
      return n / kBlock * (sizeof(f16) + kBlock);
    default:
      return n * 2;
  }
}

std::vector<std::byte> gguf_packed(GgmlType type, std::span<const float> values,
                                   const std::string& tensor) {
  switch (type) {
    case GgmlType::f16:
      return rounded<f16>(values, tensor);
    case GgmlType::bf16:
      return rounded<bf16>(values, tensor);
    case GgmlType::q8_0:
      MT_CHECK_EQ(values.size() % kBlock, 0u);
      return quantized(values, tensor);
    default: {
      const auto bytes = std::as_bytes(values);
      return {bytes.begin(), bytes.end()};
    }
  }
}

void GgufHeader::key(std::string_view key, uint32_t type) {
  put_text(metadata_, key);
  put(metadata_, type);
  ++num_keys_;
}

void GgufHeader::text(std::string_view name, std::string_view value) {
  key(name, kString);
  put_text(metadata_, value);
}
void GgufHeader::number(std::string_view name, uint32_t value) {
  key(name, kUint32);
  put(metadata_, value);
}
void GgufHeader::real(std::string_view name, float value) {
  key(name, kFloat32);
  put(metadata_, value);
}
void GgufHeader::flag(std::string_view name, bool value) {
  key(name, kBool);
  put<uint8_t>(metadata_, value ? 1 : 0);
}
void GgufHeader::texts(std::string_view name, const std::vector<std::string>& values) {
  key(name, kArray);
  put(metadata_, kString);
  put<uint64_t>(metadata_, values.size());
  for (const std::string& value : values) put_text(metadata_, value);
}
void GgufHeader::numbers(std::string_view name, const std::vector<int32_t>& values) {
  key(name, kArray);
  put(metadata_, kInt32);
  put<uint64_t>(metadata_, values.size());
  for (int32_t value : values) put(metadata_, value);
}
void GgufHeader::reals(std::string_view name, const std::vector<float>& values) {
  key(name, kArray);
  put(metadata_, kFloat32);
  put<uint64_t>(metadata_, values.size());
  for (float value : values) put(metadata_, value);
}

void GgufHeader::tensor(std::string_view name, const Shape& shape, GgmlType type) {
  put_text(tensors_, name);
  put<uint32_t>(tensors_, static_cast<uint32_t>(shape.rank()));
  for (int d = shape.rank() - 1; d >= 0; --d)
    put<uint64_t>(tensors_, static_cast<uint64_t>(shape[d]));
  put(tensors_, static_cast<uint32_t>(type));
  put(tensors_, offset_);
  offset_ += aligned(gguf_bytes(type, shape.numel()));
  ++num_tensors_;
}

std::string GgufHeader::bytes() const {
  std::string out = "GGUF";
  put<uint32_t>(out, 3);
  put(out, num_tensors_);
  put(out, num_keys_);
  out += metadata_;
  out += tensors_;
  out.resize(aligned(out.size()), '\0');
  return out;
}

}  // namespace mtrain
