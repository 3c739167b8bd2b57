// Converts the values of tensors between float and the types of safetensors files. Stateless;
// thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mtrain/checkpoint/safetensors.h"

namespace mtrain {

/// Elements of a tensor from `begin` on, in the type of its file: fp32, bf16 or fp16; `buffer` may
/// hold the result. Error(numeric) for a finite value that the type cannot represent.
MT_API std::span<const std::byte> as_file_type(std::span<const float> values, int64_t begin,
                                               const TensorSpec& to,
                                               std::vector<std::byte>& buffer);

/// All values of a tensor. REQUIRES: its type is fp32, bf16 or fp16.
MT_API std::vector<float> file_values(const SafetensorsFile& file, const TensorInfo& tensor);

}  // namespace mtrain
