// The suite of every communicator, for the NCCL communicator on top of another one: host memory,
// groups, failures.
#include "communicator.h"
#include "contract/comm/fixture.h"
#include "fake_nccl.h"
#include "fake_streams.h"
#include "mtrain/comm/thread_world.h"

namespace mtrain::contract {

namespace {
class NcclFixture final : public CommFixture {
 public:
  std::vector<int> sizes() const override { return {1, 2, 4}; }
  void run(int size, const std::function<void(Communicator&)>& fn) override {
    run_ranks(size, [&](Communicator& host) { with(host, std::chrono::minutes(1), fn); });
  }
  void run_failing(int size, std::chrono::milliseconds timeout,
                   const std::function<void(Communicator&)>& fn) override {
    run_ranks(size, [&](Communicator& host) { with(host, timeout, fn); }, {timeout});
  }

 private:
  static void with(Communicator& host, std::chrono::milliseconds timeout,
                   const std::function<void(Communicator&)>& fn) {
    std::shared_ptr<Communicator> kept(&host, [](Communicator*) {});
    auto calls = std::make_unique<testing::FakeCalls>(cat("gpu", host.rank()));
    nccl::NcclCommunicator comm(
        std::make_shared<nccl::Job>(testing::fake_nccl(), std::move(calls), kept, timeout), kept);
    fn(comm);
  }
};
}  // namespace

CommFixture& comm_fixture() {
  static NcclFixture lab;
  return lab;
}

}  // namespace mtrain::contract
