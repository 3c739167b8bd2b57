#include <cuda_runtime_api.h>

#include "device.h"
#include "mtrain/base/error.h"

namespace mtrain::nccl {

namespace {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw Error(
      ErrorClass::peer,
      cat("the GPU failed in ", what, ": ", cudaGetErrorString(status), " (CUDA error ",
          static_cast<int>(status), ")"),
      "see `dmesg` and `nvidia-smi` for the driver's report, then resume from the last checkpoint");
}

cudaStream_t as_stream(StreamHandle stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t as_event(EventHandle event) { return static_cast<cudaEvent_t>(event); }

class CudaCalls final : public DeviceCalls {
 public:
  void use(int device) override { check(cudaSetDevice(device), "cudaSetDevice"); }
  std::string identity(int device) override {
    char id[64] = "";
    check(cudaDeviceGetPCIBusId(id, sizeof id, device), "cudaDeviceGetPCIBusId");
    return id;
  }
  // A higher priority than the rank's own kernels, because other ranks wait for the data.
  StreamHandle make_stream() override {
    int least = 0, most = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &most), "cudaDeviceGetStreamPriorityRange");
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, most),
          "cudaStreamCreateWithPriority");
    return stream;
  }
  void free_stream(StreamHandle stream) override { cudaStreamDestroy(as_stream(stream)); }
  EventHandle make_event() override {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    return event;
  }
  void free_event(EventHandle event) override { cudaEventDestroy(as_event(event)); }
  void record(EventHandle event, StreamHandle stream) override {
    check(cudaEventRecord(as_event(event), as_stream(stream)), "cudaEventRecord");
  }
  void wait_on_stream(StreamHandle stream, EventHandle event) override {
    check(cudaStreamWaitEvent(as_stream(stream), as_event(event), 0), "cudaStreamWaitEvent");
  }
  bool done(EventHandle event) override {
    cudaError_t status = cudaEventQuery(as_event(event));
    if (status == cudaErrorNotReady) return false;
    check(status, "a collective");
    return true;
  }
};

}  // namespace

std::unique_ptr<DeviceCalls> make_cuda_calls() { return std::make_unique<CudaCalls>(); }

}  // namespace mtrain::nccl
