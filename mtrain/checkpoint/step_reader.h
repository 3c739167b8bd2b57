// StepReader: one committed checkpoint, opened for reading. Returns bytes only after verifying
// their checksum. Owns its files. Internal to mtrain/checkpoint. Not synchronised: one thread at a
// time.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "mtrain/checkpoint/input_file.h"
#include "mtrain/checkpoint/manifest.h"

namespace mtrain {

class StepReader {
 public:
  /// Reads the manifest and compares the files' sizes. Error(checkpoint) that names the faulty
  /// file.
  explicit StepReader(fs::path folder);

  const Manifest& manifest() const { return manifest_; }
  const fs::path& folder() const { return folder_; }
  /// Compares the checksums of a box and of the header of its file, once. Error(checkpoint) that
  /// names file and tensor.
  void verify(const StoredTensor& tensor, size_t box);
  /// Verifies every byte, and that each tensor is covered exactly.
  void verify_all();
  /// Compares the safetensors headers with the manifest.
  void verify_headers() const;
  /// Copies the elements of `wanted` (row-major) to `out`. Verifies the bytes before it copies
  /// them. Error(checkpoint) when the stored boxes do not cover `wanted`.
  void read(const StoredTensor& tensor, const Box& wanted, std::span<std::byte> out);
  /// Verifies all bytes that read() would use, and that they cover `wanted`.
  void prepare(const StoredTensor& tensor, const Box& wanted);
  /// The tensor; Error(checkpoint) with the nearest names when absent.
  const StoredTensor& at(std::string_view name) const;

 private:
  void verify_file(size_t file);
  void copy(const StoredTensor& tensor, const StoredBox& stored, const Box& wanted,
            const Box& common, std::span<std::byte> out) const;

  fs::path folder_;
  Manifest manifest_;
  std::vector<InputFile> files_;
  std::vector<bool> header_verified_;
  std::vector<std::vector<bool>> box_verified_;
};

/// Opens a step and checks that its manifest has the step of the folder's name.
StepReader open_step(const fs::path& folder, int64_t step);

/// Reads only a checkpoint's manifest.
Manifest read_manifest(const fs::path& folder);

}  // namespace mtrain
