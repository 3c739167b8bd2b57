// CheckpointStore: a folder of checkpoints, each a folder step-N of safetensors shards and a
// manifest. Saving is atomic (a crash at any time leaves the old checkpoints and possibly the new
// one, never a mixture) and durable when save() returns. Loading verifies the checksum of all bytes
// before it returns any. Independent of the layout: slices saved in one partition load in any
// other. See docs/checkpoints.md for the protocol. A store owns its lock. Not synchronised: one
// thread at a time.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/checkpoint/run_lock.h"
#include "mtrain/checkpoint/slice.h"

namespace mtrain {

struct Manifest;

struct StoreOptions {
  int keep = 3;  // newest checkpoints kept; 0 keeps all; 1 is refused, since a single checkpoint
                 // may be damaged
  int64_t keep_every = 0;  // keep steps that are multiples of it permanently; 0: none
  int rank = 0, world = 1;
  bool allow_nonfinite =
      false;  // if false, NaN or Inf in a floating-point tensor is Error(numeric) that names it
  std::string token;  // names temporary folders; the same on all ranks and unique to the job.
                      // Required for world > 1.
  /// Returns true on every rank when all ranks passed true. Required for world > 1; every rank
  /// calls it the same number of times.
  std::function<bool(bool)> vote;
};

struct SaveResult {
  fs::path path;
  uint64_t bytes = 0;
  double seconds = 0;
  bool already_saved = false;  // the step existed with the same content
  /// Faults after the commit: the file `latest`, which names the newest step for people only, was
  /// not written, or old checkpoints were not removed.
  std::vector<std::string> warnings;
};

struct CheckpointInfo {
  int64_t step = 0;
  fs::path path;
  std::string created;  // ISO 8601, UTC
  uint64_t bytes = 0;
  size_t num_tensors = 0;
  std::string problem;   // one line; empty when manifest and sizes are valid
  bool unknown = false;  // the system could not read it (e.g. too many open files); the checkpoint
                         // may be valid
};

/// A damaged checkpoint, and the reason.
struct RefusedCheckpoint {
  int64_t step = 0;
  std::string reason;  // one line
};

struct LatestCheckpoint {
  std::optional<int64_t> step;  // absent: there are no checkpoints
  std::vector<RefusedCheckpoint>
      refused;  // newer damaged ones that were skipped; report them to the user
};

struct StoredTensorInfo {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
};

struct LoadOptions {
  bool allow_nonfinite =
      false;  // if false, NaN or Inf in a floating-point tensor is Error(numeric) that names it
};

class CheckpointStore;

/// A save in progress. Its stages that access the disk run on a separate thread; all ranks advance
/// from stage to stage by the same calls at the same points of their programs. Only for the thread
/// that started it, which must not use the store for anything else meanwhile. The destructor
/// cancels the save; the next start removes what was not committed.
class MT_API PendingSave {
 public:
  PendingSave(PendingSave&&) noexcept;
  ~PendingSave();
  /// Advances to the next stage when every rank has finished the current one. True when the save is
  /// over; after that, call only result(). Throws like CheckpointStore::save; then the save is
  /// over, too.
  bool poll();
  /// Waits for the end of the save. The result lives as long as this object.
  const SaveResult& wait();
  const SaveResult& result() const;

 private:
  friend class CheckpointStore;
  struct State;
  explicit PendingSave(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

class MT_API CheckpointStore {
 public:
  /// For reading only: takes no lock, creates nothing.
  explicit CheckpointStore(fs::path folder);
  /// For writing: creates the folder. Rank 0 also locks it (Error(io) when another job holds it)
  /// and removes incomplete saves of a killed job.
  CheckpointStore(fs::path folder, StoreOptions options);

  const fs::path& folder() const { return folder_; }

  /// Saves `slices` (together, over all ranks, an exact cover of each tensor) and `meta` (a JSON
  /// object) as step `step`. Error(io) when the system fails; older checkpoints are unchanged and a
  /// later save may succeed. Error(checkpoint) when that step exists with other content,
  /// Error(numeric) when a floating-point element is NaN or Inf (StoreOptions::allow_nonfinite).
  /// All ranks throw the same class. The data must not change meanwhile.
  SaveResult save(int64_t step, std::span<const Slice> slices, std::string_view meta);
  /// The same in the background: returns at once; poll() and wait() throw its errors. The slices'
  /// data must not change until the save is over. Only one save at a time.
  PendingSave start_save(int64_t step, std::vector<Slice> slices, std::string_view meta);
  /// The same for slices that `slices` creates later, such as copies of device tensors: it is
  /// called once, on the thread of the save. An exception from it fails the save on every rank;
  /// std::bad_alloc becomes Error(io).
  PendingSave start_save(int64_t step, std::function<std::vector<Slice>()> slices,
                         std::string_view meta);

  /// From the next save on, the checkpoints of these steps are kept even if `keep` newer ones
  /// exist. Must not be called during a save.
  void keep_steps(std::vector<int64_t> steps) { kept_steps_ = std::move(steps); }

  /// Collective: every rank passes its failure, or null. If any rank failed, throws on all ranks
  /// with the same class: a failed rank throws its own message, the others report that another rank
  /// failed.
  void agree(const std::exception_ptr& failure);

  /// Writes a file into the folder, removes it, and compares the free space of the file system with
  /// `bytes`, the size of one checkpoint. Error(io) when a save could not succeed now. Call on rank
  /// 0 of a writable store.
  void require_room(uint64_t bytes) const;

  /// Makes `step` the newest: moves each newer checkpoint into one new folder set-aside-K, the
  /// newest first, and deletes nothing. Returns the new path of each, the oldest last; empty when
  /// `step` is already the newest. Error(checkpoint) when `step` is absent or not valid; then
  /// nothing is moved. Call on rank 0 of a writable store.
  std::vector<fs::path> rewind(int64_t step);

  /// All checkpoints, oldest first, with the quick check of manifest and sizes.
  std::vector<CheckpointInfo> list() const;
  /// The newest checkpoint whose bytes are all valid. Error(checkpoint) when there are
  /// checkpoints but none is valid. Error(io) when the system cannot read one: this does not prove
  /// damage, so an older one is not used instead.
  LatestCheckpoint latest_valid() const;
  /// Verifies every byte. Returns why the checkpoint is not valid; empty when it is. Error(io) when
  /// the system cannot read it.
  std::string problem(int64_t step) const;

  /// Fills the slices. Error(checkpoint) that names file or tensor when anything is missing,
  /// damaged or of another dtype or shape; then no slice is changed. Error(numeric) for NaN or Inf
  /// (LoadOptions), found after slices were filled.
  void load(int64_t step, std::span<Slice> slices, LoadOptions options = {}) const;
  /// The metadata, as canonical JSON (sorted keys).
  std::string meta(int64_t step) const;
  std::vector<StoredTensorInfo> tensors(int64_t step) const;
  fs::path step_folder(int64_t step) const;

 private:
  friend struct PendingSave::State;
  PendingSave begin_save(int64_t step, std::function<std::vector<Slice>()> slices,
                         std::string_view meta, bool background);
  std::vector<int64_t> steps() const;
  void clean();
  Manifest write_shard(const fs::path& folder, int64_t step, std::span<const Slice> slices,
                       const std::atomic<bool>& cancelled);
  uint64_t commit(const fs::path& temporary, int64_t step, Manifest manifest);
  void retire(int64_t saved, std::vector<std::string>& warnings);
  std::string discard(const fs::path& folder);
  bool vote(bool mine) const { return options_.vote ? options_.vote(mine) : mine; }

  fs::path folder_;
  StoreOptions options_;
  std::optional<RunLock> lock_;
  bool writable_ = false;
  std::vector<int64_t> kept_steps_;  // of keep_steps()
  /// Makes temporary names unique. Counts calls of agree(), so it is equal on all ranks even after
  /// a save that one rank did not begin.
  int64_t serial_ = 0;
};

/// A folder of checkpoints; `step` is set when the path was the folder of one step.
struct CheckpointPlace {
  fs::path folder;
  std::optional<int64_t> step;
};
/// Accepts a run's folder (with checkpoints/ in it), a folder of checkpoints, or one step-N folder.
/// Error(checkpoint) for any other path.
MT_API CheckpointPlace locate_checkpoints(const fs::path& path);

/// The index of the first NaN or Inf; absent when there is none or the dtype has none.
MT_API std::optional<size_t> first_nonfinite(DType dtype, std::span<const std::byte> data);

}  // namespace mtrain
