#include "pinned_pool.h"

#include <doctest/doctest.h>

#include <set>

#include "fake_device.h"

using namespace mtrain;
using cuda::PinnedPool;
using testing::FakeDevice;

namespace {
void* const kStream = reinterpret_cast<void*>(1);
}

TEST_CASE("a piece is used again only after its copy is done") {
  FakeDevice device(0);
  PinnedPool pool(device, 4 * PinnedPool::kPiece);
  void* a = pool.take();
  ++device.work[kStream];
  pool.give(a, kStream);
  void* b = pool.take();
  CHECK(b != a);
  ++device.work[kStream];
  pool.give(b, kStream);
  device.ran[kStream] = 1;  // the first copy alone
  CHECK(pool.take() == a);
  CHECK(device.host_waits == 0);
}

TEST_CASE("at the limit the oldest piece is waited for, and no more is asked for") {
  FakeDevice device(0);
  PinnedPool pool(device, 3 * PinnedPool::kPiece);
  std::set<void*> seen;
  for (int i = 0; i < 30; ++i) {
    void* piece = pool.take();
    REQUIRE(piece != nullptr);
    seen.insert(piece);
    ++device.work[kStream];
    pool.give(piece, kStream);
  }
  CHECK(seen.size() == 3);
  CHECK(pool.reserved() == 3 * PinnedPool::kPiece);
  CHECK(pool.waits() == 27);
  CHECK(device.host_waits == 27);
}

TEST_CASE("in the steady state, with copies that keep up, there are no waits") {
  FakeDevice device(0);
  PinnedPool pool(device, 8 * PinnedPool::kPiece);
  for (int i = 0; i < 100; ++i) {
    void* piece = pool.take();
    ++device.work[kStream];
    pool.give(piece, kStream);
    device.ran[kStream] = device.work[kStream] - 1;  // one copy behind
  }
  CHECK(pool.waits() == 0);
  CHECK(pool.reserved() == 2 * PinnedPool::kPiece);
}

TEST_CASE("a host without page-locked memory gives none, and what there is is shared out") {
  FakeDevice none(0);
  none.host_limit = 0;
  PinnedPool empty(none, 8 * PinnedPool::kPiece);
  CHECK(empty.take() == nullptr);
  FakeDevice one(0);
  one.host_limit = 1;
  PinnedPool pool(one, 8 * PinnedPool::kPiece);
  void* a = pool.take();
  CHECK(pool.take() == nullptr);  // it is in somebody's hands
  ++one.work[kStream];
  pool.give(a, kStream);
  CHECK(pool.take() == a);
  CHECK(pool.waits() == 1);
}
