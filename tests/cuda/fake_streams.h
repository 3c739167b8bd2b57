// Fake streams and events of a device: each stream is a thread that executes its work in order, so
// work is asynchronous and blocks like that of a device. Also a backend with memory of such a
// device. Thread-safe.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "device.h"
#include "mtrain/base/error.h"
#include "mtrain/tensor/backend.h"

namespace mtrain::testing {

/// Device memory that was not allocated by a backend, but by NCCL.
class FakeOtherMemory {
 public:
  void add(void* data, size_t bytes) {
    std::lock_guard lock(mutex_);
    blocks_.insert({static_cast<char*>(data), static_cast<char*>(data) + bytes});
  }
  void remove(void* data) {
    std::lock_guard lock(mutex_);
    std::erase_if(blocks_, [&](const auto& block) { return block.first == data; });
  }
  bool holds(const void* data) {
    std::lock_guard lock(mutex_);
    for (const auto& [begin, end] : blocks_)
      if (data >= begin && data < end) return true;
    return false;
  }
  size_t blocks() {
    std::lock_guard lock(mutex_);
    return blocks_.size();
  }

 private:
  std::mutex mutex_;
  std::set<std::pair<char*, char*>> blocks_;
};
inline FakeOtherMemory& fake_other_memory() {
  static FakeOtherMemory memory;
  return memory;
}

class FakeStream {
 public:
  FakeStream() : thread_([this] { work(); }) {}
  ~FakeStream() {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void give(std::function<void()> task) {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }
  void synchronize() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return tasks_.empty() && !busy_; });
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return closing_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      auto task = std::move(tasks_.front());
      tasks_.pop_front();
      busy_ = true;
      lock.unlock();
      task();
      lock.lock();
      busy_ = false;
      if (tasks_.empty()) idle_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_, idle_;
  std::deque<std::function<void()>> tasks_;
  bool busy_ = false, closing_ = false;
  std::thread thread_;  // last: it uses the rest
};

/// The state of an event at its last record.
class FakeEvent {
 public:
  void record(FakeStream& stream) {
    auto flag = std::make_shared<std::atomic<bool>>(false);
    {
      std::lock_guard lock(mutex_);
      flag_ = flag;
    }
    stream.give([flag] {
      flag->store(true);
      flag->notify_all();
    });
  }
  std::shared_ptr<std::atomic<bool>> flag() {
    std::lock_guard lock(mutex_);
    return flag_;
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<std::atomic<bool>> flag_ = std::make_shared<std::atomic<bool>>(true);
};

class FakeCalls final : public nccl::DeviceCalls {
 public:
  explicit FakeCalls(std::string gpu) : gpu_(std::move(gpu)) {}
  void use(int) override {}
  std::string identity(int device) override { return gpu_ + "." + std::to_string(device); }
  nccl::StreamHandle make_stream() override { return new FakeStream; }
  void free_stream(nccl::StreamHandle stream) override { delete static_cast<FakeStream*>(stream); }
  nccl::EventHandle make_event() override { return new FakeEvent; }
  void free_event(nccl::EventHandle event) override { delete static_cast<FakeEvent*>(event); }
  void record(nccl::EventHandle event, nccl::StreamHandle stream) override {
    static_cast<FakeEvent*>(event)->record(*static_cast<FakeStream*>(stream));
  }
  void wait_on_stream(nccl::StreamHandle stream, nccl::EventHandle event) override {
    static_cast<FakeStream*>(stream)->give(
        [flag = static_cast<FakeEvent*>(event)->flag()] { flag->wait(false); });
  }
  bool done(nccl::EventHandle event) override {
    return static_cast<FakeEvent*>(event)->flag()->load();
  }

 private:
  std::string gpu_;
};

/// Memory that is used asynchronously, in the order of its context's stream.
class FakeDeviceBackend final : public Backend {
 public:
  class RunStream final : public Stream {
   public:
    void synchronize() override { queue.synchronize(); }
    void* native() override { return &queue; }
    FakeStream queue;
  };
  FakeDeviceBackend() { kernels_.cast = cast; }
  ~FakeDeviceBackend() override {
    for (void* data : dead_) ::operator delete (data, std::align_val_t{64});
  }
  std::string_view name() const override { return "fake"; }
  Probe probe() const override { return {1, ""}; }
  bool host_memory() const override { return false; }
  void* allocate(Device, size_t bytes) override {
    auto* data = static_cast<char*>(::operator new (bytes + 64, std::align_val_t{64}));
    std::lock_guard lock(mutex_);
    blocks_.insert({data, data + bytes});
    return data;
  }
  // Streams may still be at work on it, as a device may that frees memory in the order of its
  // streams.
  void deallocate(Device, void* data, size_t bytes) override {
    std::lock_guard lock(mutex_);
    blocks_.erase({static_cast<char*>(data), static_cast<char*>(data) + bytes});
    dead_.push_back(data);
  }
  std::unique_ptr<Stream> stream(Device) override { return std::make_unique<RunStream>(); }
  const KernelTable& kernels() const override { return kernels_; }
  void copy(Stream& stream, void* to, const void* from, size_t bytes) override {
    FakeStream& queue = static_cast<RunStream&>(stream).queue;
    if (inside(from)) {
      queue.give([=] { std::memcpy(to, from, bytes); });
    } else {
      auto* begin = static_cast<const char*>(from);
      queue.give([to, kept = std::vector<char>(begin, begin + bytes)] {
        std::memcpy(to, kept.data(), kept.size());
      });
    }
    if (!inside(to)) queue.synchronize();
  }
  void fill_zero(Stream& stream, void* data, size_t bytes) override {
    static_cast<RunStream&>(stream).queue.give([=] { std::memset(data, 0, bytes); });
  }

 private:
  static void cast(Stream& stream, const CastArgs& a) {
    MT_CHECK(a.src_dtype == DType::f32 && a.dst_dtype == DType::f32,
             "a conversion that is not faked");
    static_cast<RunStream&>(stream).queue.give([a] {
      for (int64_t i = 0; i < a.count; ++i) {
        float value = a.scale * static_cast<const float*>(a.src)[i];
        float& to = static_cast<float*>(a.dst)[i];
        to = a.accumulate ? to + value : value;
      }
    });
  }
  bool inside(const void* data) {
    if (fake_other_memory().holds(data)) return true;
    std::lock_guard lock(mutex_);
    for (const auto& [begin, end] : blocks_)
      if (data >= begin && data < end) return true;
    return false;
  }
  std::mutex mutex_;
  std::set<std::pair<char*, char*>> blocks_;
  std::vector<void*> dead_;
  KernelTable kernels_;
};

}  // namespace mtrain::testing
