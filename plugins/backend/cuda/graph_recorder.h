// GraphRecorder: what a stream is given between begin() and end() becomes CUDA graphs. A capture is
// opened by the first work, and cut where somebody needs the device to have it: the graph is
// launched, and the next work opens another capture. Each begin() counts its graphs anew: the n-th
// is given to the executable that the n-th of the recording before left, and takes its place where
// the two differ in more than arguments. So whatever is not captured comes in its order between two
// graphs, and nothing is forbidden. For the stream's thread; refers to the stream, which outlives
// it.
#pragma once
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "device_api.h"

namespace mtrain::cuda {

using GraphHandle = void*;
using ExecutableHandle = void*;

/// The calls of the CUDA runtime that recording takes, so that its logic is tested without a GPU.
/// They throw Error.
class GraphApi {
 public:
  virtual ~GraphApi() = default;
  virtual void begin_capture(StreamHandle stream) = 0;
  /// The stream is in capture no longer, also where this throws because no graph came of it.
  virtual GraphHandle end_capture(StreamHandle stream) = 0;
  virtual bool empty(GraphHandle graph) = 0;
  virtual void free_graph(GraphHandle graph) noexcept = 0;
  virtual ExecutableHandle instantiate(GraphHandle graph) = 0;
  /// False, and nothing is changed, where the two differ in more than arguments. What was launched
  /// before stays as it was.
  virtual bool update(ExecutableHandle executable, GraphHandle graph) = 0;
  virtual void free_executable(ExecutableHandle executable) noexcept = 0;
  virtual void launch(ExecutableHandle executable, StreamHandle stream) = 0;
};

class GraphRecorder {
 public:
  /// `device`: for events, as they are. `join` ends the work of side streams that the capture has
  /// forked to.
  GraphRecorder(GraphApi& api, DeviceApi& device, StreamHandle stream, std::function<void()> join);
  /// REQUIRES: the stream has done what it was given.
  ~GraphRecorder();
  GraphRecorder(const GraphRecorder&) = delete;
  GraphRecorder& operator=(const GraphRecorder&) = delete;

  struct Figures {
    int64_t launched = 0, instantiated = 0;  // since begin()
  };
  void begin();
  Figures end();
  /// Between begin() and end().
  bool on() const { return on_; }
  /// A capture is open: what the stream is given waits for cut().
  bool capturing() const { return capturing_; }
  StreamHandle stream() const { return stream_; }

  /// Before work: opens a capture where one is wanted.
  void open();
  /// Launches what was captured. Where that fails it throws, what was captured is lost, and the
  /// stream is as before open().
  void cut();
  /// Drops what was captured, and ends the recording.
  void abandon() noexcept;

  /// The event stands for what the stream was given so far: while a capture is open it is recorded
  /// behind the launch, since one that a capture has recorded cannot be asked for.
  void record(EventHandle event);
  /// Whether the event waits for a launch.
  bool owes(EventHandle event) const { return owed_.contains(event); }
  void forget(EventHandle event) { owed_.erase(event); }
  /// The stream has done what it was given: executables that were replaced can go.
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
