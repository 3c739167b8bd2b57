// Ranks as threads, and the group of one.
#include <thread>

#include "contract/comm/fixture.h"
#include "mtrain/comm/thread_world.h"

namespace mtrain::contract {

namespace {
class ThreadFixture final : public CommFixture {
 public:
  std::vector<int> sizes() const override { return {1, 2, 3, 4, 8}; }
  void run(int size, const std::function<void(Communicator&)>& fn) override {
    if (size == 1) fn(*make_self_communicator());
    run_ranks(size, fn);
  }
  void run_failing(int size, std::chrono::milliseconds timeout,
                   const std::function<void(Communicator&)>& fn) override {
    run_ranks(size, fn, {timeout});
  }
};
}  // namespace

CommFixture& comm_fixture() {
  static ThreadFixture lab;
  return lab;
}

}  // namespace mtrain::contract
