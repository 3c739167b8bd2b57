// NetworkMemory: one block of a communicator's memory (Communicator::network_memory) for each kind
// of tensors that go through the same groups in every step, registered with these groups as a
// whole: a network maps memory in large pieces, and a registration covers whole pages, which it
// must not share with tensors that are not registered. Where a communicator has no such memory,
// tensors are the run's own. Refers to the run and the groups, which outlive it; its tensors may
// live longer than it, but may not go through the groups any more. For the rank's own thread.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "mtrain/comm/communicator.h"
#include "mtrain/tensor/execution_context.h"

namespace mtrain {

class MT_API NetworkMemory {
 public:
  /// Tensors of one use lie in one block.
  struct Use {
    bool expert = false, values = false;
    int zero_stage = 0;
    auto operator<=>(const Use&) const = default;
  };
  explicit NetworkMemory(ExecutionContext& ctx) : ctx_(ctx) {}
  /// Waits for what the run's stream was given, which may still use what is registered.
  ~NetworkMemory();
  NetworkMemory(const NetworkMemory&) = delete;
  NetworkMemory& operator=(const NetworkMemory&) = delete;

  /// What a tensor of so many elements takes of a block.
  static size_t bytes_of(int64_t count, DType dtype);
  /// Makes a block of `bytes` and registers it with `groups`, of which there is one at least. The
  /// first one's memory it is.
  void open(const Use& use, size_t bytes, std::span<Communicator* const> groups);
  /// Zeros: the next piece of the block that was opened for `use`, or memory of the run where there
  /// is none.
  Tensor zeros(const Use& use, int64_t count, DType dtype);

 private:
  struct Block {
    std::shared_ptr<void> memory;
    size_t bytes = 0, taken = 0;
    std::vector<std::shared_ptr<void>> registered;  // last: let go of before the memory
  };
  ExecutionContext& ctx_;
  std::map<Use, Block> blocks_;
};

}  // namespace mtrain
