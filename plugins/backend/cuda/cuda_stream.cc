#include "cuda_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "check.h"
#include "cuda_backend.h"
#include "mtrain/base/error.h"

namespace mtrain::cuda {

namespace {
constexpr size_t kNormSlots = 65536;
constexpr size_t kLongDownload = size_t{256} << 10;  // long enough for two page-locked buffers

cudaStream_t made_stream(int device) {
  MT_CUDA(cudaSetDevice(device));
  cudaStream_t stream = nullptr;
  MT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}
}  // namespace

CudaStream::CudaStream(CudaBackend& backend, int device, StreamUse use)
    : backend_(backend),
      stream_(made_stream(device)),
      recorder_(backend.graphs(), backend.device(), stream_, [this] { join_lanes(); }),
      pending_(launches(), kAdamWBatch, kNormBatch, kNormSlots) {
  MT_CUDA(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, device));
  architecture_ = architecture_of(device);
  MT_CUDA(cudaEventCreateWithFlags(&ordering_, cudaEventDisableTiming));
  if (use == StreamUse::copies) {
    downloads_ = std::make_unique<PinnedDownload>(backend_.device());
    return;
  }
  gemm_ = std::make_unique<GemmPlans>([this] { recorder_.flush(); });
  attention_ = std::make_unique<AttentionPlans>();
  backend_.opened(*this);
}

// Work that is still held back or captured belongs to a failed run, or has no owner.
CudaStream::~CudaStream() {
  recorder_.abandon();
  for (Lane& lane : lanes_) {
    if (!lane.stream) continue;
    cudaStreamSynchronize(lane.stream);
    if (lane.workspace.data) backend_.give(lane.workspace.data, stream_);
    cudaStreamDestroy(lane.stream);
  }
  cudaStreamSynchronize(stream_);
  for (Memory* m : {&scratch_, &workspace_, &uploaded_, &norms_, &operands_, &scalars_})
    if (m->data) backend_.give(m->data, stream_);
  backend_.closed(*this);
  cudaEventDestroy(ordering_);
  cudaStreamDestroy(stream_);
}

PendingWork::Launches CudaStream::launches() {
  auto plain = [this] {
    open();
    return Launch{stream_, processors_, this, scratch_of};
  };
  return {
      .adamw =
          [plain](std::span<const AdamWArgs> list) {
            check(mtrain::cuda::adamw(plain(), list.data(), static_cast<int>(list.size())),
                  "adamw");
          },
      .norms =
          [this, plain](std::span<const SquaredNormArgs> list, size_t first) {
            auto* slots = static_cast<double*>(
                grown(norms_, kNormSlots * sizeof(double), "norms of gradients"));
            check(squared_norms(plain(), list.data(), static_cast<int>(list.size()), slots + first),
                  "squared_norm");
          }};
}

void CudaStream::settle() {
  join_lanes();
  pending_.flush();
}

void CudaStream::begin_recording() {
  settle();  // joins side streams that were forked outside of the recording
  recorder_.begin();
}

Stream::Recorded CudaStream::end_recording() {
  settle();
  GraphRecorder::Figures took = recorder_.end();
  return {.pieces = took.launched, .made = took.instantiated};
}

// A capture cannot join a stream that was forked before it.
void CudaStream::open() {
  if (!recorder_.on() || recorder_.capturing()) return;
  join_lanes();
  recorder_.open();
}

void CudaStream::synchronize() {
  outside();
  std::vector<double> norms(pending_.owed());
  if (!norms.empty())
    MT_CUDA(cudaMemcpyAsync(norms.data(), norms_.data, norms.size() * sizeof(double),
                            cudaMemcpyDeviceToHost, stream_));
  MT_CUDA(cudaStreamSynchronize(stream_));
  recorder_.settled();
  pending_.deliver(norms.data());
}

void CudaStream::order(cudaStream_t first, cudaStream_t then) {
  MT_CUDA(cudaEventRecord(ordering_, first));
  MT_CUDA(cudaStreamWaitEvent(then, ordering_, 0));
}

CudaStream::Place CudaStream::place_of(const GemmArgs& args, bool may_leave,
                                       size_t workspace_bytes) {
  pending_.flush();
  open();
  int where = may_leave && is_small_product(args, processors_) ? placing_.place(memory_of(args))
                                                               : ProductLanes::kMain;
  if (where != ProductLanes::kMain) {
    Lane& lane = lanes_[static_cast<size_t>(where)];
    if (!lane.stream) MT_CUDA(cudaStreamCreateWithFlags(&lane.stream, cudaStreamNonBlocking));
    void* workspace = workspace_bytes > 0
                          ? grown(lane.workspace, workspace_bytes, "products' workspace")
                          : nullptr;
    if (placing_.used(
            where)) {  // otherwise the allocation has flushed the recording and joined the lanes
      lane.forked = true;
      order(stream_, lane.stream);  // after the work that made its inputs
      return {lane.stream, workspace};
    }
  }
  join_lanes();
  return {stream_, workspace_bytes > 0 ? grown(workspace_, workspace_bytes, "products' workspace")
                                       : nullptr};
}

// Each lane is marked as joined before the wait: if the wait fails, the next try must not wait for
// it again.
void CudaStream::join_lanes() {
  if (!placing_.busy()) return;
  placing_.joined();
  for (Lane& lane : lanes_)
    if (std::exchange(lane.forked, false)) order(lane.stream, stream_);
}

void* CudaStream::grown(Memory& memory, size_t bytes, const char* use) {
  if (bytes <= memory.bytes) return memory.data;
  size_t wanted = std::max(bytes, memory.bytes + memory.bytes / 2);
  if (memory.data) backend_.give(memory.data, stream_);
  memory = {};
  memory.data = backend_.take(wanted, stream_, use);
  memory.bytes = wanted;
  return memory.data;
}

void* CudaStream::scratch(size_t bytes) {
  return grown(scratch_, std::max<size_t>(bytes, 1), "kernels' scratch memory");
}

void* CudaStream::operands(size_t bytes) {
  return grown(operands_, std::max<size_t>(bytes, 1), "operands of products");
}
float* CudaStream::scalars() {
  return static_cast<float*>(grown(scalars_, 12 * sizeof(float), "scalars of products"));
}

void CudaStream::upload(void* to, const void* from, size_t bytes) {
  auto* target = static_cast<char*>(to);
  auto* source = static_cast<const char*>(from);
  settle();
  for (size_t done = 0; done < bytes;) {
    size_t part = std::min(bytes - done, PinnedPool::kPiece);
    void* piece = backend_.take_pinned();
    if (!piece) {  // no page-locked memory: the runtime stages the copy, and the host waits
      MT_CUDA(
          cudaMemcpyAsync(target + done, source + done, part, cudaMemcpyHostToDevice, outside()));
      MT_CUDA(cudaStreamSynchronize(stream_));
    } else {
      std::memcpy(piece, source + done, part);
      open();
      MT_CUDA(cudaMemcpyAsync(target + done, piece, part, cudaMemcpyHostToDevice, stream_));
      backend_.give_pinned(piece, stream_);
    }
    done += part;
  }
}

void CudaStream::download(void* to, const void* from, size_t bytes) {
  if (downloads_ && bytes >= kLongDownload) return downloads_->run(to, from, bytes, outside());
  // The host memory is not page-locked, so no graph may contain the copy.
  MT_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, outside()));
  synchronize();
}

void* CudaStream::uploaded(const void* from, size_t bytes) {
  void* to = grown(uploaded_, bytes, "tables of sequences");
  upload(to, from, bytes);
  return to;
}

}  // namespace mtrain::cuda
