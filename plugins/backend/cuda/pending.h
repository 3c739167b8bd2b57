// PendingWork: holds back calls of a stream briefly, so that many small ones become one launch:
// optimizer updates and norms. Any other work of the stream comes after them, so the difference is
// not observable. For one thread at a time.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "mtrain/tensor/kernel_table.h"

namespace mtrain::cuda {

class PendingWork {
 public:
  /// The two launch functions. Each list fits into one launch.
  struct Launches {
    std::function<void(std::span<const AdamWArgs>)> adamw;
    /// The result of entry i is in slot first_slot + i when the stream is done.
    std::function<void(std::span<const SquaredNormArgs>, size_t first_slot)> norms;
  };
  /// `slots`: the maximum number of norms with pending results.
  PendingWork(Launches launches, int adamw_batch, int norm_batch, size_t slots);

  void add(const AdamWArgs& args);
  /// Returns false if all slots are taken: synchronize first.
  [[nodiscard]] bool add(const SquaredNormArgs& args);

  /// Launches the calls that are held back. Call it before any other work.
  void flush();
  /// After flush() and the completion of the stream's work: delivers the results of norms to their
  /// callers. `slots`: the results.
  void deliver(const double* slots);
  /// Number of results that flush() has launched and deliver() has not delivered.
  size_t owed() const { return owed_.size(); }

 private:
  void flush_updates();
  void flush_norms();
  Launches launches_;
  size_t adamw_batch_, norm_batch_, slots_;
  std::vector<AdamWArgs> updates_;
  std::vector<SquaredNormArgs> norms_;
  std::vector<double*> owed_;  // by slot
};

}  // namespace mtrain::cuda
