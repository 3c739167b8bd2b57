// DeviceApi: the few calls of the CUDA runtime that the memory pools and downloads use, so that
// their logic can be tested without a GPU. Implementations are thread-safe. Events and streams are
// opaque here.
#pragma once
#include <cstddef>

namespace mtrain::cuda {

using EventHandle = void*;
using StreamHandle = void*;

class DeviceApi {
 public:
  virtual ~DeviceApi() = default;
  /// Null if there is not enough memory. Throws Error for every other failure.
  virtual void* device_malloc(size_t bytes) = 0;
  /// Waits until the device has completed all work, as cudaFree does.
  virtual void device_free(void* data) = 0;
  /// Page-locked host memory. Null if there is not enough.
  virtual void* host_malloc(size_t bytes) = 0;
  virtual void host_free(void* data) = 0;
  /// Free and total bytes of the device.
  virtual void memory(size_t& free, size_t& total) = 0;

  /// Ordered on the stream. May be synchronous if the host memory is not page-locked.
  virtual void copy_to_host(void* to, const void* from, size_t bytes, StreamHandle stream) = 0;

  virtual EventHandle make_event() = 0;
  virtual void free_event(EventHandle event) = 0;
  virtual void record(EventHandle event, StreamHandle stream) = 0;
  /// True if the work before the last record() is complete.
  virtual bool done(EventHandle event) = 0;
  virtual void wait_on_host(EventHandle event) = 0;
  /// Work submitted to `stream` from now on starts after the recorded event.
  virtual void wait_on_stream(StreamHandle stream, EventHandle event) = 0;
};

}  // namespace mtrain::cuda
