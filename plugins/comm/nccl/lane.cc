#include "lane.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "job.h"

namespace mtrain::nccl {

namespace {

struct NcclType {
  ncclDataType_t type;
  size_t per_element;  // how many of them make one element
};

/// Types that NCCL does not support are only copied, as bytes.
NcclType nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return {ncclFloat32, 1};
    case DType::bf16:
      return {ncclBfloat16, 1};
    case DType::f16:
      return {ncclFloat16, 1};
    case DType::f64:
      return {ncclFloat64, 1};
    case DType::i32:
      return {ncclInt32, 1};
    case DType::i64:
      return {ncclInt64, 1};
    default:
      return {ncclUint8, size_of(dtype)};
  }
}

template <size_t N>
void put(char (&to)[N], const std::string& text) {
  std::memset(to, 0, N);
  std::memcpy(to, text.data(), std::min(text.size(), N - 1));
}

}  // namespace

Lane::Lane(Job& job, int rank, int size, std::string name, int device,
           const std::function<Pending(const Record& mine, std::span<Record> all)>& exchange)
    : job_(job),
      rank_(rank),
      size_(size),
      name_(std::move(name)),
      device_(device),
      records_(static_cast<size_t>(size)) {
  Record& mine = records_[static_cast<size_t>(rank)];
  if (rank == 0) job_.check(job_.library().get_unique_id(&mine.id), nullptr, "ncclGetUniqueId");
  char host[64] = "";
  gethostname(host, sizeof host - 1);
  put(mine.host, host);
  put(mine.gpu, job_.device().identity(device));
  mine.world_rank = job_.world_rank();
  exchange_ = exchange(mine, records_);
}

Lane::~Lane() {
  if (stream_) job_.device().free_stream(stream_);
}

// NCCL's own error is less clear, and old versions hang.
void Lane::require_own_gpus() const {
  for (size_t b = 0; b < records_.size(); ++b)
    for (size_t a = 0; a < b; ++a) {
      const Record &one = records_[a], &other = records_[b];
      if (std::strcmp(one.host, other.host) != 0 || std::strcmp(one.gpu, other.gpu) != 0) continue;
      throw Error(
          ErrorClass::config,
          cat("ranks ", one.world_rank, " and ", other.world_rank, " both use the GPU ", one.gpu,
              " of ", one.host, ", but dist.comm=nccl needs a separate GPU for each rank"),
          "start as many ranks on each machine as it has GPUs, check that CUDA_VISIBLE_DEVICES "
          "gives each rank a separate GPU, or set dist.comm=mpi, with which ranks may share a GPU");
    }
}

void Lane::advance() {
  if (state_ == State::exchanging) {
    if (!exchange_.done()) return;
    connect();
  }
  if (state_ == State::connecting) {
    if (!settled()) return;
    state_ = State::ready;
  }
  while (!queue_.empty()) {
    if (state_ == State::ready) issue();
    if (!settled()) return;
    finish_issue();
  }
}

void Lane::connect() {
  require_own_gpus();
  job_.device().use(device_);
  stream_ = job_.device().make_stream();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = name_.c_str();
  std::lock_guard lock(job_.mutex());
  job_.require_sound();
  job_.check(job_.library().init(&comm_, size_, records_[0].id, rank_, &config), comm_,
             cat("connecting ", name_));
  state_ = State::connecting;
}

/// Whether NCCL has completed the last request.
bool Lane::settled() {
  std::lock_guard lock(job_.mutex());
  job_.require_sound();
  ncclResult_t state = ncclSuccess;
  job_.check(job_.library().async_error(comm_, &state), comm_, name_);
  if (state == ncclInProgress) return false;
  job_.check(state, comm_, name_);
  return true;
}

void Lane::issue() {
  Op& op = *queue_.front();
  job_.device().use(device_);
  job_.device().wait_on_stream(stream_, op.ready.get());
  op.ready.reset();
  std::lock_guard lock(job_.mutex());
  job_.require_sound();
  register_kept();
  job_.check(call(op), comm_, op.place);
  state_ = State::issuing;
}

void Lane::keep(std::shared_ptr<Kept> memory) {
  memory->lane = this;
  kept_.push_back(std::move(memory));
}

void Lane::register_kept() {
  for (auto& kept : kept_) {
    if (kept->registered) continue;
    job_.check(job_.library().comm_register(comm_, kept->data, kept->bytes, &kept->handle), comm_,
               cat("registering ", human_bytes(kept->bytes), " with ", name_));
    kept->registered = true;
  }
}

void Lane::let_go(Kept& memory) noexcept {
  if (memory.registered && comm_) job_.library().comm_deregister(comm_, memory.handle);
  memory.registered = false;
  std::erase_if(kept_, [&](const auto& kept) { return kept.get() == &memory; });
}

void Lane::finish_issue() {
  Op& op = *queue_.front();
  job_.device().record(op.finished.get(), stream_);
  op.issued = true;
  job_.watch(*this, op.place, op.finished);
  queue_.pop_front();
  state_ = State::ready;
}

ncclResult_t Lane::call(const Op& op) {
  const Library& nccl = job_.library();
  const CommCall& c = op.call;
  auto stream = static_cast<cudaStream_t>(stream_);
  auto [type, per_element] = nccl_type(c.dtype);
  size_t count = static_cast<size_t>(c.count) * per_element;
  switch (c.kind) {
    case CommKind::all_reduce:
      return nccl.all_reduce(c.in, c.out, count, type, ncclSum, comm_, stream);
    case CommKind::reduce_scatter:
      return nccl.reduce_scatter(c.in, c.out, count, type, ncclSum, comm_, stream);
    case CommKind::all_gather:
      return nccl.all_gather(c.in, c.out, count, type, comm_, stream);
    case CommKind::broadcast:
      return nccl.broadcast(c.in, c.out, count, type, c.peer, comm_, stream);
    case CommKind::all_to_all:
      return exchange_blocks(op, type, per_element);
    case CommKind::send:
      return nccl.send(c.in, count, type, 1 - rank_, comm_, stream);
    case CommKind::recv:
      return nccl.recv(c.out, count, type, 1 - rank_, comm_, stream);
    case CommKind::barrier:
    case CommKind::split:
      break;
  }
  MT_CHECK(false, describe(c), " on a lane");
  return ncclInvalidUsage;
}

// Including the rank's own block, which NCCL copies.
ncclResult_t Lane::exchange_blocks(const Op& op, ncclDataType_t type, size_t per_element) {
  const Library& nccl = job_.library();
  const CommCall& c = op.call;
  auto stream = static_cast<cudaStream_t>(stream_);
  size_t element = size_of(c.dtype);
  auto count_of = [&](const std::vector<int64_t>& counts, int r) {
    return static_cast<size_t>(c.uneven ? counts[static_cast<size_t>(r)] : c.count);
  };
  ncclResult_t result = nccl.group_start();
  size_t sent = 0, received = 0;
  for (int r = 0; r < size_ && (result == ncclSuccess || result == ncclInProgress); ++r) {
    size_t out = count_of(op.send_counts, r), in = count_of(op.recv_counts, r);
    if (out > 0)
      result = nccl.send(static_cast<const char*>(c.in) + sent * element, out * per_element, type,
                         r, comm_, stream);
    if (in > 0 && (result == ncclSuccess || result == ncclInProgress))
      result = nccl.recv(static_cast<char*>(c.out) + received * element, in * per_element, type, r,
                         comm_, stream);
    sent += out, received += in;
  }
  ncclResult_t end = nccl.group_end();
  return result == ncclSuccess || result == ncclInProgress ? end : result;
}

void Lane::abort() noexcept {
  if (comm_) job_.library().abort(comm_);
  comm_ = nullptr;
}

void Lane::begin_end() noexcept {
  if (comm_) job_.library().finalize(comm_);
}

bool Lane::ended() noexcept {
  if (!comm_) return true;
  ncclResult_t state = ncclSuccess;
  if (job_.library().async_error(comm_, &state) == ncclSuccess && state == ncclInProgress)
    return false;
  job_.library().destroy(comm_);
  comm_ = nullptr;
  return true;
}

}  // namespace mtrain::nccl
