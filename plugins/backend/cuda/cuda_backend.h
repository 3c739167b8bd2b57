// The CUDA backend of one rank: its device's memory in a pool, its streams, its kernels. Nothing is
// opened before the first memory or stream is asked for, so that it can be made where there is no
// GPU. Thread-safe.
#pragma once
#include <cuda_runtime_api.h>

#include <mutex>
#include <vector>

#include "device_pool.h"
#include "mtrain/tensor/device_backend.h"
#include "pinned_pool.h"
#include "recording_device.h"
#include "runtime_api.h"

namespace mtrain::cuda {

class CudaStream;

class CudaBackend : public DeviceBackend {
 public:
  explicit CudaBackend(bool tf32 = false);
  ~CudaBackend() override;

  std::string_view name() const override { return "cuda"; }
  Probe probe() const override { return verdict().probe; }
  Bf16Products bf16_products() const override;
  std::string remedy() const override { return verdict().remedy; }
  std::vector<std::string> describe() const override {
    return describe_devices(verdict().probe.devices);
  }
  void* allocate(Device device, size_t bytes) override;
  void deallocate(Device device, void* data, size_t bytes) override;
  size_t free_memory(Device device) const override;
  std::unique_ptr<Stream> stream(Device device) override;
  std::unique_ptr<Stream> copy_stream(Device device) override;
  const KernelTable& kernels() const override;
  bool host_memory() const override { return false; }
  void copy(Stream& stream, void* to, const void* from, size_t bytes) override;
  void fill_zero(Stream& stream, void* data, size_t bytes) override;

  bool tf32() const { return tf32_; }

  /// For CudaStream: memory in a stream's own order. take() throws Error(config) where there is
  /// none for `use`.
  void* take(size_t bytes, cudaStream_t stream, const char* use);
  void give(void* data, cudaStream_t stream);
  void* take_pinned();
  void give_pinned(void* piece, cudaStream_t stream);
  void opened(CudaStream& stream);
  void closed(CudaStream& stream);
  DevicePool::Figures figures() const;
  GraphApi& graphs() { return graphs_; }
  DeviceApi& device() { return api_; }

 private:
  const Verdict& verdict() const;
  void order(cudaStream_t first, cudaStream_t then);

  bool tf32_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<Verdict> verdict_;
  mutable RuntimeApi api_;
  RuntimeGraphs graphs_;
  RecordingDevice recording_;     // what the pools see of the device
  mutable std::once_flag asked_;  // what the device's unit for small types takes
  mutable KernelTable kernels_;
  DevicePool pool_;
  PinnedPool pinned_;
  std::vector<CudaStream*>
      streams_;  // living ones; the first is the one that tensors' memory is ordered on
  EventHandle ordering_ = nullptr;
};

}  // namespace mtrain::cuda
