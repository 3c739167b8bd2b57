// The safetensors format (https://github.com/huggingface/safetensors): 8 bytes of little-endian
// header length, a JSON header {name: {dtype, shape, data_offsets}}, then the tensors' bytes
// without holes. SafetensorsFile reads one file and refuses anything that two readers could
// interpret differently. SafetensorsWriter writes one deterministically: the same tensors and
// values give the same bytes. Limits on reading: header 100,000,000 bytes, 1,000,000 tensors, names
// of 1 to 1,024 bytes, rank 8. Both own their files. A SafetensorsFile is immutable: const members
// are safe from any thread. A SafetensorsWriter is not synchronised: one thread at a time.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/dtype.h"
#include "mtrain/base/shape.h"
#include "mtrain/checkpoint/input_file.h"

namespace mtrain {

/// One tensor of a file.
struct TensorInfo {
  std::string name;
  std::string file_dtype;      // as written in the file: "F32", "BF16", "F8_E4M3"
  std::optional<DType> dtype;  // absent for types that are available only as raw bytes
  Shape shape;
  uint64_t offset = 0;              // bytes from the start of the file
  std::span<const std::byte> data;  // mapped; valid as long as the SafetensorsFile
};

/// The name of a dtype in safetensors files.
MT_API const char* safetensors_dtype(DType dtype);
/// Why `name` is not a valid tensor name (empty, too long, control characters, broken UTF-8); empty
/// when it is valid.
MT_API std::string bad_tensor_name(std::string_view name);

class MT_API SafetensorsFile {
 public:
  /// Opens and checks a file: its size, header and every tensor's range, but not its values.
  /// Error(checkpoint) that names the file and the faulty byte or tensor; recognizes pickles and
  /// archives, but never parses them.
  explicit SafetensorsFile(const fs::path& path);

  const fs::path& path() const { return file_.path(); }
  /// All tensors, in the order of their bytes.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// Bytes before the first tensor.
  uint64_t data_start() const { return data_start_; }
  /// Null when absent.
  const TensorInfo* find(std::string_view name) const;
  /// Error(checkpoint) with the nearest names when absent.
  const TensorInfo& at(std::string_view name) const;
  /// Copies a tensor's bytes. If the file shrinks meanwhile, throws Error(io), where an access to
  /// `data` would crash. REQUIRES: out.size() == tensor.data.size()
  void read(const TensorInfo& tensor, std::span<std::byte> out) const;
  /// Copies a part of them, from the byte `begin` on.
  void read(const TensorInfo& tensor, uint64_t begin, std::span<std::byte> out) const;

 private:
  InputFile file_;
  MappedFile map_;
  std::vector<TensorInfo> tensors_;
  std::vector<uint32_t> by_name_;  // indices of tensors_, sorted by name
  std::map<std::string, std::string> metadata_;
  uint64_t data_start_ = 0;
};

/// A tensor to be written.
struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
};

class MT_API SafetensorsWriter {
 public:
  /// Creates the file and writes its header. Tensors are laid out by element size (largest first),
  /// then name, so that each is aligned. `site` names the failpoints (see FileWriter). Adds
  /// "format": "pt" to the metadata unless it has a format.
  SafetensorsWriter(fs::path path, std::string site, std::vector<TensorSpec> tensors,
                    std::map<std::string, std::string> metadata = {});

  /// The order in which the data must be written.
  const std::vector<TensorSpec>& order() const { return order_; }
  /// Position of order()[i] in the file, in bytes.
  uint64_t offset(size_t i) const { return offsets_[i]; }
  uint64_t header_bytes() const { return header_bytes_; }
  uint32_t header_crc32c() const { return header_crc_; }
  uint64_t file_bytes() const { return file_bytes_; }
  /// Appends data; tensors may be split over many calls and one call may span tensors.
  void write(std::span<const std::byte> data);
  /// Makes the file durable and closes it. REQUIRES: every byte was written.
  void finish();

 private:
  std::vector<TensorSpec> order_;
  std::vector<uint64_t> offsets_;
  uint64_t header_bytes_ = 0, file_bytes_ = 0;
  uint32_t header_crc_ = 0;
  FileWriter file_;
};

}  // namespace mtrain
