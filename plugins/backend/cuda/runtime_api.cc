#include "runtime_api.h"

#include <cuda_runtime_api.h>

#include <charconv>
#include <cstdlib>

#include "check.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

namespace mtrain::cuda {

namespace {
cudaEvent_t as_event(EventHandle event) { return static_cast<cudaEvent_t>(event); }
cudaStream_t as_stream(StreamHandle stream) { return static_cast<cudaStream_t>(stream); }
std::string version(int number) { return cat(number / 1000, ".", number % 1000 / 10); }

/// Null if out of memory, with the error state cleared.
void* or_null(cudaError_t status, void* data, const char* what) {
  if (status != cudaErrorMemoryAllocation) {
    check(status, what);
    return data;
  }
  static_cast<void>(cudaGetLastError());
  return nullptr;
}
}  // namespace

void* RuntimeApi::device_malloc(size_t bytes) {
  void* data = nullptr;
  cudaError_t status = cudaMalloc(&data, bytes);
  return or_null(status, data, "cudaMalloc");
}
void RuntimeApi::device_free(void* data) {
  cudaFree(data);
}  // also reached at the end of a failed run: nothing more to report
void* RuntimeApi::host_malloc(size_t bytes) {
  void* data = nullptr;
  cudaError_t status = cudaMallocHost(&data, bytes);
  return or_null(status, data, "cudaMallocHost");
}
void RuntimeApi::host_free(void* data) { cudaFreeHost(data); }
void RuntimeApi::memory(size_t& free, size_t& total) { MT_CUDA(cudaMemGetInfo(&free, &total)); }

void RuntimeApi::copy_to_host(void* to, const void* from, size_t bytes, StreamHandle stream) {
  MT_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, as_stream(stream)));
}

EventHandle RuntimeApi::make_event() {
  cudaEvent_t event = nullptr;
  MT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}
void RuntimeApi::free_event(EventHandle event) { cudaEventDestroy(as_event(event)); }
void RuntimeApi::record(EventHandle event, StreamHandle stream) {
  MT_CUDA(cudaEventRecord(as_event(event), as_stream(stream)));
}
bool RuntimeApi::done(EventHandle event) {
  cudaError_t status = cudaEventQuery(as_event(event));
  if (status == cudaErrorNotReady) return false;
  check(status, "cudaEventQuery");
  return true;
}
void RuntimeApi::wait_on_host(EventHandle event) { MT_CUDA(cudaEventSynchronize(as_event(event))); }
void RuntimeApi::wait_on_stream(StreamHandle stream, EventHandle event) {
  MT_CUDA(cudaStreamWaitEvent(as_stream(stream), as_event(event), 0));
}

namespace {
cudaGraph_t as_graph(GraphHandle graph) { return static_cast<cudaGraph_t>(graph); }
cudaGraphExec_t as_executable(ExecutableHandle e) { return static_cast<cudaGraphExec_t>(e); }

/// Also clears the error state, which otherwise the next kernel would report.
void check_recording(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  try {
    check(status, what);
  } catch (const Error& error) {
    throw Error(error.error_class(),
                cat("recording a step (cuda_graph.type=full_iteration): ", error.message()),
                cat(error.hint(), "; cuda_graph.type=none trains without recording"));
  }
}
}  // namespace

void RuntimeGraphs::begin_capture(StreamHandle stream) {
  check_recording(cudaStreamBeginCapture(as_stream(stream), cudaStreamCaptureModeRelaxed),
                  "cudaStreamBeginCapture");
}
GraphHandle RuntimeGraphs::end_capture(StreamHandle stream) {
  cudaGraph_t graph = nullptr;
  cudaError_t status = cudaStreamEndCapture(as_stream(stream), &graph);
  if (status != cudaSuccess && graph) cudaGraphDestroy(graph);
  check_recording(status, "cudaStreamEndCapture");
  return graph;
}
bool RuntimeGraphs::empty(GraphHandle graph) {
  size_t nodes = 0;
  check_recording(cudaGraphGetNodes(as_graph(graph), nullptr, &nodes), "cudaGraphGetNodes");
  return nodes == 0;
}
void RuntimeGraphs::free_graph(GraphHandle graph) noexcept {
  if (graph) cudaGraphDestroy(as_graph(graph));
}
ExecutableHandle RuntimeGraphs::instantiate(GraphHandle graph) {
  cudaGraphExec_t executable = nullptr;
  check_recording(cudaGraphInstantiate(&executable, as_graph(graph), 0), "cudaGraphInstantiate");
  return executable;
}
bool RuntimeGraphs::update(ExecutableHandle executable, GraphHandle graph) {
  cudaGraphExecUpdateResultInfo info{};
  cudaError_t status = cudaGraphExecUpdate(as_executable(executable), as_graph(graph), &info);
  if (status == cudaErrorGraphExecUpdateFailure) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  check_recording(status, "cudaGraphExecUpdate");
  return true;
}
void RuntimeGraphs::free_executable(ExecutableHandle executable) noexcept {
  cudaGraphExecDestroy(as_executable(executable));
}
void RuntimeGraphs::launch(ExecutableHandle executable, StreamHandle stream) {
  check_recording(cudaGraphLaunch(as_executable(executable), as_stream(stream)), "cudaGraphLaunch");
}

Verdict judge(const ProbeAnswers& a) {
  auto none = [](std::string reason, std::string remedy) {
    return Verdict{{0, std::move(reason)}, std::move(remedy)};
  };
  if (a.status == cudaErrorInsufficientDriver && a.driver_version == 0)
    return none("this machine has no NVIDIA driver (libcuda.so.1 was not found)",
                cat("install a driver for CUDA ", version(a.needed_version),
                    " or later and see that `nvidia-smi` works"));
  if (a.status == cudaErrorInsufficientDriver)
    return none(cat("the NVIDIA driver is too old: it knows CUDA ", version(a.driver_version),
                    ", this build needs ", version(a.needed_version)),
                "install a newer driver");
  if (a.status == cudaErrorNoDevice || (a.status == cudaSuccess && a.devices == 0)) {
    if (!a.visible.empty())
      return none(
          cat("no GPU is visible: CUDA_VISIBLE_DEVICES is '", printable(a.visible, 60), "'"),
          "unset CUDA_VISIBLE_DEVICES");
    return none("there is a driver, but no NVIDIA GPU",
                "see `nvidia-smi`; in a container, start it with --gpus all");
  }
  if (a.status != cudaSuccess) {
    auto fault = describe_fault(static_cast<cudaError_t>(a.status), "cudaGetDeviceCount");
    return none(fault.message, fault.remedy);
  }
  if (!a.kernels)
    return none(cat("this build has no kernels for the GPU (", a.first, ")"),
                "configure with -DMT_CUDA_ARCHITECTURES=native on the machine that has it");
  return {{a.devices, ""}, ""};
}

ProbeAnswers ask_machine() {
  ProbeAnswers a;
  a.needed_version = CUDART_VERSION;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) a.visible = visible;
  a.status = cudaGetDeviceCount(&a.devices);
  if (cudaDriverGetVersion(&a.driver_version) != cudaSuccess) a.driver_version = 0;
  if (a.status == cudaSuccess && a.devices > 0) {
    a.first = describe_devices(1).front();
    a.kernels = runs_on(MT_CUDA_ARCHITECTURES, architecture_of(0));
  }
  static_cast<void>(
      cudaGetLastError());  // clears the error state: the result is already in the answer
  return a;
}

bool runs_on(std::string_view architectures, int capability) {
  for (const std::string& word : split(architectures, ',')) {
    int number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc()) return true;
    const std::string_view rest(end, word.data() + word.size());
    const bool text = !rest.ends_with("-real");  // PTX, which later devices compile
    const bool same_major = capability / 10 == number / 10;
    if (rest.starts_with('a')
            ? capability == number
            : capability >= number && (same_major || (text && !rest.starts_with('f'))))
      return true;
  }
  return false;
}

int architecture_of(int device) {
  int major = 0, minor = 0;
  MT_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  MT_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return 10 * major + minor;
}

std::vector<std::string> describe_devices(int devices) {
  std::vector<std::string> lines;
  for (int i = 0; i < devices; ++i) {
    cudaDeviceProp p{};
    MT_CUDA(cudaGetDeviceProperties(&p, i));
    lines.push_back(cat(p.name, ", ", human_bytes(p.totalGlobalMem), ", compute capability ",
                        p.major, ".", p.minor));
  }
  return lines;
}

}  // namespace mtrain::cuda
