// Events of a device, reused when their last owner releases them. Thread-safe; outlives its events.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "device.h"

namespace mtrain::nccl {

using Event = std::shared_ptr<void>;  // get() is the handle

class EventPool {
 public:
  explicit EventPool(DeviceCalls& device) : device_(device) {}
  ~EventPool() {
    for (EventHandle event : free_) device_.free_event(event);
  }
  Event take() {
    std::lock_guard lock(mutex_);
    EventHandle event = nullptr;
    if (free_.empty()) {
      event = device_.make_event();
    } else {
      event = free_.back();
      free_.pop_back();
    }
    return Event(event, [this](EventHandle e) {
      std::lock_guard giving(mutex_);
      free_.push_back(e);
    });
  }

 private:
  DeviceCalls& device_;
  std::mutex mutex_;
  std::vector<EventHandle> free_;
};

}  // namespace mtrain::nccl
