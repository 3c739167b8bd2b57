// A CUDA stream of one rank with the resources of its kernels: scratch memory, a cuBLASLt handle
// with plans, uploads through page-locked memory, side streams for small products, small calls that
// are held back to be launched together, and a recorder that turns the work into CUDA graphs. To
// its users it is one in-order queue. For one thread at a time; owned by the rank; its CudaBackend
// must outlive it.
#pragma once
#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <vector>

#include "attention.h"
#include "cuda_backend.h"
#include "device_pool.h"
#include "gemm.h"
#include "graph_recorder.h"
#include "kernels/kernels.h"
#include "mtrain/tensor/backend.h"
#include "pending.h"
#include "pinned_download.h"
#include "product_lanes.h"

namespace mtrain::cuda {

/// A stream for copies has no plans, and memory allocations are not ordered against it.
enum class StreamUse { kernels, copies };

class CudaStream final : public Stream {
 public:
  CudaStream(CudaBackend& backend, int device, StreamUse use = StreamUse::kernels);
  ~CudaStream() override;

  void synchronize() override;
  void* native() override { return outside(); }
  void begin_recording() override;
  Recorded end_recording() override;
  /// The stream, after all earlier work is queued on it: new work runs after everything before. For
  /// work that may be recorded into a graph.
  cudaStream_t handle() {
    settle();
    open();
    return stream_;
  }
  /// The same for work that must not be recorded: all earlier work has been submitted to the
  /// device.
  cudaStream_t outside() {
    settle();
    recorder_.flush();
    return stream_;
  }
  /// The stream without any of this, for events and memory that need no order of calls.
  cudaStream_t raw() const { return stream_; }
  Launch launch() { return {handle(), processors_, this, scratch_of}; }
  /// Launches calls that were held back, and joins side streams.
  void settle();
  PendingWork& pending() { return pending_; }
  GraphRecorder& recorder() { return recorder_; }

  /// Where a product may run that depends only on earlier work of the queue.
  struct Place {
    cudaStream_t stream;
    void* workspace;
  };
  Place place_of(const GemmArgs& args, bool may_leave, size_t workspace_bytes);
  void join_lanes();
  /// At least `bytes`, for kernels that are queued before the next call of scratch(), which may
  /// return the same memory.
  void* scratch(size_t bytes);
  /// Memory like scratch(), for operands that are made for one product.
  void* operands(size_t bytes);
  /// 12 floats on the device, valid for the next call on the main stream: alpha and beta of a
  /// product, and from numbers 4 and 8 on scales of its operands.
  float* scalars();
  /// Whether products of fp32 may round their operands to TF32.
  bool tf32() const { return backend_.tf32(); }
  /// Whether the gradient of attention may be summed in any order.
  bool any_order_attention() const { return backend_.any_order_attention(); }
  /// Host to device, in stream order; the host's memory may be changed on return.
  void upload(void* to, const void* from, size_t bytes);
  /// Device to host; complete on return.
  void download(void* to, const void* from, size_t bytes);
  /// Copies a few host values to the device; valid until the next call.
  void* uploaded(const void* from, size_t bytes);
  GemmPlans& gemm() { return *gemm_; }
  AttentionPlans& attention() { return *attention_; }
  int processors() const { return processors_; }
  /// 90 for Hopper.
  int architecture() const { return architecture_; }

 private:
  struct Memory {
    void* data = nullptr;
    size_t bytes = 0;
  };
  struct Lane {
    cudaStream_t stream = nullptr;
    Memory workspace;
    bool forked = false;  // has work that the main stream has not waited for
  };
  void open();
  void* grown(Memory& memory, size_t bytes, const char* use);
  void order(cudaStream_t first, cudaStream_t then);
  PendingWork::Launches launches();
  static void* scratch_of(void* owner, size_t bytes) {
    return static_cast<CudaStream*>(owner)->scratch(bytes);
  }

  CudaBackend& backend_;
  cudaStream_t stream_ = nullptr;
  int processors_ = 1, architecture_ = 0;
  Memory scratch_, workspace_, uploaded_, norms_, operands_, scalars_;
  std::array<Lane, ProductLanes::kLanes> lanes_;
  ProductLanes placing_;
  cudaEvent_t ordering_ = nullptr;
  GraphRecorder recorder_;
  PendingWork pending_;
  std::unique_ptr<GemmPlans> gemm_;
  std::unique_ptr<AttentionPlans> attention_;
  std::unique_ptr<PinnedDownload> downloads_;  // only of a stream for copies
};

/// REQUIRES: this plugin created the stream, which holds for every stream that reaches its kernels.
inline CudaStream& cuda_stream(Stream& stream) { return static_cast<CudaStream&>(stream); }

}  // namespace mtrain::cuda
