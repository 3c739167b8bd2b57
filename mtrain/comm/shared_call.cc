#include "mtrain/comm/shared_call.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <thread>

#include "mtrain/comm/reduce.h"

namespace mtrain {

namespace {

// The bytes that a piece reads or writes over all members: small compared with a core's L2 cache,
// and long compared with the cost of a claim.
constexpr int64_t kPieceBytes = 256 << 10;
constexpr int64_t kLeastStepBytes = 4 << 10;
constexpr int64_t kSealed = std::numeric_limits<int64_t>::max() / 2;

const std::byte* at(const void* data, int64_t element, DType dtype) {
  return static_cast<const std::byte*>(data) + element * static_cast<int64_t>(size_of(dtype));
}
std::byte* at(void* data, int64_t element, DType dtype) {
  return static_cast<std::byte*>(data) + element * static_cast<int64_t>(size_of(dtype));
}
void copy(void* to, const void* from, int64_t count, DType dtype) {
  if (count > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(count) * size_of(dtype));
}

// The number of copies or reads per element of a rank's part, over all members.
int64_t fan(CommKind kind, int64_t members) {
  bool square = kind == CommKind::all_gather || kind == CommKind::reduce_scatter ||
                kind == CommKind::all_to_all;
  return square ? members * members : members;
}

}  // namespace

void SharedCall::post(int member, const CommCall& call) {
  Member& m = members_[static_cast<size_t>(member)];
  m.call = call;
  if (call.uneven) {
    m.send_counts.assign(call.send_counts.begin(), call.send_counts.end());
    m.recv_counts.assign(call.recv_counts.begin(), call.recv_counts.end());
    m.call.send_counts = m.send_counts;
    m.call.recv_counts = m.recv_counts;
  }
  m.posted = true;
  ++num_posted_;
}

const SharedCall::Member* SharedCall::any_posted() const {
  auto found =
      std::find_if(members_.begin(), members_.end(), [](const Member& m) { return m.posted; });
  return found == members_.end() ? nullptr : &*found;
}

void SharedCall::open() {
  const CommCall& call = members_[0].call;
  extent_ = call.count;
  for (const Member& m : members_)
    for (int64_t count : m.send_counts) extent_ = std::max(extent_, count);
  auto element = static_cast<int64_t>(size_of(call.dtype));
  int64_t bytes = std::max(kLeastStepBytes,
                           kPieceBytes / fan(call.kind, static_cast<int64_t>(members_.size())));
  step_ = bytes / element;
  pieces_ = call.kind == CommKind::split ? 0 : (extent_ + step_ - 1) / step_;
  state_.store(pieces_ == 0 ? State::complete : State::ready);
}

bool SharedCall::help() {
  if (state() != State::ready || next_.load() >= pieces_) return false;
  struct Active {
    std::atomic<int>& count;
    explicit Active(std::atomic<int>& c) : count(c) { count.fetch_add(1); }
    ~Active() { count.fetch_sub(1); }
  } active(active_);
  bool last = false;
  for (int64_t piece; (piece = next_.fetch_add(1)) < pieces_;) {
    carry_out(piece);
    if (finished_.fetch_add(1) + 1 != pieces_) continue;
    state_.store(State::complete);
    last = true;
  }
  return last;
}

void SharedCall::seal() noexcept {
  // A helper increments the count before it claims: either it sees the seal, or it is counted here.
  next_.store(kSealed);
  while (active_.load() != 0) std::this_thread::yield();
}

void SharedCall::carry_out(int64_t piece) {
  int64_t begin = piece * step_, count = std::min(step_, extent_ - begin);
  const CommCall& call = members_[0].call;
  switch (call.kind) {
    case CommKind::all_reduce:
      return reduce_all(begin, count);
    case CommKind::reduce_scatter:
      return reduce_parts(begin, count);
    case CommKind::all_gather:
      return gather(begin, count);
    case CommKind::all_to_all:
      return call.uneven ? exchange_uneven(begin, count) : exchange(begin, count);
    case CommKind::broadcast: {
      const void* from = members_[static_cast<size_t>(call.peer)].call.in;
      for (Member& m : members_)
        if (m.call.out != from)
          copy(at(m.call.out, begin, call.dtype), at(from, begin, call.dtype), count, call.dtype);
      return;
    }
    case CommKind::send:
    case CommKind::recv:
      return copy(at(members_[1].call.out, begin, call.dtype), at(call.in, begin, call.dtype),
                  count, call.dtype);
    case CommKind::barrier:
    case CommKind::split:
      return;
  }
}

void SharedCall::reduce_all(int64_t begin, int64_t count) {
  const CommCall& call = members_[0].call;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (const Member& m : members_) {
    inputs.push_back(at(m.call.in, begin, call.dtype));
    outputs.push_back(at(m.call.out, begin, call.dtype));
  }
  reduce_in_order(inputs, outputs, count, call.dtype, call.reduce);
}

void SharedCall::reduce_parts(int64_t begin, int64_t count) {
  const CommCall& call = members_[0].call;
  std::vector<const void*> inputs(members_.size());
  for (size_t part = 0; part < members_.size(); ++part) {
    for (size_t r = 0; r < members_.size(); ++r)
      inputs[r] =
          at(members_[r].call.in, static_cast<int64_t>(part) * call.count + begin, call.dtype);
    void* output = at(members_[part].call.out, begin, call.dtype);
    reduce_in_order(inputs, {&output, 1}, count, call.dtype, call.reduce);
  }
}

void SharedCall::gather(int64_t begin, int64_t count) {
  const CommCall& call = members_[0].call;
  for (size_t source = 0; source < members_.size(); ++source) {
    const void* from = at(members_[source].call.in, begin, call.dtype);
    for (Member& m : members_)
      copy(at(m.call.out, static_cast<int64_t>(source) * call.count + begin, call.dtype), from,
           count, call.dtype);
  }
}

void SharedCall::exchange(int64_t begin, int64_t count) {
  const CommCall& call = members_[0].call;
  for (size_t to = 0; to < members_.size(); ++to)
    for (size_t from = 0; from < members_.size(); ++from)
      copy(at(members_[to].call.out, static_cast<int64_t>(from) * call.count + begin, call.dtype),
           at(members_[from].call.in, static_cast<int64_t>(to) * call.count + begin, call.dtype),
           count, call.dtype);
}

void SharedCall::exchange_uneven(int64_t begin, int64_t count) {
  DType dtype = members_[0].call.dtype;
  std::vector<int64_t> read(members_.size(), 0);  // the start of the block for `to` in each source
  for (size_t to = 0; to < members_.size(); ++to) {
    int64_t write = 0;
    for (size_t from = 0; from < members_.size(); ++from) {
      int64_t block = members_[from].send_counts[to];
      if (begin < block)
        copy(at(members_[to].call.out, write + begin, dtype),
             at(members_[from].call.in, read[from] + begin, dtype), std::min(count, block - begin),
             dtype);
      read[from] += block;
      write += block;
    }
  }
}

}  // namespace mtrain
