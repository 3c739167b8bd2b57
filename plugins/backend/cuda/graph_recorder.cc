#include "graph_recorder.h"

#include <memory>
#include <utility>

#include "mtrain/base/error.h"

namespace mtrain::cuda {

GraphRecorder::GraphRecorder(GraphApi& api, DeviceApi& device, StreamHandle stream,
                             std::function<void()> join)
    : api_(api), device_(device), stream_(stream), join_(std::move(join)) {}

GraphRecorder::~GraphRecorder() {
  abandon();
  settled();
  for (ExecutableHandle e : executables_) api_.free_executable(e);
}

void GraphRecorder::begin() {
  MT_CHECK(!on_, "a recording within another");
  on_ = true;
  next_ = 0;
  figures_ = {};
}

GraphRecorder::Figures GraphRecorder::end() {
  on_ = false;  // also if one of the following calls fails
  flush();
  return figures_;
}

void GraphRecorder::open() {
  if (!on_ || capturing_) return;
  api_.begin_capture(stream_);
  capturing_ = true;
}

void GraphRecorder::flush() {
  if (!capturing_) return;
  try {
    join_();
    capturing_ = false;
    GraphHandle captured = api_.end_capture(stream_);
    std::unique_ptr<void, std::function<void(void*)>> graph(
        captured, [this](void* g) { api_.free_graph(g); });
    if (!api_.empty(captured)) launch(captured);
    record_owed();
  } catch (...) {
    leave();
    throw;
  }
}

void GraphRecorder::launch(GraphHandle graph) {
  size_t ordinal = next_;
  if (ordinal == executables_.size()) {
    executables_.push_back(api_.instantiate(graph));
    ++figures_.instantiated;
  } else if (!api_.update(executables_[ordinal], graph)) {
    ExecutableHandle made = api_.instantiate(graph);
    replaced_.push_back(std::exchange(executables_[ordinal], made));
    ++figures_.instantiated;
  }
  ++next_;
  api_.launch(executables_[ordinal], stream_);
  ++figures_.launched;
}

void GraphRecorder::record(EventHandle event) {
  if (capturing_)
    owed_.insert(event);
  else
    device_.record(event, stream_);
}

// Each event stays pending until it is recorded: an event that represents older work must not be
// queried.
void GraphRecorder::record_owed() {
  while (!owed_.empty()) {
    device_.record(*owed_.begin(), stream_);
    owed_.erase(owed_.begin());
  }
}

// The captured work will never run, so owed events represent the work before it.
void GraphRecorder::leave() noexcept {
  if (std::exchange(capturing_, false)) {
    try {
      api_.free_graph(api_.end_capture(stream_));
    } catch (...) {  // report the failure that led here instead
    }
  }
  try {
    record_owed();
  } catch (...) {
    owed_.clear();
  }
}

void GraphRecorder::abandon() noexcept {
  on_ = false;
  if (capturing_) {
    try {
      join_();
    } catch (...) {
    }
  }
  leave();
}

void GraphRecorder::settled() noexcept {
  for (ExecutableHandle e : std::exchange(replaced_, {})) api_.free_executable(e);
}

}  // namespace mtrain::cuda
