// GuardBackend: wraps another backend; puts guard bytes around every allocation and fills new ones
// with NaN, so that kernels that write out of bounds or read uninitialised memory are found on any
// device. Not pooled: each tensor has a separate allocation of exactly its size, and under
// AddressSanitizer the guards in host memory are poisoned. Owns the wrapped backend. For one thread
// at a time.
#pragma once
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mtrain/base/text.h"
#include "mtrain/tensor/backend.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(data, bytes) static_cast<void>(data), static_cast<void>(bytes)
#define ASAN_UNPOISON_MEMORY_REGION(data, bytes) static_cast<void>(data), static_cast<void>(bytes)
#endif

namespace mtrain::contract {

class GuardBackend final : public Backend {
 public:
  explicit GuardBackend(std::unique_ptr<Backend> inner)
      : inner_(std::move(inner)), kernels_(inner_->kernels()), stream_(inner_->stream({})) {}

  std::string_view name() const override { return inner_->name(); }
  Probe probe() const override { return inner_->probe(); }
  bool pooled() const override { return false; }
  bool host_memory() const override { return inner_->host_memory(); }
  std::unique_ptr<Stream> stream(Device device) override { return inner_->stream(device); }
  const KernelTable& kernels() const override { return kernels_; }
  /// A copy of the backend's table, from which a test may remove kernels.
  KernelTable& own_kernels() { return kernels_; }
  void copy(Stream& stream, void* to, const void* from, size_t bytes) override {
    inner_->copy(stream, to, from, bytes);
  }
  void fill_zero(Stream& stream, void* data, size_t bytes) override {
    inner_->fill_zero(stream, data, bytes);
  }

  void* allocate(Device device, size_t bytes) override {
    auto* block = static_cast<char*>(inner_->allocate(device, bytes + 2 * kGuard));
    std::vector<char> fresh(bytes + 2 * kGuard, kPattern);
    std::memset(fresh.data() + kGuard, 0xFF,
                bytes);  // NaN in every float format, -1 in every integer
    inner_->copy(*stream_, block, fresh.data(), fresh.size());
    stream_->synchronize();
    char* data = block + kGuard;
    live_[data] = bytes;
    poison(data, bytes);
    return data;
  }

  void deallocate(Device device, void* data, size_t bytes) override {
    auto found = live_.find(data);
    if (found == live_.end()) {
      faults_.push_back("memory given back that was never handed out");
      return;
    }
    if (found->second != bytes)
      faults_.push_back(cat("given back as ", bytes, " bytes, taken as ", found->second));
    inspect(static_cast<char*>(data), found->second);
    inner_->deallocate(device, static_cast<char*>(data) - kGuard, found->second + 2 * kGuard);
    live_.erase(found);
  }

  /// The faults found so far, including those of live allocations.
  std::vector<std::string> faults() {
    for (auto& [data, bytes] : live_) inspect(static_cast<char*>(data), bytes);
    return faults_;
  }
  size_t live() const { return live_.size(); }

 private:
  static constexpr size_t kGuard = 256;
  static constexpr char kPattern = 0x5A;

  bool host() const { return inner_->name() == "cpu"; }
  void poison(char* data, size_t bytes) const {
    if (!host()) return;
    ASAN_POISON_MEMORY_REGION(data - kGuard, kGuard);
    ASAN_POISON_MEMORY_REGION(data + bytes, kGuard);
  }
  void inspect(char* data, size_t bytes) {
    if (host()) ASAN_UNPOISON_MEMORY_REGION(data - kGuard, bytes + 2 * kGuard);
    std::vector<char> block(bytes + 2 * kGuard);
    inner_->copy(*stream_, block.data(), data - kGuard, block.size());
    stream_->synchronize();
    for (size_t i = 0; i < kGuard; ++i) {
      if (block[i] != kPattern)
        return faults_.push_back(cat("a write ", kGuard - i, " bytes before a tensor of ", bytes));
      if (block[kGuard + bytes + i] != kPattern)
        return faults_.push_back(cat("a write ", i, " bytes past the end of a tensor of ", bytes));
    }
    poison(data, bytes);
  }

  std::unique_ptr<Backend> inner_;
  KernelTable kernels_;
  std::unique_ptr<Stream> stream_;
  std::map<void*, size_t> live_;
  std::vector<std::string> faults_;
};

}  // namespace mtrain::contract
