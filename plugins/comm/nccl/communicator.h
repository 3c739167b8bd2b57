// The communicator of ranks with one GPU each. Device memory is communicated by NCCL, on separate
// streams; the underlying host communicator handles host memory, barriers, splits and the detection
// of failed ranks. For the rank's own thread.
#pragma once
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "job.h"

namespace mtrain::nccl {

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<Job> job, std::shared_ptr<Communicator> host)
      : job_(std::move(job)), host_(std::move(host)) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::string_view kind() const override { return "nccl"; }
  const std::string& name() const override { return host_->name(); }
  std::span<const int> world_ranks() const override { return host_->world_ranks(); }
  bool device_memory() const override { return true; }
  std::shared_ptr<void> network_memory(size_t bytes) override;
  std::shared_ptr<void> register_memory(void* data, size_t bytes) override;
  RankActivity* activity() const override { return host_->activity(); }
  using Communicator::abort;
  void abort(std::string_view reason, ErrorClass error_class) noexcept override {
    job_->fail(std::string(reason), error_class);
  }

 protected:
  void require_alive(const CommCall& call) const override { job_->require_alive(*host_, call); }
  Pending start(const CommCall& call) override;
  std::unique_ptr<Communicator> make_split(const CommCall& call, std::string name) override;

 private:
  Lane& lane_of(const CommCall& call);
  Lane& collective_lane(int device);
  Lane& message_lane(const CommCall& call, int device);

  std::shared_ptr<Job> job_;
  std::shared_ptr<Communicator> host_;
  Lane* collectives_ = nullptr;
  std::vector<std::shared_ptr<Kept>> kept_;                   // for that lane, until it exists
  std::map<std::tuple<CommKind, int, int>, Lane*> messages_;  // by direction, peer and tag
  uint64_t calls_ = 0;
};

}  // namespace mtrain::nccl
