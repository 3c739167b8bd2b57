#include "runtime_api.h"

#include <cuda_runtime_api.h>

#include <cstdlib>

#include "check.h"
#include "kernels/kernels.h"
#include "mtrain/base/text.h"

namespace mtrain::cuda {

namespace {
cudaEvent_t as_event(EventHandle event) { return static_cast<cudaEvent_t>(event); }
cudaStream_t as_stream(StreamHandle stream) { return static_cast<cudaStream_t>(stream); }
std::string version(int number) { return cat(number / 1000, ".", number % 1000 / 10); }

/// Null for a lack of memory, which leaves no error behind.
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
void RuntimeApi::device_free(void* data) { cudaFree(data); }  // at the end of a failed run too: nothing more to say
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

Verdict judge(const ProbeAnswers& a) {
  auto none = [](std::string reason, std::string remedy) {
    return Verdict{{0, std::move(reason)}, std::move(remedy)};
  };
  if (a.status == cudaErrorInsufficientDriver && a.driver_version == 0)
    return none(
        "this machine has no NVIDIA driver (libcuda.so.1 was not found)",
        cat("install a driver for CUDA ", version(a.needed_version), " or later and see that `nvidia-smi` works"));
  if (a.status == cudaErrorInsufficientDriver)
    return none(cat("the NVIDIA driver is too old: it knows CUDA ", version(a.driver_version), ", this build needs ",
                    version(a.needed_version)),
                "install a newer driver");
  if (a.status == cudaErrorNoDevice || (a.status == cudaSuccess && a.devices == 0)) {
    if (!a.visible.empty())
      return none(cat("no GPU is visible: CUDA_VISIBLE_DEVICES is '", printable(a.visible, 60), "'"),
                  "unset CUDA_VISIBLE_DEVICES");
    return none("there is a driver, but no NVIDIA GPU", "see `nvidia-smi`; in a container, start it with --gpus all");
  }
  if (a.status != cudaSuccess) {
    auto fault = describe_fault(static_cast<cudaError_t>(a.status), "cudaGetDeviceCount");
    return none(fault.message, fault.remedy);
  }
  if (a.image == cudaErrorNoKernelImageForDevice || a.image == cudaErrorInvalidDeviceFunction)
    return none(cat("this build has no kernels for the GPU (", a.first, ")"),
                "configure with -DMT_CUDA_ARCHITECTURES=native on the machine that has it");
  if (a.image != cudaSuccess) {
    auto fault = describe_fault(static_cast<cudaError_t>(a.image), "its first use");
    return none(fault.message, fault.remedy);
  }
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
    a.image = kernels_present();
  }
  static_cast<void>(cudaGetLastError());  // what was seen is told; it is no error of a later call
  return a;
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
    lines.push_back(cat(p.name, ", ", human_bytes(p.totalGlobalMem), ", compute capability ", p.major, ".", p.minor));
  }
  return lines;
}

}  // namespace mtrain::cuda
