#include "mtrain/comm/staged_call.h"

#include <numeric>

#include "mtrain/tensor/execution_context.h"

namespace mtrain {

namespace {

int64_t total(std::span<const int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

class StagedWork final : public Pending::Work {
 public:
  StagedWork(const CommCall& call, const CallExtent& extent,
             const std::function<Pending(const CommCall&)>& start)
      : ctx_(*call.ctx),
        to_(call.out),
        bytes_out_(static_cast<size_t>(extent.out) * size_of(call.dtype)) {
    auto bytes_in = static_cast<size_t>(extent.in) * size_of(call.dtype);
    bool in_place = call.kind == CommKind::all_reduce || call.kind == CommKind::broadcast;
    in_.reset(new std::byte[in_place ? bytes_out_ : bytes_in]);
    if (!in_place) out_.reset(new std::byte[bytes_out_]);
    if (bytes_in > 0) ctx_.backend().copy(ctx_.stream(), in_.get(), call.in, bytes_in);
    CommCall on_host = call;
    on_host.ctx = nullptr;
    on_host.in = call.in ? in_.get() : nullptr;
    on_host.out = !call.out ? nullptr : in_place ? in_.get() : out_.get();
    result_ = on_host.out;
    pending_ = start(on_host);
  }

  bool done() override {
    if (!finished_ && pending_.done()) finish();
    return finished_;
  }
  void wait() override {
    pending_.wait();
    finish();
  }
  void drop() noexcept override { pending_ = {}; }

 private:
  void finish() {
    if (std::exchange(finished_, true)) return;
    if (bytes_out_ > 0) ctx_.backend().copy(ctx_.stream(), to_, result_, bytes_out_);
    in_.reset(), out_.reset();
  }

  ExecutionContext& ctx_;
  void* to_;
  size_t bytes_out_;
  std::unique_ptr<std::byte[]> in_, out_;
  const void* result_ = nullptr;
  Pending pending_;  // last, because it may still use the memory when it is destroyed
  bool finished_ = false;
};

}  // namespace

CallExtent extent_of(const CommCall& call, int rank, int size) {
  switch (call.kind) {
    case CommKind::all_reduce:
      return {call.count, call.count};
    case CommKind::broadcast:
      return {rank == call.peer ? call.count : 0, call.count};
    case CommKind::all_gather:
      return {call.count, call.count * size};
    case CommKind::reduce_scatter:
      return {call.count * size, call.count};
    case CommKind::all_to_all:
      if (call.uneven) return {total(call.send_counts), total(call.recv_counts)};
      return {call.count * size, call.count * size};
    case CommKind::send:
      return {call.count, 0};
    case CommKind::recv:
      return {0, call.count};
    case CommKind::barrier:
    case CommKind::split:
      return {};
  }
  return {};
}

Pending start_staged(const CommCall& call, int rank, int size,
                     const std::function<Pending(const CommCall&)>& start) {
  return Pending(std::make_unique<StagedWork>(call, extent_of(call, rank, size), start));
}

}  // namespace mtrain
