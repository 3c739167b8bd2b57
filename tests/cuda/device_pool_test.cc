#include "device_pool.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "fake_device.h"
#include "mtrain/base/error.h"

using namespace mtrain;
using cuda::DevicePool;
using testing::FakeDevice;

namespace {
constexpr size_t kMiB = size_t{1} << 20;
void* const kMain = reinterpret_cast<void*>(1);
void* const kSide = reinterpret_cast<void*>(2);
}  // namespace

TEST_CASE("sizes are rounded so that near ones share blocks, and little is lost") {
  CHECK(DevicePool::rounded(0) == 512);
  CHECK(DevicePool::rounded(1) == 512);
  CHECK(DevicePool::rounded(513) == 1024);
  CHECK(DevicePool::rounded(kMiB) == kMiB);
  CHECK(DevicePool::rounded(kMiB + 1) == kMiB + kMiB / 8);
  for (size_t bytes = kMiB; bytes < 900 * kMiB; bytes += 777777) {
    size_t r = DevicePool::rounded(bytes);
    CHECK(r >= bytes);
    CHECK(static_cast<double>(r) <= 1.125 * static_cast<double>(bytes) + 512);
    CHECK(r < bytes + 2 * kMiB);
    CHECK(r % 512 == 0);
    CHECK(DevicePool::segment_size(r) >= r);
  }
}

TEST_CASE("a step that repeats itself soon asks the driver for nothing") {
  FakeDevice device(size_t{8} << 30);
  DevicePool pool(device);
  std::mt19937 random(7);
  std::vector<size_t> sizes;
  for (int i = 0; i < 300; ++i)
    sizes.push_back(random() % 5 == 0 ? random() % (64 * kMiB) + 1 : random() % 100000 + 1);
  uint64_t settled = 0;
  for (int step = 0; step < 60; ++step) {
    std::vector<void*> live;
    for (size_t i = 0; i < sizes.size(); ++i) {
      live.push_back(pool.take(sizes[i], kMain));
      REQUIRE(live.back() != nullptr);
      if (i % 3 == 2) {  // some go early, as activations do
        pool.give(live[live.size() - 2], kMain);
        live.erase(live.end() - 2);
      }
    }
    for (void* data : live) pool.give(data, kMain);
    CHECK(pool.figures().in_use == 0);
    if (step < 3)
      settled = pool.figures().driver_calls;  // where blocks fall settles in a few steps
  }
  CHECK(pool.figures().driver_calls == settled);
  CHECK(device.host_waits == 0);
  CHECK(device.events() == 0);  // one stream needs none
  CHECK(pool.figures().peak <= pool.figures().reserved);
}

TEST_CASE("living blocks never overlap, and joined neighbours serve a larger request") {
  FakeDevice device(size_t{4} << 30);
  DevicePool pool(device);
  std::mt19937 random(11);
  std::map<char*, size_t> live;
  for (int i = 0; i < 20000; ++i) {
    if (live.size() > 100 || (!live.empty() && random() % 2 == 0)) {
      auto victim = std::next(live.begin(), static_cast<long>(random() % live.size()));
      pool.give(victim->first, kMain);
      live.erase(victim);
      continue;
    }
    size_t bytes = random() % 10 == 0 ? random() % (20 * kMiB) + 1 : random() % 300000 + 1;
    auto* data = static_cast<char*>(pool.take(bytes, kMain));
    REQUIRE(data != nullptr);
    CHECK(reinterpret_cast<uintptr_t>(data) % 512 == 0);
    CHECK(pool.block_bytes(data) >= bytes);
    auto above = live.upper_bound(data);
    if (above != live.end()) REQUIRE(data + bytes <= above->first);
    if (above != live.begin()) REQUIRE(std::prev(above)->first + std::prev(above)->second <= data);
    live[data] = bytes;
  }
  for (auto& [data, bytes] : live) pool.give(data, kMain);
  uint64_t calls = pool.figures().driver_calls;
  void* whole = pool.take(30 * kMiB, kMain);
  CHECK(whole != nullptr);
  pool.trim();
  pool.give(whole, kMain);
  pool.trim();
  CHECK(pool.figures().reserved == 0);
  CHECK(device.used() == 0);
  CHECK(pool.figures().driver_calls > calls);
}

TEST_CASE(
    "a block that another stream gives back is not reused before that stream is done with it") {
  FakeDevice device(size_t{1} << 30);
  DevicePool pool(device);
  void* a = pool.take(100, kMain);
  ++device.work[kSide];
  pool.give(a, kSide);  // the side stream still reads it
  void* b = pool.take(100, kMain);
  CHECK(b != a);
  device.ran[kSide] = 1;
  void* c = pool.take(100, kMain);
  CHECK(c == a);
  CHECK(pool.figures().driver_calls == 1);
}

TEST_CASE(
    "memory that its own stream gives back is there for that stream at once, without an event") {
  FakeDevice device(size_t{1} << 30);
  DevicePool pool(device);
  void* a = pool.take(5 * kMiB, kMain);
  device.work[kMain] = 10;  // none of it has run
  pool.give(a, kMain);
  CHECK(pool.take(5 * kMiB, kMain) == a);
  CHECK(device.events() == 0);
}

TEST_CASE("a free segment of another stream is taken over after that stream's work") {
  FakeDevice device(size_t{1} << 30);
  DevicePool pool(device);
  void* a = pool.take(40 * kMiB, kMain);
  pool.give(a, kMain);
  void* b = pool.take(40 * kMiB, kSide);
  CHECK(b == a);
  REQUIRE(device.waits.size() == 1);
  CHECK(device.waits[0] == std::pair<void*, void*>(kSide, kMain));
  CHECK(pool.figures().crossings == 1);
  CHECK(pool.figures().driver_calls == 1);
}

TEST_CASE(
    "a full device gives back what is cached before it refuses, and waits for what is in the "
    "making") {
  FakeDevice device(100 * kMiB);
  DevicePool pool(device);
  std::vector<void*> quantized;
  for (int i = 0; i < 40; ++i) quantized.push_back(pool.take(kMiB, kMain));
  for (void* data : quantized) pool.give(data, kMain);
  void* large = pool.take(90 * kMiB, kMain);  // fits only when the small segments have gone back
  REQUIRE(large != nullptr);
  CHECK(device.frees > 0);
  CHECK(pool.take(60 * kMiB, kMain) == nullptr);
  ++device.work[kSide];
  pool.give(large, kSide);
  void* again = pool.take(90 * kMiB, kMain);
  CHECK(again == large);
  CHECK(device.host_waits == 1);
  CHECK(pool.take(2000 * kMiB, kMain) == nullptr);
}

TEST_CASE("giving back what was not taken is found") {
  FakeDevice device(100 * kMiB);
  DevicePool pool(device);
  void* a = pool.take(100, kMain);
  pool.give(a, kMain);
  CHECK_THROWS_AS(pool.give(a, kMain), Error);
  CHECK_THROWS_AS(pool.give(reinterpret_cast<void*>(12345), kMain), Error);
}

TEST_CASE("everything goes back to the driver in the end") {
  FakeDevice device(size_t{1} << 30);
  {
    DevicePool pool(device);
    void* a = pool.take(3 * kMiB, kMain);
    static_cast<void>(pool.take(70 * kMiB, kSide));
    pool.give(a, kSide);
  }
  CHECK(device.used() == 0);
  CHECK(device.freed_events == device.events());
}

TEST_CASE("the blocks of a destroyed stream serve the others, without an event of it") {
  FakeDevice device(size_t{1} << 30);
  DevicePool pool(device);
  void *kept = pool.take(3 * kMiB, kSide), *small_block = pool.take(4096, kSide),
       *other = pool.take(3 * kMiB, kMain);
  pool.give(pool.take(40 * kMiB, kSide), kSide);
  pool.give(small_block, kMain);  // returns to kSide when kMain has run
  auto before = pool.figures();
  pool.retire(kSide);
  device.waits.clear();
  void* large = pool.take(40 * kMiB, kMain);
  CHECK(pool.figures().driver_calls == before.driver_calls);
  CHECK(pool.figures().crossings == before.crossings);
  pool.give(kept, kMain);  // was taken for the destroyed stream
  CHECK(pool.take(3 * kMiB, kMain) == kept);
  CHECK(device.waits.empty());
  for (void* data : {large, kept, other}) pool.give(data, kMain);
  pool.retire(kMain);
  pool.give(pool.take(512, nullptr), nullptr);
  CHECK(pool.figures().in_use == 0);
  CHECK(device.waits.empty());
}

TEST_CASE("a segment that two destroyed streams used is whole again") {
  FakeDevice device(size_t{1} << 30);
  DevicePool pool(device);
  void *first = pool.take(8 * kMiB, kMain), *second = pool.take(8 * kMiB, kMain);
  pool.give(first, kMain);
  pool.retire(kMain);
  pool.give(second, kSide);
  pool.retire(kSide);
  pool.trim();
  CHECK(pool.figures().reserved == 0);
}
