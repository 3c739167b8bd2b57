// The manifest: the description of a checkpoint. A checkpoint is committed when its folder has its
// final name with a manifest in it; the checksums cover every byte of every file, including the
// manifest. Internal to mtrain/checkpoint. Values and stateless functions; safe from any thread.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/file.h"
#include "mtrain/checkpoint/slice.h"

namespace mtrain {

constexpr const char* kManifestName = "manifest.json";
constexpr int64_t kManifestVersion = 1;

struct StoredFile {
  std::string name;
  uint64_t bytes = 0, header_bytes = 0;
  uint32_t header_crc = 0;
};

/// A box of a tensor and where its bytes are.
struct StoredBox {
  size_t file = 0;  // index into Manifest::files
  std::string key;  // its name in the safetensors file
  Box box;
  uint64_t at = 0, bytes = 0;  // offset in the file, and size
  uint32_t crc = 0;            // CRC-32C of these bytes
};

struct StoredTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape global;
  std::vector<StoredBox> boxes;
};

struct Manifest {
  int64_t step = 0;
  std::string created;  // ISO 8601, UTC; for people only
  std::vector<StoredFile> files;
  std::vector<StoredTensor> tensors;  // sorted by name
  std::string meta = "{}";            // canonical JSON: sorted keys, no white space

  const StoredTensor* find(std::string_view name) const;
  uint64_t bytes() const;
};

/// "shard-00000-of-00004.safetensors"
std::string shard_name(int rank, int world);
/// The manifest as JSON text that ends with its own SHA-256.
std::string encode(const Manifest& manifest);
/// Parses a manifest and checks everything that it can without the files: the checksum, names,
/// ranges of boxes, and that headers and boxes cover each file without gap or overlap.
/// Error(checkpoint) that names `path`.
Manifest decode(std::string_view text, const fs::path& path);
/// Appends the part of another rank. Error(checkpoint) when the two disagree on a tensor's dtype or
/// shape.
void merge(Manifest& into, Manifest&& part, const fs::path& path);
/// Names two boxes of the tensor that overlap; empty when there are none.
std::string overlap_problem(const StoredTensor& tensor);
/// Why the tensor's boxes do not cover it exactly; empty when they do.
std::string cover_problem(const StoredTensor& tensor);
/// `text` with sorted keys and no white space. Error(checkpoint) when it is not a JSON object.
std::string canonical_meta(std::string_view text, const fs::path& origin);

}  // namespace mtrain
