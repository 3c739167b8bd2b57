// The GGUF format, version 3 (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): metadata,
// descriptions of tensors, and their data, aligned to 32 bytes. Little-endian. A GgufHeader is a
// value; the functions are stateless.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/shape.h"

namespace mtrain {

/// The hint where a model or tokenizer has no form in the format.
inline constexpr const char* kExportFolderInstead =
    "export a Hugging Face folder instead: give a name that does not end in .gguf";

/// Types of tensors, with their numbers in the format.
enum class GgmlType : uint32_t { f32 = 0, f16 = 1, q8_0 = 8, bf16 = 30 };

/// Bytes of `count` elements. REQUIRES for q8_0: a multiple of 32, its block.
uint64_t gguf_bytes(GgmlType type, int64_t count);
/// Elements in a type. q8_0 is a scale (fp16) and 32 whole numbers for each block. Throws
/// Error(numeric) that names `tensor` for a value that the type cannot represent.
std::vector<std::byte> gguf_packed(GgmlType type, std::span<const float> values,
                                   const std::string& tensor);

/// The header of a file: everything before the data of its tensors.
class GgufHeader {
 public:
  void text(std::string_view key, std::string_view value);
  void number(std::string_view key, uint32_t value);
  void real(std::string_view key, float value);
  void flag(std::string_view key, bool value);
  void texts(std::string_view key, const std::vector<std::string>& values);
  void numbers(std::string_view key, const std::vector<int32_t>& values);
  void reals(std::string_view key, const std::vector<float>& values);
  /// Tensors, in the order of their data; shape as [rows, columns].
  void tensor(std::string_view name, const Shape& shape, GgmlType type);
  /// The start of the file, up to the data of the first tensor. Zeros must be written after each
  /// tensor up to a multiple of kAlignment.
  std::string bytes() const;

  static constexpr uint64_t kAlignment = 32;

 private:
  void key(std::string_view key, uint32_t type);

  std::string metadata_, tensors_;
  uint64_t num_keys_ = 0, num_tensors_ = 0, offset_ = 0;
};

}  // namespace mtrain
