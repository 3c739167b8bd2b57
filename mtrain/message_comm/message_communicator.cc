#include "mtrain/message_comm/message_communicator.h"

#include <algorithm>
#include <numeric>

#include "mtrain/message_comm/collective.h"
#include "mtrain/message_comm/send_recv.h"

namespace mtrain::message_comm {

namespace {
std::shared_ptr<Group> make_world(std::unique_ptr<Transport> transport,
                                  const CommContext& context) {
  auto job = std::make_shared<Job>(std::move(transport), context);
  std::vector<int> ranks(static_cast<size_t>(job->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  auto channel = job->world();
  return std::make_shared<Group>(std::move(job), std::move(channel), "world", std::move(ranks));
}
}  // namespace

MessageCommunicator::MessageCommunicator(std::unique_ptr<Transport> transport,
                                         const CommContext& context)
    : group_(make_world(std::move(transport), context)) {}
MessageCommunicator::MessageCommunicator(std::shared_ptr<Group> group) : group_(std::move(group)) {}

int MessageCommunicator::rank() const { return group_->rank(); }
int MessageCommunicator::size() const { return group_->size(); }
std::string_view MessageCommunicator::kind() const { return group_->job->kind(); }
const std::string& MessageCommunicator::name() const { return group_->name; }
std::span<const int> MessageCommunicator::world_ranks() const { return group_->world_ranks; }
RankActivity* MessageCommunicator::activity() const { return group_->job->activity(); }

void MessageCommunicator::abort(std::string_view reason, ErrorClass error_class) noexcept {
  group_->job->fail({group_->world(rank()), std::string(reason)}, error_class);
}

void MessageCommunicator::require_alive(const CommCall& call) const {
  Job& job = *group_->job;
  if (!job.failed()) return;
  uint64_t number = group_->num_collectives;
  if (call.kind == CommKind::send) number = group_->num_sent[static_cast<size_t>(call.peer)];
  if (call.kind == CommKind::recv) number = group_->num_received[static_cast<size_t>(call.peer)];
  throw peer_error(job.failure(), group_->world(rank()),
                   call_place(call, number + 1, group_->name, group_->world_ranks));
}

Pending MessageCommunicator::start(const CommCall& call) {
  std::unique_ptr<StartedCall> started;
  if (call.kind == CommKind::send)
    started = std::make_unique<SendCall>(group_, call);
  else if (call.kind == CommKind::recv)
    started = std::make_unique<RecvCall>(group_, call);
  else
    started = std::make_unique<CollectiveCall>(group_, call);
  return Pending(std::move(started));
}

std::unique_ptr<Communicator> MessageCommunicator::make_split(const CommCall& call,
                                                              std::string name) {
  MT_CHECK(name.size() < 256, "a group's name of ", name.size(), " bytes");
  CollectiveCall all(group_, call, name);
  all.wait();
  std::vector<int> members;
  for (int m = 0; m < size(); ++m) {
    int color = all.call_of(m).peer;
    if (color < 0) continue;
    // Every rank checks all colors, so that all report the same error.
    for (int other = 0; other < m; ++other)
      if (all.call_of(other).peer == color && all.attached(other) != all.attached(m)) {
        group_->job->fail(
            {-1, name_mismatch_reason(group_->name, group_->world(other),
                                      std::string(all.attached(other)), group_->world(m),
                                      std::string(all.attached(m)))},
            ErrorClass::peer);
        require_alive(call);
      }
    if (color == call.peer) members.push_back(m);
  }
  if (call.peer < 0) return nullptr;
  std::stable_sort(members.begin(), members.end(),
                   [&all](int a, int b) { return all.call_of(a).tag < all.call_of(b).tag; });
  std::vector<int> world_ranks;
  for (int m : members) world_ranks.push_back(group_->world(m));
  auto channel = group_->channel->sub(members, static_cast<int>(group_->num_collectives % 32768));
  return std::make_unique<MessageCommunicator>(std::make_shared<Group>(
      group_->job, std::move(channel), std::move(name), std::move(world_ranks)));
}

}  // namespace mtrain::message_comm
