// MessageCommunicator over a transport that delivers as late and as unordered as it may: the same
// results as ranks that are threads.
#include "mtrain/message_comm/message_communicator.h"

#include <doctest/doctest.h>

#include <functional>
#include <thread>

#include "memory_transport.h"
#include "mtrain/comm/thread_world.h"

namespace mtrain::message_comm {
namespace {

using Results = std::vector<std::vector<float>>;  // by rank

void run_over_memory(Exchange& exchange, const std::function<void(Communicator&)>& fn) {
  std::vector<std::thread> ranks;
  for (int r = 0; r < exchange.size; ++r)
    ranks.emplace_back([&exchange, &fn, r] {
      // Nobody watches: these ranks are threads of one process.
      CommContext context{.timeout = std::chrono::hours(1), .watch = {.silence = {}}};
      MessageCommunicator world(std::make_unique<MemoryTransport>(exchange, r), context);
      try {
        fn(world);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", r, error.what());
        world.abort(error.what());  // ends the process
      }
    });
  for (auto& rank : ranks) rank.join();
}

std::vector<float> input(int rank, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    values[static_cast<size_t>(i)] =
        static_cast<float>((i * 2654435761 + rank * 40503) % 1000003) * 0x1p-10f;
  return values;
}

/// Every collective with `count` elements per rank; returns all results of this rank.
std::vector<float> collectives(Communicator& comm, int64_t count) {
  const int n = comm.size();
  std::vector<float> all;
  auto add = [&all](const std::vector<float>& part) {
    all.insert(all.end(), part.begin(), part.end());
  };
  std::vector<float> sum = input(comm.rank(), count), maximum = sum, root = sum;
  std::vector<float> wide = input(comm.rank(), count * n), gathered(wide.size()),
                     part(static_cast<size_t>(count)), exchanged(wide.size());
  Pending first = comm.start_all_reduce(sum), second = comm.start_reduce_scatter(wide, part);
  comm.all_reduce(maximum, ReduceOp::max);
  comm.all_gather(root, gathered);
  comm.all_to_all(wide, exchanged);
  comm.broadcast(root, n - 1);
  comm.barrier();
  second.wait();
  first.wait();
  // Rank r sends r + s elements to rank s.
  std::vector<int64_t> sends, receives;
  int64_t num_sent = 0;
  for (int r = 0; r < n; ++r) {
    sends.push_back(count * (comm.rank() + r) % 5000);
    receives.push_back(count * (comm.rank() + r) % 5000);
    num_sent += sends.back();
  }
  std::vector<float> uneven(static_cast<size_t>(num_sent));
  comm.all_to_all_v(input(comm.rank(), num_sent), sends, uneven, receives);
  for (const auto& result : {sum, maximum, gathered, part, exchanged, root, uneven}) add(result);
  return all;
}

/// Messages around the ring with two tags, the one that was sent last received first.
std::vector<float> ring(Communicator& comm, int64_t count) {
  const int n = comm.size(), next = (comm.rank() + 1) % n, last = (comm.rank() + n - 1) % n;
  if (n == 1) return {};
  std::vector<float> a = input(comm.rank(), count), b = input(comm.rank() + n, count),
                     from_a(a.size()), from_b(b.size());
  Pending send_a = comm.start_send(a, next, 1), send_b = comm.start_send(b, next, kMaxTag);
  comm.recv(from_b, last, kMaxTag);
  comm.recv(from_a, last, 1);
  send_a.wait();
  send_b.wait();
  from_a.insert(from_a.end(), from_b.begin(), from_b.end());
  return from_a;
}

void compare(int size, unsigned seed,
             const std::function<std::vector<float>(Communicator&)>& work) {
  Results wanted(static_cast<size_t>(size)), found(static_cast<size_t>(size));
  run_ranks(size,
            [&](Communicator& comm) { wanted[static_cast<size_t>(comm.rank())] = work(comm); });
  Exchange exchange(size, seed);
  run_over_memory(
      exchange, [&](Communicator& comm) { found[static_cast<size_t>(comm.rank())] = work(comm); });
  for (int r = 0; r < size; ++r) {
    CAPTURE(r);
    CHECK(found[static_cast<size_t>(r)] == wanted[static_cast<size_t>(r)]);
  }
  CHECK(exchange.faults == std::vector<std::string>{});
  CHECK(exchange.sends.empty());
  CHECK(exchange.receives.empty());
}

TEST_CASE("message_comm: results do not depend on when and in which order messages arrive") {
  for (int size : {1, 2, 3, 5})
    for (int64_t count : {0, 1, 511, 3000, 200001}) {
      CAPTURE(size);
      CAPTURE(count);
      compare(size, static_cast<unsigned>(size * 1000 + count),
              [count](Communicator& comm) { return collectives(comm, count); });
    }
}

TEST_CASE("message_comm: messages of two tags are received in any order, also in pieces") {
  for (int64_t count : {1, 4099, 5000000})  // of 16 MiB
    compare(3, 7, [count](Communicator& comm) { return ring(comm, count); });
}

TEST_CASE("message_comm: groups exchange messages of their own") {
  compare(5, 11, [](Communicator& world) {
    auto parity = world.split(world.rank() % 2, -world.rank(), "parity");
    auto same = world.split(world.rank() % 2, world.rank(), "same");
    std::vector<float> all = collectives(*parity, 700);
    std::vector<float> rest = collectives(*same, 700), around = ring(world, 700);
    all.insert(all.end(), rest.begin(), rest.end());
    all.insert(all.end(), around.begin(), around.end());
    return all;
  });
}

TEST_CASE("message_comm: a communicator has the kind of its transport") {
  Exchange exchange(1, 0);
  run_over_memory(exchange, [](Communicator& comm) { CHECK(comm.kind() == "memory"); });
}

}  // namespace
}  // namespace mtrain::message_comm
