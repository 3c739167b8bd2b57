// Writes folders of Hugging Face models: config.json, generation_config.json, files of the
// tokenizer, and the weights as one or several safetensors files, streamed in pieces: memory
// depends neither on the size of a tensor nor on that of a shard. The ranks of a job share the
// shards, and each reads what its shards need from the checkpoint, whichever rank saved it. A
// folder appears complete or not at all. Stateless functions, and a writer for the rank's thread.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mtrain/base/file.h"
#include "mtrain/checkpoint/safetensors.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/recipe/hf_source.h"
#include "mtrain/recipe/hf_tensors.h"
#include "mtrain/train/hf_team.h"

namespace mtrain {

class HfDir;

/// The name of an export's writes for failpoints.
inline constexpr const char* kExportSite = "hf";

/// Takes the next bytes of a tensor.
using HfSink = std::function<void(std::span<const std::byte>)>;

/// Reads tensors piece by piece.
class HfTensorReader {
 public:
  virtual ~HfTensorReader();
  /// Passes all bytes of a tensor of the writer's list, in its type and in order. Called once for
  /// each, in any order.
  virtual void read(size_t index, const HfSink& out) = 0;
};

/// A place next to `to`, on the same file system, for a file or folder that is renamed to `to` when
/// it is complete. Creates the folders above; removes what killed processes of this machine left
/// there. Error(io) if `to` exists.
MT_API fs::path unfinished_place(const fs::path& to);

/// Error(io) if there is something at this place.
MT_API void require_absent(const fs::path& to);

/// The files of a folder's weights, and how many ranks wrote them.
struct HfWritten {
  size_t files = 0, ranks = 1;
};

/// A new folder, which the ranks of a team write together. It is built under a temporary name next
/// to its place and renamed by commit(); the destructor removes what was not committed. The first
/// rank creates it, and ranks that do not see it, on a disk of another machine, write nothing.
/// Constructor, weights() and commit() are collective: if a rank fails, all throw its error
/// (HfTeam::together). Error(io) if `to` exists, at once and at commit().
class MT_API HfFolderWriter {
 public:
  explicit HfFolderWriter(const fs::path& to, const HfTeam& team = {});
  ~HfFolderWriter();
  HfFolderWriter(const HfFolderWriter&) = delete;
  HfFolderWriter& operator=(const HfFolderWriter&) = delete;

  const HfTeam& team() const { return team_; }
  /// Writes a small file, on the first rank only. Not collective: call it inside HfTeam::together,
  /// so that all ranks get its error.
  void text(const std::string& name, std::string_view content);
  /// Copies a file of another folder, under the same name; likewise.
  void copy(const fs::path& file);
  /// Writes the weights: model.safetensors, or shards of at most `shard_bytes` (a larger tensor has
  /// a shard of its own) with their index. Each shard is written by one rank, so that all write
  /// about as many bytes; the bytes do not depend on their number.
  HfWritten weights(const std::vector<TensorSpec>& tensors, uint64_t shard_bytes,
                    HfTensorReader& reader);
  /// Writes tensors as one file, on the first rank only; like text(), not collective.
  void file(const std::string& name, const std::vector<TensorSpec>& tensors,
            HfTensorReader& reader);
  void commit();

 private:
  struct Unfinished {
    ~Unfinished();
    fs::path path;  // removed; only of the first rank
  };
  HfTeam team_;
  fs::path to_, temporary_;
  Unfinished unfinished_;
  std::vector<bool> writers_;  // which ranks see the folder
};

struct HfExport {
  const HfFamily& family;
  const HfModel& model;
  DType dtype = DType::f32;
  int64_t vocab_size = 0;  // rows of the embedding matrix to write; padding is left out
  uint64_t shard_bytes = kHfShardBytes;
};

struct HfExported {
  size_t files = 0, tensors = 0, ranks = 1;
  uint64_t bytes = 0;
};

/// The tensors of a checkpoint, as the family has them.
class HfTensorSource : public HfTensorReader {
 public:
  virtual const std::vector<TensorSpec>& specs() const = 0;
};

/// Writes all tensors of a source as the weights of a folder; collective over the writer's team.
MT_API HfExported write_hf_weights(HfTensorSource& reader, uint64_t shard_bytes,
                                   HfFolderWriter& out);

/// Refers to `options`. Throws what export_hf_weights throws.
MT_API std::unique_ptr<HfTensorSource> hf_checkpoint_tensors(const CheckpointStore& store,
                                                             int64_t step, const HfExport& options);

/// Writes the weights of a checkpoint; collective over the writer's team. Throws Error(checkpoint)
/// with all parameters that the family has no tensor for, or that the checkpoint lacks, and
/// Error(numeric) for a value that the type cannot represent.
MT_API HfExported export_hf_weights(const CheckpointStore& store, int64_t step,
                                    const HfExport& options, HfFolderWriter& out);

/// The tensors of a folder in this type; absent: each in its own. Refers to `source`.
/// With a type, buffers of `family` (null: unknown) are fp32.
MT_API std::unique_ptr<HfTensorSource> hf_folder_tensors(const HfDir& source,
                                                         std::optional<DType> dtype,
                                                         uint64_t shard_bytes,
                                                         const HfFamily* family = nullptr);

/// Writes the weights of a folder in another type or in other shards. Without a type, each tensor
/// keeps its own; with one, buffers of `family` (null: unknown) are written as fp32.
MT_API HfExported convert_hf_weights(const HfDir& source, std::optional<DType> dtype,
                                     uint64_t shard_bytes, HfFolderWriter& out,
                                     const HfFamily* family = nullptr);

/// Moves the exports DIR/step-N of these steps into one new folder DIR/set-aside-K, because the
/// checkpoints from which they were written no longer count. Returns their new paths; empty if
/// there are none of these.
MT_API std::vector<fs::path> set_aside_hf_exports(const fs::path& dir,
                                                  const std::vector<int64_t>& steps);

/// The files of a folder that belong to its tokenizer and its generation, and that exist.
MT_API std::vector<fs::path> hf_side_files(const fs::path& folder);

}  // namespace mtrain
