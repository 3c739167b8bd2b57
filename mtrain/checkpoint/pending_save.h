// The parts of a save and the way from one to the next. See PendingSave in store.h.
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
        std::string_view text, bool beside);
  ~State();

  // The slices and P0; P1 to P5; P6 to P10.
  void look();
  void write();
  void commit();

  /// On a thread of its own where the save goes on beside other work.
  enum class Part { looking, writing, committing, over };
  void begin(Part next_part, void (State::*work)());
  bool all_through() const;
  /// Every rank comes here when its part is through. Throws on every rank if it failed on any; the
  /// temporary folder is gone then.
  void agree();
  bool next();

  CheckpointStore& store;
  const int64_t step;
  std::function<std::vector<Slice>()> source;
  std::vector<Slice> slices;
  const bool background;
  const fs::path temporary;
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  Part part = Part::looking;
  std::string meta;  // canonical from look() on
  bool exists = false, damaged = false, same = false;
  Manifest manifest;
  SaveResult result;

  std::exception_ptr failure;
  std::atomic<bool> given_up{false}, finished{false};
  std::thread worker;
};

}  // namespace mtrain
