#include "mtrain/message_comm/collective.h"

#include <algorithm>
#include <cstring>

#include "mtrain/comm/reduce.h"

namespace mtrain::message_comm {

namespace {

// The bytes of all members in one round, and the number of rounds in progress, so that the latency
// of one overlaps with the copies of another.
constexpr int64_t kRoundBytes = 2 << 20;
constexpr int64_t kLeastMessageBytes = 64 << 10;
constexpr size_t kRoundsAtOnce = 2;
constexpr uint64_t kTagWindow =
    8192;  // number of calls of a group whose messages must be distinguishable
constexpr int kHeaderPhase = 3;

const std::byte* at(const void* data, size_t bytes) {
  return static_cast<const std::byte*>(data) + bytes;
}
std::byte* at(void* data, size_t bytes) { return static_cast<std::byte*>(data) + bytes; }
void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace

CollectiveCall::CollectiveCall(std::shared_ptr<Group> group, const CommCall& call,
                               std::string_view attached)
    : StartedCall(group, call, ++group->num_collectives),
      send_counts_(call.send_counts.begin(), call.send_counts.end()),
      recv_counts_(call.recv_counts.begin(), call.recv_counts.end()),
      headers_(new std::byte[2 * static_cast<size_t>(n()) * kMostHeaderBytes]),
      header_index_(static_cast<size_t>(n())),
      came_(static_cast<size_t>(n()), false),
      calls_(static_cast<size_t>(n())) {
  call_.send_counts = call_.recv_counts = {};
  send_headers(attached);
}

std::byte* CollectiveCall::header_from(int member) const {
  return headers_.get() + static_cast<size_t>(member) * kMostHeaderBytes;
}
std::byte* CollectiveCall::header_to(int member) const {
  return headers_.get() + static_cast<size_t>(n() + member) * kMostHeaderBytes;
}

int CollectiveCall::tag(int phase) const {
  return static_cast<int>(number_ % kTagWindow) * 4 + phase;
}

// The position of the elements for `member` in this rank's input.
CollectiveCall::Block CollectiveCall::to(int member) const {
  switch (call_.kind) {
    case CommKind::all_reduce:
    case CommKind::all_gather:
      return {0, call_.count};
    case CommKind::broadcast:
      return {0, me() == call_.peer && member != me() ? call_.count : 0};
    case CommKind::reduce_scatter:
      return {member * call_.count, call_.count};
    case CommKind::all_to_all: {
      if (!call_.uneven) return {member * call_.count, call_.count};
      Block block{0, send_counts_[static_cast<size_t>(member)]};
      for (int r = 0; r < member; ++r) block.begin += send_counts_[static_cast<size_t>(r)];
      return block;
    }
    default:
      return {};
  }
}

// The position of the elements from `member` in this rank's output; for reductions, their number.
CollectiveCall::Block CollectiveCall::from(int member) const {
  switch (call_.kind) {
    case CommKind::all_reduce:
    case CommKind::reduce_scatter:
      return {0, call_.count};
    case CommKind::broadcast:
      return {0, member == call_.peer && member != me() ? call_.count : 0};
    case CommKind::all_gather:
      return {member * call_.count, call_.count};
    case CommKind::all_to_all: {
      if (!call_.uneven) return {member * call_.count, call_.count};
      Block block{0, recv_counts_[static_cast<size_t>(member)]};
      for (int r = 0; r < member; ++r) block.begin += recv_counts_[static_cast<size_t>(r)];
      return block;
    }
    default:
      return {};
  }
}

bool CollectiveCall::in_header(int64_t count) const { return bytes(count) <= Header::kMostInline; }

void CollectiveCall::send_headers(std::string_view attached) {
  // Receives are started first: some headers may have arrived already.
  for (int r = 0; r < n(); ++r) {
    if (r == me()) continue;
    header_index_[static_cast<size_t>(r)] = static_cast<size_t>(r < me() ? r : r - 1);
    headers_in_.recv(*group_->channel, header_from(r), kMostHeaderBytes, r, tag(kHeaderPhase));
  }
  for (int r = 0; r < n(); ++r) {
    Header header{.number = number_,
                  .count = call_.uneven ? to(r).count : call_.count,
                  .expected = call_.uneven ? from(r).count : 0,
                  .peer = call_.peer,
                  .tag = call_.tag,
                  .kind = call_.kind,
                  .reduce = call_.reduce,
                  .dtype = call_.dtype,
                  .uneven = call_.uneven};
    // This rank's own header is stored with the headers of the others.
    std::byte* place = r == me() ? header_from(r) : header_to(r);
    size_t length = sizeof(Header);
    std::memcpy(place, &header, length);
    if (call_.kind == CommKind::split) {
      place[length] = static_cast<std::byte>(attached.size());
      std::memcpy(place + length + 1, attached.data(), attached.size());
      length += 1 + attached.size();
    } else if (Block block = to(r); in_header(block.count)) {
      copy_bytes(place + length, at(call_.in, bytes(block.begin)), bytes(block.count));
      length += bytes(block.count);
    }
    if (r != me()) headers_out_.send(*group_->channel, place, length, r, tag(kHeaderPhase));
  }
  came_[static_cast<size_t>(me())] = true;
  calls_[static_cast<size_t>(me())] = call_;
  num_came_ = 1;
}

std::string_view CollectiveCall::attached(int member) const {
  const std::byte* place = header_from(member) + sizeof(Header);
  return {reinterpret_cast<const char*>(place + 1), static_cast<size_t>(place[0])};
}

bool CollectiveCall::headers_are_in() {
  for (int r = 0; r < n() && num_came_ < n(); ++r) {
    auto index = static_cast<size_t>(r);
    if (came_[index] || !headers_in_.done(header_index_[index])) continue;
    Header theirs;
    std::memcpy(static_cast<void*>(&theirs), header_from(r), sizeof(Header));
    CommCall mine = call_;
    if (call_.uneven) mine.count = from(r).count;
    if (!fits(r, theirs, mine, call_.uneven ? to(r).count : 0)) return false;
    calls_[index] = theirs.call();
    came_[index] = true;
    ++num_came_;
  }
  return num_came_ == n();
}

bool CollectiveCall::step() {
  if (!in_rounds_) {
    if (!headers_are_in()) return false;
    in_rounds_ = true;
    take_from_headers();
    plan_rounds();
  }
  return step_rounds() && headers_out_.done();
}

void CollectiveCall::take_from_headers() {
  auto data = [this](int member) { return header_from(member) + sizeof(Header); };
  if (reduces()) {
    if (!in_header(call_.count)) return;
    std::vector<const void*> inputs;
    for (int r = 0; r < n(); ++r) inputs.push_back(data(r));
    void* output = call_.out;
    reduce_in_order(inputs, {&output, 1}, call_.count, call_.dtype, call_.reduce);
    return;
  }
  if (call_.kind == CommKind::barrier || call_.kind == CommKind::split) return;
  for (int r = 0; r < n(); ++r) {
    Block block = from(r);
    if (r == me())
      copy_bytes(at(call_.out, bytes(block.begin)), at(call_.in, bytes(to(r).begin)),
                 bytes(block.count));
    else if (in_header(block.count))
      copy_bytes(at(call_.out, bytes(block.begin)), data(r), bytes(block.count));
  }
}

void CollectiveCall::plan_rounds() {
  extent_ = call_.count;
  for (int r = 0; r < n() && call_.uneven; ++r)
    if (r != me()) extent_ = std::max({extent_, to(r).count, from(r).count});
  if (in_header(extent_)) extent_ = 0;
  int64_t share = two_phases() ? kRoundBytes : std::max(kRoundBytes / n(), kLeastMessageBytes);
  step_ = share / static_cast<int64_t>(size_of(call_.dtype));
}

bool CollectiveCall::step_rounds() {
  while (next_ < extent_ && rounds_.size() < kRoundsAtOnce) {
    rounds_.push_back({.begin = next_, .count = std::min(step_, extent_ - next_)});
    next_ += step_;
    post(rounds_.back());
  }
  // Messages of one phase must be posted in the order of rounds on all ranks: no round overtakes
  // another.
  bool earlier_in_first_phase = false;
  for (Round& round : rounds_) {
    if (two_phases() && round.phase == 0 && !earlier_in_first_phase && round.batch.done()) {
      finish_scatter(round);
      data_moved();
      round.phase = 1;
      round.batch = Batch();
      post(round);
    }
    earlier_in_first_phase |= two_phases() && round.phase == 0;
  }
  while (!rounds_.empty() && rounds_.front().phase == (two_phases() ? 1 : 0) &&
         rounds_.front().batch.done()) {
    if (call_.kind == CommKind::reduce_scatter) finish_scatter(rounds_.front());
    data_moved();
    rounds_.pop_front();
  }
  return rounds_.empty() && next_ >= extent_;
}

CollectiveCall::Block CollectiveCall::slice(const Round& round, int member) const {
  if (call_.kind == CommKind::reduce_scatter)
    return {member * call_.count + round.begin, round.count};
  int64_t begin = round.count * member / n(), end = round.count * (member + 1) / n();
  return {round.begin + begin, end - begin};
}

void CollectiveCall::send(int to, const void* data, Block block, int phase, Batch& batch) {
  if (block.count > 0)
    batch.send(*group_->channel, at(data, bytes(block.begin)), bytes(block.count), to, tag(phase));
}

void CollectiveCall::recv(int from, void* data, Block block, int phase, Batch& batch) {
  if (block.count > 0)
    batch.recv(*group_->channel, at(data, bytes(block.begin)), bytes(block.count), from,
               tag(phase));
}

void CollectiveCall::post(Round& round) {
  if (call_.kind == CommKind::reduce_scatter || (two_phases() && round.phase == 0))
    post_scatter(round);
  else if (two_phases())
    post_gather(round);
  else
    post_exchange(round);
}

// Each rank gets its slice: from every rank to be combined, or from the root.
void CollectiveCall::post_scatter(Round& round) {
  Block mine = slice(round, me());
  if (call_.kind == CommKind::broadcast) {
    if (me() != call_.peer) return recv(call_.peer, call_.out, mine, 0, round.batch);
    for (int r = 0; r < n(); ++r)
      if (r != me()) send(r, call_.in, slice(round, r), 0, round.batch);
    return;
  }
  round.memory.reset(new std::byte[static_cast<size_t>(n()) * bytes(mine.count)]);
  for (int i = 1; i < n(); ++i) {  // every rank starts with a different peer
    int r = (me() + i) % n();
    recv(r, round.memory.get(), {r * mine.count, mine.count}, 0, round.batch);
  }
  for (int i = 1; i < n(); ++i) {
    int r = (me() + n() - i) % n();
    send(r, call_.in, slice(round, r), 0, round.batch);
  }
}

void CollectiveCall::finish_scatter(Round& round) {
  if (!reduces()) return;
  Block mine = slice(round, me());
  std::vector<const void*> inputs;
  for (int r = 0; r < n(); ++r)
    inputs.push_back(r == me() ? at(call_.in, bytes(mine.begin))
                               : round.memory.get() + static_cast<size_t>(r) * bytes(mine.count));
  int64_t begin = call_.kind == CommKind::reduce_scatter ? round.begin : mine.begin;
  void* output = at(call_.out, bytes(begin));
  reduce_in_order(inputs, {&output, 1}, mine.count, call_.dtype, call_.reduce);
}

// Every rank sends its slice to all that lack it.
void CollectiveCall::post_gather(Round& round) {
  bool root_has_all = call_.kind == CommKind::broadcast;
  for (int i = 1; i < n(); ++i) {
    int r = (me() + i) % n();
    if (!(root_has_all && me() == call_.peer)) recv(r, call_.out, slice(round, r), 1, round.batch);
  }
  for (int i = 1; i < n(); ++i) {
    int r = (me() + n() - i) % n();
    if (!(root_has_all && r == call_.peer)) send(r, call_.out, slice(round, me()), 1, round.batch);
  }
}

void CollectiveCall::post_exchange(Round& round) {
  auto part = [&round](Block block) {
    int64_t count = std::min(round.count, block.count - round.begin);
    return Block{block.begin + round.begin, std::max<int64_t>(count, 0)};
  };
  for (int i = 1; i < n(); ++i) {
    int r = (me() + i) % n();
    if (!in_header(from(r).count)) recv(r, call_.out, part(from(r)), 0, round.batch);
  }
  for (int i = 1; i < n(); ++i) {
    int r = (me() + n() - i) % n();
    if (!in_header(to(r).count)) send(r, call_.in, part(to(r)), 0, round.batch);
  }
}

std::vector<int> CollectiveCall::missing() {
  std::vector<int> ranks = headers_in_.peers_missing();
  for (Round& round : rounds_)
    for (int r : round.batch.peers_missing()) ranks.push_back(r);
  return ranks;
}

void CollectiveCall::release() noexcept {
  headers_in_.cancel();
  group_->job->keep(std::move(headers_in_), nullptr);
  group_->job->keep(std::move(headers_out_), std::move(headers_));
  for (Round& round : rounds_) {
    round.batch.cancel();
    group_->job->keep(std::move(round.batch), std::move(round.memory));
  }
}

}  // namespace mtrain::message_comm
