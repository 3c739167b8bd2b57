// A model in Hugging Face's layout: config.json next to model.safetensors, or next to
// model.safetensors.index.json and its shards. The constructor checks that index and shards agree
// on every tensor and that every file is in the folder. Owns its files. Immutable: const members
// are safe from any thread.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/checkpoint/safetensors.h"

namespace mtrain {

class MT_API HfDir {
 public:
  /// `path`: the folder, or one .safetensors file in it (then that file alone). Error(checkpoint)
  /// that names the file and the fault.
  explicit HfDir(const fs::path& path);

  const fs::path& path() const { return folder_; }
  /// All tensors, sorted by name; they live as long as this object.
  const std::vector<const TensorInfo*>& tensors() const { return tensors_; }
  /// Null when absent.
  const TensorInfo* find(std::string_view name) const;
  /// Error(checkpoint) with the nearest names when absent.
  const TensorInfo& at(std::string_view name) const;
  /// Copies bytes of a tensor, from its byte `begin` on, by positional reads: unlike accesses to
  /// `data`, they do not keep the file's pages in the process, and Error(io) names a file that
  /// shrinks meanwhile. REQUIRES: the tensor is one of tensors().
  void read(const TensorInfo& tensor, uint64_t begin, std::span<std::byte> out) const;
  /// The text of config.json; Error(checkpoint) when absent.
  std::string config_text() const;
  /// The text of any other small file of the folder (tokenizer.json, generation_config.json …),
  /// absent when there is none.
  std::optional<std::string> text(std::string_view file_name) const;

 private:
  void open_single(const fs::path& file);
  void open_index(const fs::path& file);
  void finish(const fs::path& origin);

  fs::path folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<const TensorInfo*> tensors_;
};

/// Throws Error(checkpoint) if the file `name` of a Hugging Face folder is a link out of the
/// folder. Links into the blobs of Hugging Face's cache are accepted.
MT_API void require_inside(const fs::path& folder, const std::string& name);

}  // namespace mtrain
