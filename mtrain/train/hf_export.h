// Writes folders of Hugging Face models: config.json, generation_config.json, files of the
// tokenizer, and the weights as one or several safetensors files, streamed shard by shard. A folder
// appears complete or not at all. Stateless functions and a writer for one thread.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mtrain/base/file.h"
#include "mtrain/checkpoint/safetensors.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/recipe/hf_tensors.h"

namespace mtrain {

class HfDir;

/// Reads the tensors of one shard at a time.
class HfTensorReader {
 public:
  virtual ~HfTensorReader();
  /// Announces the tensors of the next shard, as indices of the writer's list.
  virtual void load(const std::vector<size_t>& shard) = 0;
  /// The bytes of a tensor of this shard in its type; called once for each.
  virtual std::vector<std::byte> take(size_t index) = 0;
};

/// A new folder. It is built under a temporary name next to its place and renamed by commit(); the
/// destructor removes what was not committed. Error(io) if `to` exists, at once and at commit().
class MT_API HfFolderWriter {
 public:
  explicit HfFolderWriter(const fs::path& to);
  ~HfFolderWriter();
  HfFolderWriter(const HfFolderWriter&) = delete;
  HfFolderWriter& operator=(const HfFolderWriter&) = delete;

  /// Writes a small file.
  void text(const std::string& name, std::string_view content);
  /// Copies a file of another folder, under the same name.
  void copy(const fs::path& file);
  /// Writes the weights: model.safetensors, or shards of at most `shard_bytes` (a larger tensor has
  /// a shard of its own) with their index. Returns the number of files.
  size_t weights(const std::vector<TensorSpec>& tensors, uint64_t shard_bytes,
                 HfTensorReader& reader);
  void commit();

 private:
  fs::path to_, temporary_;
  bool committed_ = false;
};

struct HfExport {
  const HfFamily& family;
  const HfModel& model;
  DType dtype = DType::f32;
  int64_t vocab_size = 0;  // rows of the table of tokens to write; padding is left out
  uint64_t shard_bytes = uint64_t{5} << 30;
};

struct HfExported {
  size_t files = 0, tensors = 0;
  uint64_t bytes = 0;
};

/// Writes the weights of a checkpoint. Throws Error(checkpoint) with all parameters that the family
/// has no tensor for, or that the checkpoint lacks, and Error(numeric) for a value that the type
/// cannot represent.
MT_API HfExported export_hf_weights(const CheckpointStore& store, int64_t step,
                                    const HfExport& options, HfFolderWriter& out);

/// Writes the weights of a folder in another type or in other shards. Without a type, each tensor
/// keeps its own.
MT_API HfExported convert_hf_weights(const HfDir& source, std::optional<DType> dtype,
                                     uint64_t shard_bytes, HfFolderWriter& out);

/// The files of a folder that belong to its tokenizer and its generation, and that exist.
MT_API std::vector<fs::path> hf_side_files(const fs::path& folder);

}  // namespace mtrain
