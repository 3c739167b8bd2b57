#include "cuda_stream.h"

#include <algorithm>
#include <cstring>

#include "check.h"
#include "cuda_backend.h"
#include "mtrain/base/error.h"

namespace mtrain::cuda {

namespace {
constexpr size_t kNormSlots = 65536;
constexpr size_t kLongDownload = size_t{256} << 10;  // worth two pieces of page-locked memory
}

CudaStream::CudaStream(CudaBackend& backend, int device, StreamUse use)
    : backend_(backend), pending_(launches(), kAdamWBatch, kNormBatch, kNormSlots) {
  MT_CUDA(cudaSetDevice(device));
  MT_CUDA(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, device));
  architecture_ = architecture_of(device);
  MT_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  MT_CUDA(cudaEventCreateWithFlags(&ordering_, cudaEventDisableTiming));
  if (use == StreamUse::copies) {
    downloads_ = std::make_unique<PinnedDownload>(
        backend_.api(), PinnedDownload::Pieces{.take = [this] { return backend_.take_pinned(); },
                                               .give = [this](void* piece) { backend_.give_pinned(piece, stream_); }});
    return;
  }
  gemm_ = std::make_unique<GemmPlans>();
  attention_ = std::make_unique<AttentionPlans>();
  backend_.opened(*this);
}

// What is still held back belongs to a run that failed, or to nobody.
CudaStream::~CudaStream() {
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
  auto plain = [this] { return Launch{stream_, processors_, this, scratch_of}; };
  return {.adamw =
              [plain](std::span<const AdamWArgs> list) {
                check(mtrain::cuda::adamw(plain(), list.data(), static_cast<int>(list.size())), "adamw");
              },
          .norms =
              [this, plain](std::span<const SquaredNormArgs> list, size_t first) {
                auto* slots = static_cast<double*>(grown(norms_, kNormSlots * sizeof(double), "norms of gradients"));
                check(squared_norms(plain(), list.data(), static_cast<int>(list.size()), slots + first),
                      "squared_norm");
              }};
}

void CudaStream::settle() {
  join_lanes();
  pending_.flush();
}

void CudaStream::synchronize() {
  settle();
  std::vector<double> norms(pending_.owed());
  if (!norms.empty())
    MT_CUDA(
        cudaMemcpyAsync(norms.data(), norms_.data, norms.size() * sizeof(double), cudaMemcpyDeviceToHost, stream_));
  MT_CUDA(cudaStreamSynchronize(stream_));
  pending_.deliver(norms.data());
}

void CudaStream::order(cudaStream_t first, cudaStream_t then) {
  MT_CUDA(cudaEventRecord(ordering_, first));
  MT_CUDA(cudaStreamWaitEvent(then, ordering_, 0));
}

CudaStream::Place CudaStream::place_of(const GemmArgs& args, bool may_leave, size_t workspace_bytes) {
  pending_.flush();
  int where = may_leave && small_product(args, processors_) ? placing_.place(memory_of(args)) : ProductLanes::kMain;
  if (where == ProductLanes::kMain) {
    join_lanes();
    return {stream_, workspace_bytes > 0 ? grown(workspace_, workspace_bytes, "products' workspace") : nullptr};
  }
  Lane& lane = lanes_[static_cast<size_t>(where)];
  if (!lane.stream) MT_CUDA(cudaStreamCreateWithFlags(&lane.stream, cudaStreamNonBlocking));
  void* workspace = workspace_bytes > 0 ? grown(lane.workspace, workspace_bytes, "products' workspace") : nullptr;
  order(stream_, lane.stream);  // behind whatever made its inputs
  return {lane.stream, workspace};
}

void CudaStream::join_lanes() {
  if (!placing_.busy()) return;
  for (int i = 0; i < ProductLanes::kLanes; ++i)
    if (placing_.used(i)) order(lanes_[static_cast<size_t>(i)].stream, stream_);
  placing_.joined();
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

void* CudaStream::operands(size_t bytes) { return grown(operands_, std::max<size_t>(bytes, 1), "operands of products"); }
float* CudaStream::scalars() { return static_cast<float*>(grown(scalars_, 2 * sizeof(float), "scalars of products")); }

void CudaStream::upload(void* to, const void* from, size_t bytes) {
  auto* target = static_cast<char*>(to);
  auto* source = static_cast<const char*>(from);
  settle();
  for (size_t done = 0; done < bytes;) {
    size_t part = std::min(bytes - done, PinnedPool::kPiece);
    void* piece = backend_.take_pinned();
    if (!piece) {  // no page-locked memory: the runtime stages it, and the host waits
      MT_CUDA(cudaMemcpyAsync(target + done, source + done, part, cudaMemcpyHostToDevice, stream_));
      MT_CUDA(cudaStreamSynchronize(stream_));
    } else {
      std::memcpy(piece, source + done, part);
      MT_CUDA(cudaMemcpyAsync(target + done, piece, part, cudaMemcpyHostToDevice, stream_));
      backend_.give_pinned(piece, stream_);
    }
    done += part;
  }
}

void CudaStream::download(void* to, const void* from, size_t bytes) {
  if (downloads_ && bytes >= kLongDownload) return downloads_->run(to, from, bytes, handle());
  MT_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, handle()));
  synchronize();
}

void* CudaStream::uploaded(const void* from, size_t bytes) {
  void* to = grown(uploaded_, bytes, "tables of sequences");
  upload(to, from, bytes);
  return to;
}

}  // namespace mtrain::cuda
