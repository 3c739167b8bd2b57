// The CUDA runtime as implementation of the interfaces for memory pools (device_api.h) and
// recording (graph_recorder.h), and its information about this machine. Thread-safe.
#pragma once
#include <string>
#include <vector>

#include "device_api.h"
#include "graph_recorder.h"
#include "mtrain/tensor/backend.h"

namespace mtrain::cuda {

class RuntimeApi final : public DeviceApi {
 public:
  /// REQUIRES: the thread's current device is the one to use.
  void* device_malloc(size_t bytes) override;
  void device_free(void* data) override;
  void* host_malloc(size_t bytes) override;
  void host_free(void* data) override;
  void memory(size_t& free, size_t& total) override;
  void copy_to_host(void* to, const void* from, size_t bytes, StreamHandle stream) override;
  EventHandle make_event() override;
  void free_event(EventHandle event) override;
  void record(EventHandle event, StreamHandle stream) override;
  bool done(EventHandle event) override;
  void wait_on_host(EventHandle event) override;
  void wait_on_stream(StreamHandle stream, EventHandle event) override;
};

/// Captures are in relaxed mode: they tolerate allocations and kernel loading, and captures of
/// other threads.
class RuntimeGraphs final : public GraphApi {
 public:
  void begin_capture(StreamHandle stream) override;
  GraphHandle end_capture(StreamHandle stream) override;
  bool empty(GraphHandle graph) override;
  void free_graph(GraphHandle graph) noexcept override;
  ExecutableHandle instantiate(GraphHandle graph) override;
  bool update(ExecutableHandle executable, GraphHandle graph) override;
  void free_executable(ExecutableHandle executable) noexcept override;
  void launch(ExecutableHandle executable, StreamHandle stream) override;
};

/// What the CUDA runtime reports about this machine; fields of calls that were not made are 0.
struct ProbeAnswers {
  int status = 0;  // cudaGetDeviceCount
  int devices = 0;
  int driver_version = 0;  // cudaDriverGetVersion: 13000; 0 without a driver
  int needed_version = 0;  // required by this build
  bool kernels = true;     // this build has kernels for the first device
  std::string first;       // its name and compute capability
  std::string visible;     // CUDA_VISIBLE_DEVICES, if it is set
};
struct Verdict {
  Probe probe;
  std::string remedy;
};
/// One sentence about the answers, and advice. A pure function.
Verdict judge(const ProbeAnswers& answers);
ProbeAnswers ask_machine();
/// Whether kernels that were compiled for `architectures`, by CMake's names with commas
/// ("80-real,90a-real"), run on a device of this compute capability (90 for 9.0). True for words
/// without a number, such as "native". Asks no device: a question to the runtime would open a
/// context on the first GPU in every rank.
bool runs_on(std::string_view architectures, int capability);
/// "NVIDIA H200, 139.8 GiB, compute capability 9.0" for each device.
std::vector<std::string> describe_devices(int devices);
/// 90 for compute capability 9.0.
int architecture_of(int device);

}  // namespace mtrain::cuda
