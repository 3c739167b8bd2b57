// Ranks as processes that are gone before they watch each other.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>

#include "fixture.h"
#include "mtrain/message_comm/message_communicator.h"
#include "plugins/comm/tcp/rendezvous.h"
#include "plugins/comm/tcp/tcp_transport.h"

namespace mtrain::tcp {
namespace {

using namespace std::chrono_literals;

/// A process that ends with what `fn` returns.
pid_t start(const std::function<int()>& fn) {
  pid_t pid = ::fork();
  if (pid == 0) ::_exit(fn());
  return pid;
}
int status_of(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void set_environment(int rank, int size) {
  RankEnvironment environment = environment_of(rank, size);
  for (auto [name, value] : {std::pair{"RANK", cat(rank)},
                             {"WORLD_SIZE", cat(size)},
                             {"MASTER_ADDR", environment.address},
                             {"MASTER_PORT", cat(environment.port)},
                             {"MTRAIN_JOB_SECRET", environment.secret.bytes}})
    ::setenv(name, value.c_str(), 1);
}

TEST_CASE("tcp: a rank that is gone between the greeting and the watch ends the job") {
  for (int lost : {2, 0}) {
    std::vector<pid_t> ranks;
    for (int r = 0; r < 3; ++r)
      ranks.push_back(start([r, lost] {
        set_environment(r, 3);
        if (r == lost) {
          connect_ranks(rank_environment());
          return 0;  // gone without a word, and its connections with it
        }
        const CommContext context{.timeout = 10h,
                                  .watch = {.silence = 1h, .give_up = {}, .note = {}}};
        std::string message = message_of(ErrorClass::peer, [&] {
          message_comm::MessageCommunicator world(std::make_unique<TcpTransport>(), context);
        });
        // The others may be gone for the same reason when this one looks, or before all have met.
        return has(message, " disconnected while the ranks started") ||
                       has(message, " disconnected before all ranks had connected")
                   ? 15
                   : 1;
      }));
    for (int r = 0; r < 3; ++r)
      CHECK(status_of(ranks[static_cast<size_t>(r)]) == (r == lost ? 0 : 15));
  }
}

}  // namespace
}  // namespace mtrain::tcp
