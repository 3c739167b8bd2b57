// One rank's communicator of a ThreadGroup, and its started calls. For the rank's own thread.
#pragma once
#include <memory>
#include <string>

#include "mtrain/comm/thread_group.h"

namespace mtrain {

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank)
      : group_(std::move(group)), rank_(rank) {}

  using Communicator::abort;
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->world_ranks.size()); }
  std::string_view kind() const override { return "thread"; }
  const std::string& name() const override { return group_->name; }
  std::span<const int> world_ranks() const override { return group_->world_ranks; }
  void abort(std::string_view reason, ErrorClass error_class) noexcept override;
  RankActivity* activity() const override {
    return &group_->state->ranks[static_cast<size_t>(world_rank())].activity;
  }

 protected:
  void require_alive(const CommCall& call) const override;
  Pending start(const CommCall& call) override;
  std::unique_ptr<Communicator> make_split(const CommCall& call, std::string name) override;

 private:
  int world_rank() const { return group_->world_ranks[static_cast<size_t>(rank_)]; }
  std::shared_ptr<ThreadGroup> group_;
  int rank_;
};

}  // namespace mtrain
