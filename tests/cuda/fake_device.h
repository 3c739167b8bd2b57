// A fake device: its memory is a counter, and its work completes when the test requests it. For one
// thread.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "device_api.h"

namespace mtrain::testing {

class FakeDevice : public cuda::DeviceApi {
 public:
  explicit FakeDevice(size_t bytes) : total_(bytes) {}

  void* device_malloc(size_t bytes) override {
    ++mallocs;
    if (used_ + bytes > total_) return nullptr;
    used_ += bytes;
    next_ += (bytes + 4095) / 4096 * 4096 + 4096;  // segments do not touch
    auto* data = reinterpret_cast<void*>(next_);
    next_ += bytes;
    device_[data] = bytes;
    return data;
  }
  void device_free(void* data) override {
    ++frees;
    used_ -= device_.at(data);
    device_.erase(data);
  }
  void* host_malloc(size_t bytes) override {
    if (host_.size() >= host_limit) return nullptr;
    ++host_mallocs;
    host_.push_back(std::vector<char>(bytes));
    return host_.back().data();
  }
  void host_free(void*) override { ++host_frees; }
  void memory(size_t& free, size_t& total) override { free = total_ - used_, total = total_; }
  void copy_to_host(void* to, const void* from, size_t bytes, cuda::StreamHandle stream) override {
    if (fail_copies_from > 0 && ++copies_ >= fail_copies_from)
      throw std::runtime_error("the device failed");
    open_.push_back({stream, ++work[stream], to, from, bytes});
    most_open_copies = std::max(most_open_copies, open_.size());
  }

  cuda::EventHandle make_event() override { return reinterpret_cast<void*>(++events_); }
  void free_event(cuda::EventHandle event) override {
    ++freed_events;
    recorded_.erase(event);
  }
  void record(cuda::EventHandle event, cuda::StreamHandle stream) override {
    recorded_[event] = {stream, work[stream]};
  }
  bool done(cuda::EventHandle event) override { return finished(event); }
  void wait_on_host(cuda::EventHandle event) override {
    ++host_waits;
    auto [stream, amount] = recorded_.at(event);
    if (ran[stream] < amount) ran[stream] = amount;
    for (Copy& copy : open_)  // as late as can be
      if (copy.stream == stream && copy.number <= amount)
        std::memcpy(copy.to, copy.from, std::exchange(copy.bytes, 0));
    std::erase_if(open_, [](const Copy& copy) { return copy.bytes == 0; });
  }
  void wait_on_stream(cuda::StreamHandle stream, cuda::EventHandle event) override {
    waits.push_back({stream, recorded_.at(event).first});
  }

  /// Work queued on each stream so far, and how much of it has run.
  std::map<void*, int64_t> work, ran;
  std::vector<std::pair<void*, void*>> waits;  // (who waits, for whom)
  size_t host_limit = 1000;
  int mallocs = 0, frees = 0, host_mallocs = 0, host_frees = 0, host_waits = 0, freed_events = 0;
  size_t fail_copies_from = 0, most_open_copies = 0;
  size_t open_copies() const { return open_.size(); }
  size_t used() const { return used_; }
  int events() const { return static_cast<int>(events_); }

 private:
  struct Copy {
    void* stream;
    int64_t number;
    void* to;
    const void* from;
    size_t bytes;
  };
  bool finished(cuda::EventHandle event) {
    auto found = recorded_.find(event);
    return found == recorded_.end() || ran[found->second.first] >= found->second.second;
  }
  size_t total_, used_ = 0;
  uintptr_t next_ = 1 << 20, events_ = 0;
  std::map<void*, size_t> device_;
  std::vector<std::vector<char>> host_;
  std::vector<Copy> open_;
  size_t copies_ = 0;
  std::map<void*, std::pair<void*, int64_t>> recorded_;
};

}  // namespace mtrain::testing
