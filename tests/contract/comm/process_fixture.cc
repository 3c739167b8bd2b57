// Ranks as processes over a transport: every process of a job runs the suite, and each prints at
// its end whether it passed.
//   mpirun -n 4 test_comm_mpi -tce="comm fails:*"
// A failing case is a job of its own: one test case of "comm fails:" per start, which ends with the
// exit status of a peer error. process_suite.sh runs all of them.
#define DOCTEST_CONFIG_IMPLEMENT
#include "contract/comm/process_fixture.h"

#include <cstdio>
#include <cstdlib>

#include "mtrain/message_comm/message_communicator.h"

namespace mtrain::contract {

namespace {
class ProcessFixture final : public CommFixture {
 public:
  std::vector<int> sizes() const override {
    std::vector<int> all;
    for (int n : {1, 2, 3, 4, 8})
      if (n <= size_) all.push_back(n);
    return all;
  }

  void run(int size, const std::function<void(Communicator&)>& fn) override {
    Communicator& world = this->world(std::chrono::minutes(1));
    auto group = world.split(world.rank() < size ? 0 : -1, 0, "some");
    if (group) fn(*group);
    world.barrier();
  }

  void run_failing(int size, std::chrono::milliseconds timeout,
                   const std::function<void(Communicator&)>& fn) override {
    if (size == size_) fn(world(timeout));
  }

  void end() { world_.reset(); }

 private:
  Communicator& world(std::chrono::milliseconds timeout) {
    if (!world_)
      world_ = std::make_unique<message_comm::MessageCommunicator>(make_transport(),
                                                                   CommContext{timeout});
    return *world_;
  }
  static int size_given() {
    for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE"})
      if (const char* text = std::getenv(variable)) return std::atoi(text);
    return 1;
  }
  int size_ = size_given();
  std::unique_ptr<Communicator> world_;
};

ProcessFixture& fixture() {
  static ProcessFixture instance;
  return instance;
}
}  // namespace

CommFixture& comm_fixture() { return fixture(); }

}  // namespace mtrain::contract

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  int failed = context.run();
  std::printf("%s\n", failed == 0 ? "this rank passed" : "this rank FAILED");
  std::fflush(stdout);
  mtrain::contract::fixture().end();  // ends the process here when the job has failed
  return failed;
}
