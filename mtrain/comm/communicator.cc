// The arguments of every call are checked and its bytes counted here, and groups of one rank are
// served here, so that implementations receive only valid calls of groups with several ranks.
#include "mtrain/comm/communicator.h"

#include <cstring>
#include <numeric>

#include "mtrain/comm/staged_call.h"
#include "mtrain/tensor/execution_context.h"

namespace mtrain {

namespace {

bool reducible(DType dtype) {
  return is_floating(dtype) || dtype == DType::i32 || dtype == DType::i64;
}

void check(const ConstBuffer& b, const char* what) {
  MT_CHECK(b.count >= 0, what, " has ", b.count, " elements");
  MT_CHECK(b.count == 0 || b.data != nullptr, what, " has ", b.count, " elements and no memory");
}

void check_together(const ConstBuffer& a, const ConstBuffer& b) {
  MT_CHECK(a.dtype == b.dtype, mtrain::name(a.dtype), " and ", mtrain::name(b.dtype));
  MT_CHECK(a.ctx == b.ctx,
           "one buffer is in host memory and the other on a device, or they belong to two runs");
}

void check_reduction(const ConstBuffer& b) {
  MT_CHECK(reducible(b.dtype), "reductions are for floating types, int32 and int64, not ",
           name(b.dtype));
}

int64_t checked_sum(std::span<const int64_t> counts, const char* what) {
  for (int64_t count : counts) MT_CHECK(count >= 0, what, " holds ", count);
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

void copy_alone(const CommCall& call) {
  int64_t count = call.uneven ? call.send_counts[0] : call.count;
  if (call.in == call.out || call.out == nullptr || count == 0) return;
  size_t bytes = static_cast<size_t>(count) * size_of(call.dtype);
  if (call.ctx)
    call.ctx->backend().copy(call.ctx->stream(), call.out, call.in, bytes);
  else
    std::memcpy(call.out, call.in, bytes);
}

}  // namespace

Communicator::~Communicator() = default;

Pending Communicator::begin(const CommCall& call) {
  require_alive(call);
  Pending pending;
  if (size() == 1)
    copy_alone(call);
  else if (call.ctx && !device_memory())
    pending = start_staged(call, rank(), size(),
                           [this](const CommCall& on_host) { return start(on_host); });
  else
    pending = start(call);
  auto& count = counters_[call.kind];
  count.calls += 1;
  count.bytes_sent += bytes_sent(call, rank(), size());
  return pending;
}

Pending Communicator::start_all_reduce(Buffer data, ReduceOp op) {
  check(data, "the buffer");
  check_reduction(data);
  return begin({.kind = CommKind::all_reduce,
                .reduce = op,
                .dtype = data.dtype,
                .count = data.count,
                .in = data.data,
                .out = data.data,
                .ctx = data.ctx});
}

Pending Communicator::start_all_gather(ConstBuffer part, Buffer into) {
  check(part, "the part");
  check(into, "the result");
  check_together(part, into);
  MT_CHECK(into.count == part.count * size(), "a result of ", into.count, " for ", size(),
           " parts of ", part.count);
  return begin({.kind = CommKind::all_gather,
                .dtype = part.dtype,
                .count = part.count,
                .in = part.data,
                .out = into.data,
                .ctx = part.ctx});
}

Pending Communicator::start_reduce_scatter(ConstBuffer data, Buffer part, ReduceOp op) {
  check(data, "the buffer");
  check(part, "the part");
  check_reduction(data);
  check_together(data, part);
  MT_CHECK(data.count == part.count * size(), "a buffer of ", data.count, " for ", size(),
           " parts of ", part.count);
  return begin({.kind = CommKind::reduce_scatter,
                .reduce = op,
                .dtype = data.dtype,
                .count = part.count,
                .in = data.data,
                .out = part.data,
                .ctx = data.ctx});
}

Pending Communicator::start_all_to_all(ConstBuffer data, Buffer into) {
  check(data, "the buffer");
  check(into, "the result");
  check_together(data, into);
  MT_CHECK_EQ(data.count, into.count);
  MT_CHECK(data.count % size() == 0, data.count, " elements do not divide by ", size(), " ranks");
  return begin({.kind = CommKind::all_to_all,
                .dtype = data.dtype,
                .count = data.count / size(),
                .in = data.data,
                .out = into.data,
                .ctx = data.ctx});
}

Pending Communicator::start_all_to_all_v(ConstBuffer data, std::span<const int64_t> send_counts,
                                         Buffer into, std::span<const int64_t> recv_counts) {
  check(data, "the buffer");
  check(into, "the result");
  auto ranks = static_cast<size_t>(size());
  check_together(data, into);
  MT_CHECK_EQ(send_counts.size(), ranks);
  MT_CHECK_EQ(recv_counts.size(), ranks);
  MT_CHECK_EQ(checked_sum(send_counts, "send_counts"), data.count);
  MT_CHECK_EQ(checked_sum(recv_counts, "recv_counts"), into.count);
  auto self = static_cast<size_t>(rank());
  MT_CHECK_EQ(send_counts[self], recv_counts[self]);
  return begin({.kind = CommKind::all_to_all,
                .dtype = data.dtype,
                .in = data.data,
                .out = into.data,
                .ctx = data.ctx,
                .uneven = true,
                .send_counts = send_counts,
                .recv_counts = recv_counts});
}

Pending Communicator::start_broadcast(Buffer data, int root) {
  check(data, "the buffer");
  MT_CHECK(root >= 0 && root < size(), "root ", root, " of ", size(), " ranks");
  return begin({.kind = CommKind::broadcast,
                .dtype = data.dtype,
                .peer = root,
                .count = data.count,
                .in = data.data,
                .out = data.data,
                .ctx = data.ctx});
}

Pending Communicator::start_send(ConstBuffer data, int to, int tag) {
  check(data, "the buffer");
  MT_CHECK(to >= 0 && to < size() && to != rank(), "rank ", rank(), " of ", size(), " sends to ",
           to);
  MT_CHECK(tag >= 0 && tag <= kMaxTag, "tag ", tag);
  return begin({.kind = CommKind::send,
                .dtype = data.dtype,
                .peer = to,
                .tag = tag,
                .count = data.count,
                .in = data.data,
                .ctx = data.ctx});
}

Pending Communicator::start_recv(Buffer data, int from, int tag) {
  check(data, "the buffer");
  MT_CHECK(from >= 0 && from < size() && from != rank(), "rank ", rank(), " of ", size(),
           " receives from ", from);
  MT_CHECK(tag >= 0 && tag <= kMaxTag, "tag ", tag);
  return begin({.kind = CommKind::recv,
                .dtype = data.dtype,
                .peer = from,
                .tag = tag,
                .count = data.count,
                .out = data.data,
                .ctx = data.ctx});
}

Pending Communicator::start_barrier() { return begin({.kind = CommKind::barrier}); }

std::unique_ptr<Communicator> Communicator::split(int color, int key, std::string name) {
  CommCall call{.kind = CommKind::split, .peer = color, .tag = key};
  require_alive(call);
  auto group = make_split(call, std::move(name));
  counters_[CommKind::split].calls += 1;
  return group;
}

}  // namespace mtrain
