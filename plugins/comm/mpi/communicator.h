// The communicators of an MPI job: the world's, made once per process, and groups split off it. For
// the rank's own thread.
#pragma once
#include <memory>
#include <string>

#include "work.h"

namespace mtrain::mpi {

class MpiCommunicator : public Communicator {
 public:
  explicit MpiCommunicator(std::shared_ptr<Group> group) : group_(std::move(group)) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  std::string_view kind() const override { return transport_kind(); }
  const std::string& name() const override { return group_->name; }
  std::span<const int> world_ranks() const override { return group_->world_ranks; }
  RankActivity* activity() const override { return group_->job->activity(); }
  using Communicator::abort;
  void abort(std::string_view reason, ErrorClass error_class) noexcept override;

 protected:
  void require_alive(const CommCall& call) const override;
  Pending start(const CommCall& call) override;
  std::unique_ptr<Communicator> make_split(const CommCall& call, std::string name) override;

 private:
  std::shared_ptr<Group> group_;
};

/// Starts MPI and gives the communicator of all processes of the job. Throws Error(plugin) when MPI
/// cannot be had.
std::shared_ptr<Group> make_world(const CommContext& context);

}  // namespace mtrain::mpi
