// A job of one rank. Communicator handles its calls; this class only stores a failure.
#include <array>

#include "mtrain/comm/communicator.h"
#include "mtrain/comm/failure.h"

namespace mtrain {

namespace {

class SelfCommunicator final : public Communicator {
 public:
  SelfCommunicator(std::string name, std::shared_ptr<CommFailure> failure)
      : name_(std::move(name)), failure_(std::move(failure)) {}

  using Communicator::abort;
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string_view kind() const override { return "self"; }
  const std::string& name() const override { return name_; }
  std::span<const int> world_ranks() const override { return kRanks; }

  void abort(std::string_view reason, ErrorClass) noexcept override {
    if (failure_->rank < 0) *failure_ = {0, std::string(reason)};
  }

 protected:
  void require_alive(const CommCall& call) const override {
    if (failure_->rank >= 0)
      throw peer_error(*failure_, 0, call_place(call, calls_ + 1, name_, kRanks));
    ++calls_;
  }
  Pending start(const CommCall&) override { return {}; }
  std::unique_ptr<Communicator> make_split(const CommCall& call, std::string name) override {
    if (call.peer < 0) return nullptr;
    return std::make_unique<SelfCommunicator>(std::move(name), failure_);
  }

 private:
  static constexpr std::array<int, 1> kRanks = {0};
  std::string name_;
  std::shared_ptr<CommFailure> failure_;  // one per job, shared with split groups
  mutable uint64_t calls_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator() {
  return std::make_unique<SelfCommunicator>("world", std::make_shared<CommFailure>());
}

}  // namespace mtrain
