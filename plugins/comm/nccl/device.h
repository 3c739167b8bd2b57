// The calls of a device's runtime that are needed to order NCCL's work relative to a rank's:
// streams and events. An interface, so that tests run without a device. Thread-safe.
#pragma once
#include <memory>
#include <string>

namespace mtrain::nccl {

using StreamHandle = void*;  // cudaStream_t
using EventHandle = void*;   // cudaEvent_t

class DeviceCalls {
 public:
  virtual ~DeviceCalls() = default;
  /// Selects this device for further calls of the calling thread.
  virtual void use(int device) = 0;
  /// Identifies a GPU of a machine in every process and container.
  virtual std::string identity(int device) = 0;
  virtual StreamHandle make_stream() = 0;
  virtual void free_stream(StreamHandle stream) = 0;
  virtual EventHandle make_event() = 0;
  virtual void free_event(EventHandle event) = 0;
  virtual void record(EventHandle event, StreamHandle stream) = 0;
  virtual void wait_on_stream(StreamHandle stream, EventHandle event) = 0;
  /// False while the work before it is in progress. Throws Error(peer) if that work failed.
  virtual bool done(EventHandle event) = 0;
};

std::unique_ptr<DeviceCalls> make_cuda_calls();

}  // namespace mtrain::nccl
