#include "mtrain/optim/network_memory.h"

#include <utility>

#include "mtrain/base/log.h"

namespace mtrain {

namespace {
constexpr size_t kAlignment = 512;  // the alignment of device allocations
}

NetworkMemory::~NetworkMemory() {
  if (blocks_.empty()) return;
  try {
    ctx_.stream().synchronize();
  } catch (const std::exception& error) {
    log_warn("buffers are freed although a stream failed: ", error.what());
  }
}

size_t NetworkMemory::bytes_of(int64_t count, DType dtype) {
  size_t bytes = static_cast<size_t>(count) * size_of(dtype);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void NetworkMemory::open(const Use& use, size_t bytes, std::span<Communicator* const> groups) {
  MT_CHECK(!groups.empty() && !blocks_.contains(use), groups.size(), " groups");
  if (bytes == 0) return;
  Block block;
  block.memory = groups.front()->network_memory(bytes);
  if (!block.memory) return;
  block.bytes = bytes;
  for (Communicator* group : groups)
    block.registered.push_back(group->register_memory(block.memory.get(), bytes));
  blocks_.emplace(use, std::move(block));
}

Tensor NetworkMemory::zeros(const Use& use, int64_t count, DType dtype) {
  auto found = blocks_.find(use);
  if (found == blocks_.end()) return ctx_.zeros({count}, dtype);
  Block& block = found->second;
  size_t bytes = bytes_of(count, dtype);
  MT_CHECK(block.taken + bytes <= block.bytes, block.taken, " + ", bytes, " of ", block.bytes);
  char* begin =
      static_cast<char*>(block.memory.get()) + std::exchange(block.taken, block.taken + bytes);
  std::shared_ptr<void> piece(block.memory, begin);
  Tensor tensor(ctx_, {count}, dtype, std::move(piece));
  ctx_.fill_zero(tensor);
  return tensor;
}

}  // namespace mtrain
