#include "communicator.h"

#include <algorithm>
#include <numeric>

#include "collective.h"
#include "message.h"

namespace mtrain::mpi {

void MpiCommunicator::abort(std::string_view reason, ErrorClass error_class) noexcept {
  group_->job->fail({group_->world(rank()), std::string(reason)}, error_class);
}

void MpiCommunicator::require_alive(const CommCall& call) const {
  Job& job = *group_->job;
  if (!job.failed()) return;
  uint64_t number = group_->num_collectives;
  if (call.kind == CommKind::send) number = group_->num_sent[static_cast<size_t>(call.peer)];
  if (call.kind == CommKind::recv) number = group_->num_received[static_cast<size_t>(call.peer)];
  throw peer_error(job.failure(), group_->world(rank()),
                   call_place(call, number + 1, group_->name, group_->world_ranks));
}

Pending MpiCommunicator::start(const CommCall& call) {
  std::unique_ptr<Work> work;
  if (call.kind == CommKind::send)
    work = std::make_unique<SendWork>(group_, call);
  else if (call.kind == CommKind::recv)
    work = std::make_unique<RecvWork>(group_, call);
  else
    work = std::make_unique<Collective>(group_, call);
  return Pending(std::move(work));
}

std::unique_ptr<Communicator> MpiCommunicator::make_split(const CommCall& call, std::string name) {
  MT_CHECK(name.size() < 256, "a group's name of ", name.size(), " bytes");
  Collective all(group_, call, name);
  all.wait();
  std::vector<int> members;
  for (int m = 0; m < size(); ++m) {
    int color = all.call_of(m).peer;
    if (color < 0) continue;
    // All look at all colors, so that all fail alike.
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
  Channel channel = group_->channel.sub(members, static_cast<int>(group_->num_collectives % 32768));
  return std::make_unique<MpiCommunicator>(std::make_shared<Group>(
      group_->job, std::move(channel), std::move(name), std::move(world_ranks)));
}

std::shared_ptr<Group> make_world(const CommContext& context) {
  auto job = std::make_shared<Job>(context);
  std::vector<int> ranks(static_cast<size_t>(job->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  Channel channel = job->world();
  return std::make_shared<Group>(std::move(job), std::move(channel), "world", std::move(ranks));
}

}  // namespace mtrain::mpi
