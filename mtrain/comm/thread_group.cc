#include "mtrain/comm/thread_group.h"

#include <algorithm>
#include <thread>

#include "mtrain/base/text.h"

namespace mtrain {

namespace {
bool is_message(const CommCall& call) {
  return call.kind == CommKind::send || call.kind == CommKind::recv;
}
// A message has two members: its sender and its receiver.
int slot_of(int member, const CommCall& call) {
  return is_message(call) ? (call.kind == CommKind::send ? 0 : 1) : member;
}
int member_of(int slot, int member, const CommCall& call) {
  return is_message(call) ? (slot == slot_of(member, call) ? member : call.peer) : slot;
}
}  // namespace

ThreadState::ThreadState(int size_in, const CommContext& context_in)
    : ranks(new Rank[static_cast<size_t>(size_in)]),
      size(size_in),
      context(context_in),
      // With one core per rank, changes arrive within microseconds; otherwise the peer may be
      // waiting for this core.
      spins(size_in <= static_cast<int>(std::thread::hardware_concurrency()) ? 1000 : 20) {}

bool ThreadState::fail(CommFailure failure) noexcept {
  {
    std::lock_guard lock(mutex_);
    if (failed_.load()) return false;
    failure_ = std::move(failure);
    failed_.store(true);
  }
  for (int r = 0; r < size; ++r) ranks[static_cast<size_t>(r)].bell.ring();
  return true;
}

CommFailure ThreadState::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void ThreadState::leave(int rank) {
  ranks[static_cast<size_t>(rank)].activity.end();
  ranks[static_cast<size_t>(rank)].left.store(true);
  num_left.fetch_add(1);
  for (int r = 0; r < size; ++r) ranks[static_cast<size_t>(r)].bell.ring();
}

void ThreadState::ring(std::span<const int> world_ranks, int except) {
  for (int r : world_ranks)
    if (r != except) ranks[static_cast<size_t>(r)].bell.ring();
}

ThreadGroup::ThreadGroup(std::shared_ptr<ThreadState> state_in, std::string name_in,
                         std::vector<int> world_ranks_in)
    : state(std::move(state_in)), name(std::move(name_in)), world_ranks(std::move(world_ranks_in)) {
  collectives_.posted.assign(world_ranks.size(), 0);
}

ThreadGroup::Channel& ThreadGroup::channel(int member, const CommCall& call) {
  if (!is_message(call)) return collectives_;
  bool sends = call.kind == CommKind::send;
  Channel& found = messages_[{sends ? member : call.peer, sends ? call.peer : member, call.tag}];
  found.posted.resize(2, 0);
  return found;
}

std::string ThreadGroup::next_place(int member, const CommCall& call) {
  std::lock_guard lock(mutex_);
  return place(call, channel(member, call).posted[static_cast<size_t>(slot_of(member, call))] + 1);
}

std::pair<std::shared_ptr<SharedCall>, bool> ThreadGroup::post(int member, const CommCall& call,
                                                               const std::string& split_name) {
  std::lock_guard lock(mutex_);
  Channel& line = channel(member, call);
  int slot = slot_of(member, call);
  uint64_t& posted = line.posted[static_cast<size_t>(slot)];
  auto place = static_cast<size_t>(posted - line.num_gone);
  if (place == line.open.size())
    line.open.push_back(
        std::make_shared<SharedCall>(static_cast<int>(line.posted.size()), posted + 1));
  std::shared_ptr<SharedCall> shared = line.open[place];
  require_agreement(member, call, *shared);
  ++posted;
  shared->members()[static_cast<size_t>(slot)].split_name = split_name;
  shared->post(slot, call);
  if (!shared->all_posted()) return {shared, false};
  // Members post in order, so the first call that is complete is the front one.
  line.open.pop_front();
  ++line.num_gone;
  if (call.kind == CommKind::split) make_split_groups(*shared, member);
  shared->open();
  return {shared, true};
}

void ThreadGroup::disagree(int member, const CommCall& call, uint64_t number, int other,
                           const CommCall& other_call) {
  auto world = [this](int m) { return world_ranks[static_cast<size_t>(m)]; };
  state->fail({-1, mismatch_reason(name, number, world(other), other_call, world(member), call)});
  throw peer_error(state->failure(), world(member), place(call, number));
}

void ThreadGroup::require_agreement(int member, const CommCall& call, const SharedCall& shared) {
  const auto& members = const_cast<SharedCall&>(shared).members();
  for (size_t slot = 0; slot < members.size(); ++slot) {
    const auto& other = members[slot];
    if (!other.posted) continue;
    int at = member_of(static_cast<int>(slot), member, call);
    bool fits = agree(other.call, call);
    if (fits && call.uneven) {
      auto me = static_cast<size_t>(member);
      fits = other.send_counts[me] == call.recv_counts[slot] &&
             other.recv_counts[me] == call.send_counts[slot];
    }
    if (!fits) disagree(member, call, shared.number(), at, other.call);
  }
}

void ThreadGroup::make_split_groups(SharedCall& shared, int poster) {
  auto& members = shared.members();
  std::map<int, std::vector<int>> by_color;
  for (size_t m = 0; m < members.size(); ++m)
    if (members[m].call.peer >= 0) by_color[members[m].call.peer].push_back(static_cast<int>(m));
  for (auto& [color, group] : by_color) {
    auto member = [&members](int m) -> SharedCall::Member& {
      return members[static_cast<size_t>(m)];
    };
    std::stable_sort(group.begin(), group.end(),
                     [&](int a, int b) { return member(a).call.tag < member(b).call.tag; });
    std::vector<int> ranks;
    for (int m : group) {
      ranks.push_back(world_ranks[static_cast<size_t>(m)]);
      if (member(m).split_name == member(group[0]).split_name) continue;
      state->fail({-1, name_mismatch_reason(name, ranks.front(), member(group[0]).split_name,
                                            ranks.back(), member(m).split_name)});
      throw peer_error(state->failure(), world_ranks[static_cast<size_t>(poster)],
                       place(member(m).call, shared.number()));
    }
    auto made = std::make_shared<ThreadGroup>(state, member(group[0]).split_name, ranks);
    for (size_t r = 0; r < group.size(); ++r) {
      member(group[r]).split_group = made;
      member(group[r]).split_rank = static_cast<int>(r);
    }
  }
}

std::vector<int> ThreadGroup::missing(const CommCall& call, int member, const SharedCall& shared) {
  std::lock_guard lock(mutex_);
  std::vector<int> ranks;
  const auto& members = const_cast<SharedCall&>(shared).members();
  for (size_t slot = 0; slot < members.size(); ++slot)
    if (!members[slot].posted)
      ranks.push_back(
          world_ranks[static_cast<size_t>(member_of(static_cast<int>(slot), member, call))]);
  return ranks;
}

}  // namespace mtrain
