// CheckpointStore: a folder of checkpoints, each a folder step-N of safetensors shards and a
// manifest. Saving is atomic (a crash at any moment leaves the old checkpoints and perhaps the new
// one, never a mixture) and durable when save() returns; loading compares the checksum of every
// byte before it hands any out. Layout-free: slices saved in one partition load in any other. See
// docs/checkpoints.md for the protocol. For one thread at a time.
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
  int keep =
      3;  // newest checkpoints kept; 0 keeps all; 1 is refused, as one file may turn out damaged
  int64_t keep_every = 0;  // steps that are multiples of it are kept for ever; 0: none
  int rank = 0, world = 1;
  bool allow_nonfinite =
      false;  // otherwise a save of NaN or Inf in a floating tensor is Error(numeric) naming it
  std::string token;  // names temporary folders; the same on all ranks and unique to the job.
                      // Needed for world > 1.
  /// True on every rank when all said true. Needed for world > 1; called the same number of times
  /// by each rank.
  std::function<bool(bool)> vote;
};

struct SaveResult {
  fs::path path;
  uint64_t bytes = 0;
  double seconds = 0;
  bool already_saved = false;  // this very content was there
  std::vector<std::string>
      warnings;  // of what came after the commit: the hint file, the removal of old checkpoints
};

struct CheckpointInfo {
  int64_t step = 0;
  fs::path path;
  std::string created;  // ISO 8601, UTC
  uint64_t bytes = 0;
  size_t num_tensors = 0;
  std::string problem;  // one line; empty when manifest and sizes are right
  bool unknown =
      false;  // the problem is the system's (too many open files): the checkpoint may well be right
};

/// A checkpoint that was found damaged, and why.
struct RefusedCheckpoint {
  int64_t step = 0;
  std::string reason;  // one line
};

struct LatestCheckpoint {
  std::optional<int64_t> step;             // absent: there are no checkpoints at all
  std::vector<RefusedCheckpoint> refused;  // newer ones that were passed over: to be told loudly
};

struct StoredTensorInfo {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
};

struct LoadOptions {
  bool allow_nonfinite =
      false;  // otherwise NaN or Inf in a floating tensor is Error(numeric) naming it
};

class CheckpointStore;

/// A save under way: its parts that touch the disk run on a thread of their own, and every rank
/// goes from part to part by the same calls at the same places of its program. For the thread that
/// started it, which gives the store nothing else to do meanwhile. Given up when destroyed: what is
/// not committed then goes with the next start.
class MT_API PendingSave {
 public:
  PendingSave(PendingSave&&) noexcept;
  ~PendingSave();
  /// Goes on to the next part once every rank is through with this one. True when the save is over,
  /// after which only result() may be called. Throws as CheckpointStore::save does; the save is
  /// over then, too.
  bool poll();
  /// Waits until it is over. The result lives as long as this object.
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
  /// For writing: creates the folder, locks it (Error(io) when another job has it) and removes what
  /// a killed one left.
  CheckpointStore(fs::path folder, StoreOptions options);

  const fs::path& folder() const { return folder_; }

  /// Saves `slices` (together, over all ranks, an exact cover of each tensor) and `meta` (a JSON
  /// object) as step `step`. Error(io) when the system fails it; what was there before is untouched
  /// and a later save may succeed. Error(checkpoint) when that step exists with other content,
  /// Error(numeric) when a floating element is NaN or Inf (StoreOptions::allow_nonfinite). All
  /// ranks throw the same class. The data must not change meanwhile.
  SaveResult save(int64_t step, std::span<const Slice> slices, std::string_view meta);
  /// The same beside other work: returns at once, and fails where poll() or wait() is called. The
  /// slices' data must stay as it is until the save is over. One at a time.
  PendingSave start_save(int64_t step, std::vector<Slice> slices, std::string_view meta);
  /// The same of slices that are yet to be made, such as copies of what is on a device: called
  /// once, on the save's thread. What it throws fails the save as everything else does, on every
  /// rank; std::bad_alloc becomes Error(io).
  PendingSave start_save(int64_t step, std::function<std::vector<Slice>()> slices,
                         std::string_view meta);

  /// Every rank comes here with what failed on it, or null. Throws on all of them if anything did,
  /// and the same class on all: each rank that failed its own message, the others that another rank
  /// failed.
  void agree(const std::exception_ptr& failure);

  /// Writes a file into the folder, removes it, and compares what the file system has free with
  /// `bytes`, which one checkpoint takes. Error(io) when a save could not succeed now. For the rank
  /// 0 of a store that writes.
  void require_room(uint64_t bytes) const;

  /// Makes `step` the newest: moves each newer checkpoint into one new folder set-aside-N, the
  /// newest first, and deletes nothing. Gives where each is now, the oldest last; none when `step`
  /// is the newest already. Error(checkpoint) where `step` is absent or not valid; then nothing has
  /// moved. For the rank 0 of a store that writes.
  std::vector<fs::path> rewind(int64_t step);

  /// All checkpoints, oldest first, with the quick check of manifest and sizes.
  std::vector<CheckpointInfo> list() const;
  /// The newest checkpoint whose every byte is right. Error(checkpoint) when there are some and
  /// none is; Error(io) where the system cannot read one, which is no proof of damage: an older one
  /// must not be taken for it.
  LatestCheckpoint latest_valid() const;
  /// Why the checkpoint is not valid, comparing every byte; empty when it is. Error(io) where the
  /// system cannot read it.
  std::string problem(int64_t step) const;

  /// Fills the slices. Error(checkpoint) naming file or tensor when anything is missing, damaged or
  /// of another dtype or shape; then no slice was touched.
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
                       const std::atomic<bool>& given_up);
  uint64_t commit(const fs::path& temporary, int64_t step, Manifest manifest);
  void retire(int64_t saved, std::vector<std::string>& warnings);
  std::string discard(const fs::path& folder);
  bool vote(bool mine) const { return options_.vote ? options_.vote(mine) : mine; }

  fs::path folder_;
  StoreOptions options_;
  std::optional<RunLock> lock_;
  bool writable_ = false;
  /// Makes temporary names unique. Counts agreements, so that it is the same on all ranks also
  /// after a save that one did not begin.
  int64_t serial_ = 0;
};

/// Where checkpoints are: `step` is given when the path was one step's folder.
struct CheckpointPlace {
  fs::path folder;
  std::optional<int64_t> step;
};
/// Understands a run's folder (with checkpoints/ in it), a folder of checkpoints, or one step-N
/// folder. Error(checkpoint) when it is none of them.
MT_API CheckpointPlace locate_checkpoints(const fs::path& path);

/// Position of the first NaN or Inf among floating elements; absent when there is none or the type
/// has none.
MT_API std::optional<size_t> first_nonfinite(DType dtype, std::span<const std::byte> data);

}  // namespace mtrain
