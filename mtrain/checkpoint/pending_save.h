// The stages of a save and the transitions between them; see PendingSave in store.h. Owned by a
// PendingSave; refers to the store. Members are for the rank's thread, except those that `worker`
// runs.
#pragma once
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "mtrain/checkpoint/manifest.h"
#include "mtrain/checkpoint/store.h"

namespace mtrain {

struct PendingSave::State {
  State(CheckpointStore& owner, int64_t of_step, std::function<std::vector<Slice>()> make,
        std::string_view text, bool in_background);
  ~State();

  // The work of the stages, with the points of docs/checkpoints.md: prepare() creates the slices
  // and runs P0, write() P1 to P5, commit() P6 to P10.
  void prepare();
  void write();
  void commit();

  /// Starts a stage; on a separate thread when the save runs in the background.
  enum class Part { preparing, writing, committing, over };
  void begin(Part next_part, void (State::*work)());
  /// Collective: true on every rank when all ranks have finished the current stage.
  bool all_through() const;
  /// Every rank calls it when its stage has finished. If the stage failed on any rank, removes the
  /// temporary folder and throws on every rank.
  void agree();
  /// Collective: agree(), then begins the next stage. True when the save is over.
  bool next();

  CheckpointStore& store;
  const int64_t step;
  std::function<std::vector<Slice>()> source;
  std::vector<Slice> slices;
  const bool background;
  const fs::path temporary;
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  Part part = Part::preparing;
  std::string meta;  // canonical from prepare() on
  bool exists = false, damaged = false, same = false;
  Manifest manifest;
  SaveResult result;

  std::exception_ptr failure;
  std::atomic<bool> cancelled{false}, finished{false};
  std::thread worker;
};

}  // namespace mtrain
