// NetworkMemory: one block of a communicator's memory (Communicator::network_memory) for each kind
// of tensors that use the same groups in every step. Each block is registered with these groups as
// a whole, because a network maps memory in large pieces and a registration covers whole pages,
// which must not contain unregistered tensors. If the communicator has no such memory, tensors use
// ordinary memory. Refers to the context and the groups, which must outlive it. Its tensors may
// live longer, but must not be communicated any more. For the rank's own thread.
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
  /// The key of a block: all tensors of one use are in one block.
  struct Use {
    bool expert = false, values = false;
    int zero_stage = 0;
    auto operator<=>(const Use&) const = default;
  };
  explicit NetworkMemory(ExecutionContext& ctx) : ctx_(ctx) {}
  /// Waits for the context's stream, whose work may still use the registered memory.
  ~NetworkMemory();
  NetworkMemory(const NetworkMemory&) = delete;
  NetworkMemory& operator=(const NetworkMemory&) = delete;

  /// The bytes that a tensor of `count` elements takes in a block.
  static size_t bytes_of(int64_t count, DType dtype);
  /// Allocates a block of `bytes` from the first of `groups` and registers it with all of them.
  /// REQUIRES: at least one group.
  void open(const Use& use, size_t bytes, std::span<Communicator* const> groups);
  /// A tensor of zeros in the next piece of the block for `use`, or in ordinary memory if there is
  /// no block.
  Tensor zeros(const Use& use, int64_t count, DType dtype);

 private:
  struct Block {
    std::shared_ptr<void> memory;
    size_t bytes = 0, taken = 0;
    std::vector<std::shared_ptr<void>>
        registered;  // last member, so that it is released before the memory
  };
  ExecutionContext& ctx_;
  std::map<Use, Block> blocks_;
};

}  // namespace mtrain
