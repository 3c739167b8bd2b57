// Fakes of a device's streams, captures and graphs for tests of recording. Work is a name and an
// argument; work on a capturing stream goes into the capture; a launched graph has the arguments
// with which it was last instantiated or updated. Calls that a real device refuses during a capture
// fail, and a test can make any call fail. For one thread.
#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "fake_device.h"
#include "graph_recorder.h"
#include "mtrain/base/error.h"

namespace mtrain::testing {

struct FakeWork {
  std::string name;
  int argument = 0;
  bool operator==(const FakeWork&) const = default;
};

class FakeGraphs final : public cuda::GraphApi {
 public:
  using Works = std::vector<FakeWork>;
  struct Graph {
    Works works;
  };

  /// Work of a stream, such as a kernel.
  void work(void* stream, const std::string& name, int argument = 0) {
    auto open = captures.find(stream);
    (open != captures.end() ? open->second : ran[stream]).push_back({name, argument});
  }

  void begin_capture(void* stream) override {
    step("begin");
    if (captures.contains(stream)) throw Error(ErrorClass::bug, "a capture within another");
    captures[stream];
  }
  cuda::GraphHandle end_capture(void* stream) override {
    auto open = captures.extract(stream);
    if (open.empty()) throw Error(ErrorClass::bug, "no capture");
    step("end");
    auto graph = std::make_unique<Graph>(Graph{open.mapped()});
    void* handle = graph.get();
    graphs[handle] = std::move(graph);
    return handle;
  }
  bool empty(cuda::GraphHandle graph) override {
    step("empty");
    return graphs.at(graph)->works.empty();
  }
  void free_graph(cuda::GraphHandle graph) noexcept override { graphs.erase(graph); }
  cuda::ExecutableHandle instantiate(cuda::GraphHandle graph) override {
    step("instantiate");
    auto made = std::make_unique<Graph>(*graphs.at(graph));
    void* handle = made.get();
    executables[handle] = std::move(made);
    ++instantiated;
    return handle;
  }
  bool update(cuda::ExecutableHandle executable, cuda::GraphHandle graph) override {
    step("update");
    Works &mine = executables.at(executable)->works, &wanted = graphs.at(graph)->works;
    auto alike = [](const FakeWork& a, const FakeWork& b) { return a.name == b.name; };
    if (!std::equal(mine.begin(), mine.end(), wanted.begin(), wanted.end(), alike)) return false;
    mine = wanted;
    ++updated;
    return true;
  }
  void free_executable(cuda::ExecutableHandle executable) noexcept override {
    executables.erase(executable);
  }
  void launch(cuda::ExecutableHandle executable, void* stream) override {
    step("launch");
    if (captures.contains(stream)) throw Error(ErrorClass::bug, "a launch into a capture");
    ++launched;
    for (const FakeWork& w : executables.at(executable)->works) ran[stream].push_back(w);
  }

  /// Throws if the test requests that `call` fails.
  void step(const std::string& call) {
    if (call == failing) throw Error(ErrorClass::peer, "made to fail: " + call);
  }

  std::map<void*, Works> captures;  // by stream
  std::map<void*, Works> ran;       // by stream: the submitted work, in order
  std::map<void*, std::unique_ptr<Graph>> graphs, executables;
  int instantiated = 0, updated = 0, launched = 0;
  std::string failing;
};

/// Events and memory of a device whose streams may be in capture.
class FakeCapturingDevice final : public FakeDevice {
 public:
  FakeCapturingDevice(FakeGraphs& graphs, size_t bytes) : FakeDevice(bytes), graphs_(graphs) {}
  void record(cuda::EventHandle event, cuda::StreamHandle stream) override {
    graphs_.step("record");
    refuse(graphs_.captures.contains(stream),
           "an event recorded by a capture, which the host cannot ask for");
    work[stream] = static_cast<int64_t>(graphs_.ran[stream].size());
    FakeDevice::record(event, stream);
    ++records;
  }
  void wait_on_stream(cuda::StreamHandle stream, cuda::EventHandle event) override {
    refuse(graphs_.captures.contains(stream), "a capture that waits for what is outside of it");
    FakeDevice::wait_on_stream(stream, event);
  }
  void device_free(void* data) override {
    refuse(!graphs_.captures.empty(), "memory freed that a graph may use");
    FakeDevice::device_free(data);
  }
  void host_free(void* data) override {
    refuse(!graphs_.captures.empty(), "memory freed that a graph may use");
    FakeDevice::host_free(data);
  }
  /// All submitted work of the stream has run.
  void finish(void* stream) { ran[stream] = static_cast<int64_t>(graphs_.ran[stream].size()); }
  int records = 0;

 private:
  static void refuse(bool wrong, const char* what) {
    if (wrong) throw Error(ErrorClass::bug, what);
  }
  FakeGraphs& graphs_;
};

}  // namespace mtrain::testing
