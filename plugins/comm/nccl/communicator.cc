#include "communicator.h"

#include <mutex>

#include "mtrain/base/log.h"
#include "mtrain/comm/failure.h"
#include "mtrain/tensor/execution_context.h"

namespace mtrain::nccl {

namespace {

/// The same call on another communicator.
Pending on(Communicator& host, const CommCall& c) {
  auto n = static_cast<int64_t>(host.size());
  auto buffer = [&](void* data, int64_t count) {
    Buffer b(data, count, c.dtype);
    b.ctx = c.ctx;
    return b;
  };
  auto in = [&](int64_t count) { return ConstBuffer(buffer(const_cast<void*>(c.in), count)); };
  auto total = [](std::span<const int64_t> counts) {
    int64_t sum = 0;
    for (int64_t count : counts) sum += count;
    return sum;
  };
  switch (c.kind) {
    case CommKind::all_reduce:
      return host.start_all_reduce(buffer(c.out, c.count), c.reduce);
    case CommKind::all_gather:
      return host.start_all_gather(in(c.count), buffer(c.out, c.count * n));
    case CommKind::reduce_scatter:
      return host.start_reduce_scatter(in(c.count * n), buffer(c.out, c.count), c.reduce);
    case CommKind::all_to_all:
      if (!c.uneven) return host.start_all_to_all(in(c.count * n), buffer(c.out, c.count * n));
      return host.start_all_to_all_v(in(total(c.send_counts)), c.send_counts,
                                     buffer(c.out, total(c.recv_counts)), c.recv_counts);
    case CommKind::broadcast:
      return host.start_broadcast(buffer(c.out, c.count), c.peer);
    case CommKind::send:
      return host.start_send(in(c.count), c.peer, c.tag);
    case CommKind::recv:
      return host.start_recv(buffer(c.out, c.count), c.peer, c.tag);
    case CommKind::barrier:
    case CommKind::split:
      break;
  }
  return host.start_barrier();
}

class NcclWork final : public Pending::Work {
 public:
  NcclWork(std::shared_ptr<Job> job, std::shared_ptr<Communicator> host, std::shared_ptr<Op> op)
      : job_(std::move(job)), host_(std::move(host)), op_(std::move(op)) {}

  bool done() override {
    if (over_) return true;
    job_->require_alive(*host_, op_->call);
    job_->progress();
    over_ = op_->issued && job_->device().done(op_->finished.get());
    return over_;
  }
  // The stream waits, not the host.
  void wait() override {
    if (std::exchange(over_, true)) return;
    if (!op_->issued) job_->await_issue(*op_, *host_);
    job_->device().wait_on_stream(op_->call.ctx->stream().native(), op_->finished.get());
    op_->finished.reset();
  }
  void drop() noexcept override {
    if (!over_)
      job_->fail(cat("it dropped ", op_->place, " before it was complete"), ErrorClass::peer);
  }

 private:
  std::shared_ptr<Job> job_;
  std::shared_ptr<Communicator> host_;
  std::shared_ptr<Op> op_;
  bool over_ = false;
};

bool reduces(CommKind kind) {
  return kind == CommKind::all_reduce || kind == CommKind::reduce_scatter;
}

std::span<std::byte> bytes_of(std::span<Lane::Record> records) {
  return std::as_writable_bytes(records);
}

}  // namespace

// Plain allocations could be registered too, but NCCL then accesses them directly only over the
// network: inside a machine it does so only with an extra option, and reductions in the switch
// (NVLink SHARP) need memory allocated by NCCL.
std::shared_ptr<void> NcclCommunicator::network_memory(size_t bytes) {
  const Library& nccl = job_->library();
  if (size() == 1) return nullptr;
  if (!nccl.registers()) {
    static std::once_flag warn_once;
    std::call_once(warn_once, [&] {
      log_warn("NCCL ", nccl.version(),
               " cannot register memory: ddp.registered_buffers has no effect; 2.19 or later can");
    });
    return nullptr;
  }
  void* data = nullptr;
  ncclResult_t result = nccl.memory_alloc(&data, bytes);
  MT_USER_CHECK(
      result == ncclSuccess, ErrorClass::config,
      cat("no ", human_bytes(bytes),
          " of GPU memory for registered buffers: ncclMemAlloc: ", explain(nccl, result, nullptr)),
      "make train.micro_batch_size smaller, set model.recompute=full, or "
      "ddp.registered_buffers=false");
  return {data, [free = nccl.memory_free](void* memory) { free(memory); }};
}

// Only of collectives: messages have separate lanes.
std::shared_ptr<void> NcclCommunicator::register_memory(void* data, size_t bytes) {
  if (size() == 1 || !job_->library().registers()) return nullptr;
  auto kept = std::make_shared<Kept>(Kept{.data = data, .bytes = bytes});
  std::lock_guard lock(job_->mutex());
  if (collectives_)
    collectives_->keep(kept);
  else
    kept_.push_back(kept);
  return {data, [job = job_, kept](void*) {
            std::lock_guard letting_go(job->mutex());
            kept->gone = true;
            if (kept->lane) kept->lane->let_go(*kept);
          }};
}

Lane& NcclCommunicator::collective_lane(int device) {
  if (collectives_) return *collectives_;
  collectives_ = &job_->add(std::make_unique<Lane>(
      *job_, rank(), size(), name(), device,
      [this](const Lane::Record&, std::span<Lane::Record> all) {
        std::span<std::byte> bytes = bytes_of(all);
        auto each = static_cast<int64_t>(sizeof(Lane::Record));
        ConstBuffer mine(bytes.data() + static_cast<int64_t>(rank()) * each, each, DType::u8);
        return host_->start_all_gather(
            mine, Buffer(bytes.data(), static_cast<int64_t>(bytes.size()), DType::u8));
      }));
  std::lock_guard lock(job_->mutex());
  for (auto& kept : std::exchange(kept_, {}))
    if (!kept->gone) collectives_->keep(std::move(kept));
  return *collectives_;
}

// The sender is its first rank and distributes NCCL's id.
Lane& NcclCommunicator::message_lane(const CommCall& call, int device) {
  Lane*& lane = messages_[{call.kind, call.peer, call.tag}];
  if (lane) return *lane;
  bool sends = call.kind == CommKind::send;
  int from = sends ? rank() : call.peer, to = sends ? call.peer : rank();
  std::string text = cat(name(), " ", from, "-", to, " tag ", call.tag);
  lane = &job_->add(std::make_unique<Lane>(
      *job_, sends ? 0 : 1, 2, text, device, [&](const Lane::Record&, std::span<Lane::Record> all) {
        std::span<std::byte> first = bytes_of(all.first(1));
        Buffer record(first.data(), static_cast<int64_t>(first.size()), DType::u8);
        return sends ? host_->start_send(record, to, call.tag)
                     : host_->start_recv(record, from, call.tag);
      }));
  return *lane;
}

// Maxima and minima go through the host, because NCCL's lose a NaN.
Pending NcclCommunicator::start(const CommCall& call) {
  if (!call.ctx || (reduces(call.kind) && call.reduce != ReduceOp::sum)) return on(*host_, call);
  int device = call.ctx->device().index;
  job_->device().use(device);
  bool message = call.kind == CommKind::send || call.kind == CommKind::recv;
  Lane& lane = message ? message_lane(call, device) : collective_lane(device);
  auto op = std::make_shared<Op>();
  op->call = call;
  op->send_counts.assign(call.send_counts.begin(), call.send_counts.end());
  op->recv_counts.assign(call.recv_counts.begin(), call.recv_counts.end());
  op->call.send_counts = op->call.recv_counts = {};
  op->place = call_place(call, ++calls_, name(), world_ranks());
  op->ready = job_->events().take();
  op->finished = job_->events().take();
  job_->device().record(op->ready.get(), call.ctx->stream().native());
  lane.add(op);
  job_->progress();
  return Pending(std::make_unique<NcclWork>(job_, host_, op));
}

std::unique_ptr<Communicator> NcclCommunicator::make_split(const CommCall& call, std::string name) {
  std::shared_ptr<Communicator> group = host_->split(call.peer, call.tag, std::move(name));
  return group ? std::make_unique<NcclCommunicator>(job_, std::move(group)) : nullptr;
}

}  // namespace mtrain::nccl
