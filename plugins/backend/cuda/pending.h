// PendingWork: calls that a stream holds back for a moment so that many small ones become one
// launch: updates of tensors, and norms. Whatever else the stream is asked for comes after them, so
// nobody sees the difference. For one thread at a time.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "mtrain/tensor/kernel_table.h"

namespace mtrain::cuda {

class PendingWork {
 public:
  /// The two launches. Both are given lists that fit one launch each.
  struct Launches {
    std::function<void(std::span<const AdamWArgs>)> adamw;
    /// Results are in place i of the slots when the stream is done.
    std::function<void(std::span<const SquaredNormArgs>, size_t first_slot)> norms;
  };
  /// `slots`: so many norms may wait for their results.
  PendingWork(Launches launches, int adamw_batch, int norm_batch, size_t slots);

  void add(const AdamWArgs& args);
  /// False when all slots are taken: synchronize first.
  [[nodiscard]] bool add(const SquaredNormArgs& args);

  /// Launches what is held back. Before any other work.
  void flush();
  /// After flush() and the end of the stream's work: hands results to those who asked. `slots`:
  /// where they are.
  void deliver(const double* slots);
  /// Results that flush() has launched and deliver() has not handed out.
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
