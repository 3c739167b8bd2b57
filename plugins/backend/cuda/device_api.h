// DeviceApi: the few calls of the CUDA runtime that the memory pools and downloads stand on, so
// that their logic is tested without a GPU. Implementations are thread-safe. Events and streams are
// opaque here.
#pragma once
#include <cstddef>

namespace mtrain::cuda {

using EventHandle = void*;
using StreamHandle = void*;

class DeviceApi {
 public:
  virtual ~DeviceApi() = default;
  /// Null when there is not enough memory. Throws Error for every other failure.
  virtual void* device_malloc(size_t bytes) = 0;
  /// Waits until the device has done all work, as cudaFree does.
  virtual void device_free(void* data) = 0;
  /// Page-locked host memory. Null when there is not enough.
  virtual void* host_malloc(size_t bytes) = 0;
  virtual void host_free(void* data) = 0;
  /// Free and total bytes of the device.
  virtual void memory(size_t& free, size_t& total) = 0;

  /// In the order of the stream. It may be over on return where the host's memory is not
  /// page-locked.
  virtual void copy_to_host(void* to, const void* from, size_t bytes, StreamHandle stream) = 0;

  virtual EventHandle make_event() = 0;
  virtual void free_event(EventHandle event) = 0;
  virtual void record(EventHandle event, StreamHandle stream) = 0;
  /// True when the work before the last record() is done.
  virtual bool done(EventHandle event) = 0;
  virtual void wait_on_host(EventHandle event) = 0;
  /// Work given to `stream` from now on starts after what was recorded.
  virtual void wait_on_stream(StreamHandle stream, EventHandle event) = 0;
};

}  // namespace mtrain::cuda
