// MessageCommunicator: a communicator of processes over any Transport (transport.h). A plugin
// creates the world's communicator from its transport, once per process; groups are split off it.
// Sums in the order of ranks and the detection of failed ranks and mismatched calls are implemented
// here, so a transport only moves bytes. For the rank's own thread.
#pragma once
#include <memory>
#include <string>

#include "mtrain/comm/communicator.h"
#include "mtrain/message_comm/transport.h"

namespace mtrain::message_comm {

struct Group;

class MT_API MessageCommunicator : public Communicator {
 public:
  /// The communicator of all processes of the job. Collective. When the last communicator of the
  /// job is destroyed, it waits until the other ranks have finished; after a failure, it ends the
  /// processes of the job by Transport::abort and does not return.
  MessageCommunicator(std::unique_ptr<Transport> transport, const CommContext& context);
  explicit MessageCommunicator(std::shared_ptr<Group> group);

  int rank() const override;
  int size() const override;
  std::string_view kind() const override;
  const std::string& name() const override;
  std::span<const int> world_ranks() const override;
  RankActivity* activity() const override;
  using Communicator::abort;
  void abort(std::string_view reason, ErrorClass error_class) noexcept override;

 protected:
  void require_alive(const CommCall& call) const override;
  Pending start(const CommCall& call) override;
  std::unique_ptr<Communicator> make_split(const CommCall& call, std::string name) override;

 private:
  std::shared_ptr<Group> group_;
};

}  // namespace mtrain::message_comm
