// The JSON header of a safetensors file as data, strictly parsed. Internal to mtrain/checkpoint.
// Stateless functions over values; safe from any thread.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/checkpoint/safetensors.h"

namespace mtrain {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxTensors = 1'000'000;
constexpr size_t kMaxNameBytes = 1024;

struct HeaderTensor {
  std::string name, file_dtype;
  std::vector<uint64_t> shape;
  uint64_t begin = 0, end = 0;  // relative to the first byte after the header
};

struct Header {
  std::vector<HeaderTensor> tensors;  // in the order of the text
  std::map<std::string, std::string> metadata;
};

struct FileDType {
  std::string_view name;
  uint64_t bits;
  std::optional<DType> dtype;
};

/// Null when unknown.
const FileDType* find_file_dtype(std::string_view name);
/// "BOOL, U8, …" for messages.
std::string known_file_dtypes();
/// Parses the text of a header. Errors name `path` and the byte in the file, where the text starts
/// at byte 8.
Header parse_header(std::string_view text, const fs::path& path);

}  // namespace mtrain
