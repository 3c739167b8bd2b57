// GraphRecorder: turns the work that a stream receives between begin() and end() into CUDA graphs.
// The first work opens a capture. It is flushed where the device must receive the work: the
// graph is launched, and the next work opens another capture. Graphs are numbered from each
// begin(): the n-th graph updates the executable of the n-th graph of the previous recording, or
// replaces it if they differ in more than arguments. Work that is not captured runs in order
// between two graphs, so no call is forbidden. For the stream's thread; does not own the stream,
// which must outlive it.
#pragma once
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "device_api.h"

namespace mtrain::cuda {

using GraphHandle = void*;
using ExecutableHandle = void*;

/// The calls of the CUDA runtime that recording uses, so that its logic can be tested without a
/// GPU. They throw Error.
class GraphApi {
 public:
  virtual ~GraphApi() = default;
  virtual void begin_capture(StreamHandle stream) = 0;
  /// The stream is no longer in capture afterwards, even if this throws because there is no graph.
  virtual GraphHandle end_capture(StreamHandle stream) = 0;
  virtual bool empty(GraphHandle graph) = 0;
  virtual void free_graph(GraphHandle graph) noexcept = 0;
  virtual ExecutableHandle instantiate(GraphHandle graph) = 0;
  /// Returns false and changes nothing if the two differ in more than arguments. Earlier launches
  /// are not affected.
  virtual bool update(ExecutableHandle executable, GraphHandle graph) = 0;
  virtual void free_executable(ExecutableHandle executable) noexcept = 0;
  virtual void launch(ExecutableHandle executable, StreamHandle stream) = 0;
};

class GraphRecorder {
 public:
  /// `device`: for events. `join` ends the work of side streams to which the capture has forked.
  GraphRecorder(GraphApi& api, DeviceApi& device, StreamHandle stream, std::function<void()> join);
  /// REQUIRES: the stream has completed its work.
  ~GraphRecorder();
  GraphRecorder(const GraphRecorder&) = delete;
  GraphRecorder& operator=(const GraphRecorder&) = delete;

  struct Figures {
    int64_t launched = 0, instantiated = 0;  // since begin()
  };
  void begin();
  Figures end();
  /// True between begin() and end().
  bool on() const { return on_; }
  /// True while a capture is open: the stream's work waits for flush().
  bool capturing() const { return capturing_; }
  StreamHandle stream() const { return stream_; }

  /// Call it before work: opens a capture while recording.
  void open();
  /// Launches what was captured. If that fails, it throws; the captured work is lost, and the
  /// stream is in the state before open().
  void flush();
  /// Drops what was captured, and ends the recording.
  void abandon() noexcept;

  /// Records the event after the work that the stream received so far. While a capture is open, it
  /// is recorded after the launch, because an event recorded inside a capture cannot be queried.
  void record(EventHandle event);
  /// Whether the event waits for a launch.
  bool owes(EventHandle event) const { return owed_.contains(event); }
  void forget(EventHandle event) { owed_.erase(event); }
  /// The stream has completed its work: destroys executables that were replaced.
  void settled() noexcept;

 private:
  void launch(GraphHandle graph);
  void record_owed();
  void leave() noexcept;

  GraphApi& api_;
  DeviceApi& device_;
  StreamHandle stream_;
  std::function<void()> join_;
  bool on_ = false, capturing_ = false;
  std::vector<ExecutableHandle> executables_;  // by ordinal
  std::vector<ExecutableHandle> replaced_;     // may be running
  size_t next_ = 0;                            // the next graph's ordinal
  std::set<EventHandle> owed_;
  Figures figures_;
};

}  // namespace mtrain::cuda
