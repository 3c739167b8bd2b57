// RecordingDevice: the DeviceApi for memory pools of streams that may be recorded. An event may
// stand for a graph that is not launched yet; a wait for such an event flushes the recording first,
// and memory is returned to the driver only after no unlaunched graph uses it. Without a recording,
// it forwards all calls. Does not own device and recorders; a recorder is for its stream's thread.
#pragma once
#include <vector>

#include "graph_recorder.h"

namespace mtrain::cuda {

class RecordingDevice final : public DeviceApi {
 public:
  explicit RecordingDevice(DeviceApi& device) : device_(device) {}
  void add(GraphRecorder& recorder) { recorders_.push_back(&recorder); }
  void remove(GraphRecorder& recorder) { std::erase(recorders_, &recorder); }

  void* device_malloc(size_t bytes) override { return device_.device_malloc(bytes); }
  void device_free(void* data) override {
    flush_all();
    device_.device_free(data);
  }
  void* host_malloc(size_t bytes) override { return device_.host_malloc(bytes); }
  void host_free(void* data) override {
    flush_all();
    device_.host_free(data);
  }
  void memory(size_t& free, size_t& total) override { device_.memory(free, total); }

  void copy_to_host(void* to, const void* from, size_t bytes, StreamHandle stream) override {
    if (GraphRecorder* recorder = of_stream(stream)) recorder->flush();
    device_.copy_to_host(to, from, bytes, stream);
  }
  EventHandle make_event() override { return device_.make_event(); }
  void free_event(EventHandle event) override {
    forget(event);
    device_.free_event(event);
  }
  void record(EventHandle event, StreamHandle stream) override {
    forget(event);
    if (GraphRecorder* recorder = of_stream(stream))
      recorder->record(event);
    else
      device_.record(event, stream);
  }
  bool done(EventHandle event) override { return !owing(event) && device_.done(event); }
  void wait_on_host(EventHandle event) override {
    if (GraphRecorder* recorder = owing(event)) recorder->flush();
    device_.wait_on_host(event);
  }
  // A capture cannot wait for work outside of it.
  void wait_on_stream(StreamHandle stream, EventHandle event) override {
    if (GraphRecorder* recorder = owing(event)) recorder->flush();
    if (GraphRecorder* recorder = of_stream(stream)) recorder->flush();
    device_.wait_on_stream(stream, event);
  }

 private:
  GraphRecorder* of_stream(StreamHandle stream) const {
    for (GraphRecorder* r : recorders_)
      if (r->stream() == stream) return r;
    return nullptr;
  }
  GraphRecorder* owing(EventHandle event) const {
    for (GraphRecorder* r : recorders_)
      if (r->owes(event)) return r;
    return nullptr;
  }
  void forget(EventHandle event) {
    for (GraphRecorder* r : recorders_) r->forget(event);
  }
  void flush_all() {
    for (GraphRecorder* r : recorders_) r->flush();
  }
  DeviceApi& device_;
  std::vector<GraphRecorder*> recorders_;
};

}  // namespace mtrain::cuda
