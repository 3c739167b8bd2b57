#include "mtrain/message_comm/batch.h"

#include <doctest/doctest.h>

#include "memory_transport.h"

namespace mtrain::message_comm {
namespace {

TEST_CASE("message_comm: a batch names the ranks whose messages have not arrived yet") {
  Exchange exchange(3, 1);
  MemoryTransport transport(exchange, 0), other(exchange, 1);
  auto channel = transport.world(), theirs = other.world();
  int from_1 = 0, from_2 = 0, sent = 7;
  Batch batch, sends;
  CHECK(batch.done());
  batch.recv(*channel, &from_2, sizeof(int), 2, 5);
  batch.recv(*channel, &from_1, sizeof(int), 1, 5);
  CHECK(!batch.done());
  CHECK(batch.peers_missing() == std::vector{2, 1});
  sends.send(*theirs, &sent, sizeof(int), 0, 5);
  while (!batch.done(1) || !sends.done()) {
  }
  CHECK(from_1 == 7);
  CHECK(!batch.done());
  CHECK(batch.peers_missing() == std::vector{2});
  CHECK(batch.peers_gone().empty());
  batch.cancel();
  CHECK(exchange.receives.empty());
  CHECK(exchange.faults.empty());
}

}  // namespace
}  // namespace mtrain::message_comm
