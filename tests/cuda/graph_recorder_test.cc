#include "graph_recorder.h"

#include <doctest/doctest.h>

#include <random>

#include "device_pool.h"
#include "fake_graphs.h"
#include "pinned_pool.h"
#include "recording_device.h"

using namespace mtrain;
using cuda::DevicePool;
using cuda::GraphRecorder;
using cuda::PinnedPool;
using cuda::RecordingDevice;
using testing::FakeCapturingDevice;
using testing::FakeGraphs;
using Works = FakeGraphs::Works;

namespace {

constexpr size_t kMiB = size_t{1} << 20;
void* const kMain = reinterpret_cast<void*>(1);
void* const kSide = reinterpret_cast<void*>(2);

/// A stream that is recorded, and the pools' view of its device.
struct Fixture {
  FakeGraphs graphs;
  FakeCapturingDevice device{graphs, size_t{1} << 30};
  RecordingDevice pools{device};
  int joins = 0;
  GraphRecorder recorder{graphs, device, kMain, [this] { ++joins, graphs.step("join"); }};

  Fixture() { pools.add(recorder); }
  ~Fixture() { pools.remove(recorder); }
  void work(const std::string& name, int argument = 0) {
    recorder.open();
    graphs.work(kMain, name, argument);
  }
  const Works& ran() { return graphs.ran[kMain]; }
  std::vector<int> arguments() {
    std::vector<int> all;
    for (const auto& w : ran()) all.push_back(w.argument);
    return all;
  }
};

}  // namespace

TEST_CASE(
    "work waits for the flush, and each graph of a recording finds the executable that the last "
    "one's left") {
  Fixture lab;
  for (int step = 0; step < 3; ++step) {
    lab.recorder.begin();
    lab.work("a", 10 * step);
    lab.work("b", 10 * step + 1);
    CHECK(lab.ran().size() == static_cast<size_t>(3 * step));
    lab.recorder.flush();
    CHECK(lab.ran().size() == static_cast<size_t>(3 * step + 2));
    lab.work("c", 10 * step + 2);
    auto figures = lab.recorder.end();
    CHECK(figures.launched == 2);
    CHECK(figures.instantiated == (step == 0 ? 2 : 0));
    CHECK(lab.graphs.updated == 2 * step);
    CHECK(lab.graphs.graphs.empty());
    CHECK(lab.graphs.captures.empty());
  }
  CHECK(lab.arguments() == std::vector<int>{0, 1, 2, 10, 11, 12, 20, 21, 22});
  CHECK(lab.graphs.executables.size() == 2);
  CHECK(lab.joins == 6);
}

TEST_CASE(
    "a graph of another form is made anew in its place, and what it replaces goes when the stream "
    "has run") {
  Fixture lab;
  auto step = [&](const std::string& middle) {
    lab.recorder.begin();
    for (const std::string& name : {std::string("first"), middle, std::string("last")}) {
      lab.work(name);
      lab.recorder.flush();
    }
    return lab.recorder.end();
  };
  CHECK(step("x").instantiated == 3);
  auto other = step("y");
  CHECK(other.instantiated == 1);
  CHECK(other.launched == 3);
  CHECK(lab.graphs.executables.size() == 4);  // the replaced one may be running
  lab.recorder.settled();
  CHECK(lab.graphs.executables.size() == 3);
  CHECK(step("y").instantiated == 0);
  CHECK(lab.ran()[4].name == "y");
}

TEST_CASE("an empty capture launches nothing and takes no graph's place") {
  Fixture lab;
  for (int step = 0; step < 2; ++step) {
    lab.recorder.begin();
    if (step == 1) {
      lab.recorder.open();
      lab.recorder.flush();
    }
    lab.work("a", step);
    CHECK(lab.recorder.end().instantiated == (step == 0 ? 1 : 0));
  }
  CHECK(lab.graphs.launched == 2);
  lab.recorder.begin();
  CHECK(lab.recorder.end().launched == 0);
  CHECK(lab.joins == 3);  // nothing was open
}

TEST_CASE("outside of a recording nothing is captured, and a recording in another is refused") {
  Fixture lab;
  lab.work("a");
  CHECK(lab.ran().size() == 1);
  lab.recorder.flush();
  CHECK(lab.graphs.launched == 0);
  lab.recorder.begin();
  CHECK_THROWS_AS(lab.recorder.begin(), Error);
  lab.recorder.end();
  lab.work("b");
  CHECK(lab.ran().size() == 2);
}

TEST_CASE(
    "a failure anywhere leaves no capture, no graph and no event behind, and says what failed") {
  for (const char* call : {"join", "end", "empty", "instantiate", "launch", "record"}) {
    INFO(call);
    Fixture lab;
    void* event = lab.pools.make_event();
    lab.recorder.begin();
    lab.work("a", 1);
    lab.pools.record(event, kMain);
    CHECK_FALSE(lab.pools.done(event));
    lab.graphs.failing = call;
    std::string text;
    try {
      lab.recorder.flush();
    } catch (const Error& error) {
      text = error.message();
    }
    CHECK(text == cat("made to fail: ", call));
    CHECK(lab.graphs.captures.empty());
    CHECK(lab.graphs.graphs.empty());
    CHECK_FALSE(lab.recorder.capturing());
    CHECK_FALSE(lab.recorder.owes(event));
    lab.graphs.failing.clear();
    lab.device.finish(kMain);
    CHECK(lab.pools.done(event));
    size_t before = lab.ran().size();
    CHECK(before == (std::string_view(call) == "record" ? 1 : 0));
    lab.work("b", 2);  // and the stream can be used again
    CHECK(lab.recorder.end().launched >= 1);
    CHECK(lab.ran().size() == before + 1);
  }
  Fixture lab;
  lab.graphs.failing = "begin";
  lab.recorder.begin();
  CHECK_THROWS_AS(lab.work("a"), Error);
  CHECK_FALSE(lab.recorder.capturing());
  lab.recorder.flush();
}

TEST_CASE("what is abandoned never runs, and nothing of it is left") {
  FakeGraphs graphs;
  FakeCapturingDevice device(graphs, kMiB);
  void* event = device.make_event();
  {
    GraphRecorder recorder(graphs, device, kMain, [] {});
    recorder.begin();
    recorder.open();
    graphs.work(kMain, "a");
    recorder.flush();
    recorder.open();
    graphs.work(kMain, "b");
    recorder.record(event);
  }
  CHECK(graphs.ran[kMain].size() == 1);
  CHECK(graphs.captures.empty());
  CHECK(graphs.graphs.empty());
  CHECK(graphs.executables.empty());
  device.finish(kMain);
  CHECK(device.done(event));
}

TEST_CASE("page-locked memory that a graph reads is used again only when the graph has run") {
  Fixture lab;
  PinnedPool pool(lab.pools, 2 * PinnedPool::kPiece);
  auto upload = [&] {
    void* piece = pool.take();
    lab.work("copy");
    pool.give(piece, kMain);
    return piece;
  };
  lab.recorder.begin();
  void* first = upload();
  lab.device.finish(kMain);  // all that the device was handed, which is nothing
  void* second = upload();
  CHECK(second != first);
  CHECK(lab.device.records == 0);
  CHECK(lab.ran().empty());
  void* third = upload();  // no more pieces: the oldest must have been read
  CHECK(third == first);
  CHECK(lab.graphs.launched == 1);
  CHECK(lab.device.records == 2);
  CHECK(lab.device.host_waits == 1);
  lab.recorder.end();
  lab.device.finish(kMain);
  CHECK(pool.take() == second);
  CHECK(lab.device.host_waits == 1);
}

TEST_CASE("memory goes from a recorded stream to another after the launch") {
  Fixture lab;
  DevicePool pool(lab.pools);
  lab.recorder.begin();
  void* a = pool.take(40 * kMiB, kMain);
  lab.work("writes a");
  pool.give(a, kMain);
  CHECK(pool.take(40 * kMiB, kMain) == a);  // in its own order at once
  CHECK(lab.ran().empty());
  pool.give(a, kMain);
  CHECK(pool.take(40 * kMiB, kSide) == a);
  CHECK(lab.ran().size() == 1);
  REQUIRE(lab.device.waits.size() == 1);
  CHECK(lab.device.waits[0] == std::pair<void*, void*>(kSide, kMain));

  lab.work("reads a");
  pool.give(a, kMain);  // the side stream's
  lab.device.finish(kMain);
  void* b = pool.take(40 * kMiB, kSide);
  CHECK(b != a);
  lab.recorder.end();
  lab.device.finish(kMain);
  CHECK(pool.take(40 * kMiB, kSide) == a);
}

TEST_CASE("a recorded stream takes another's memory outside of its capture") {
  Fixture lab;
  DevicePool pool(lab.pools);
  void* a = pool.take(40 * kMiB, kSide);
  pool.give(a, kSide);
  lab.recorder.begin();
  lab.work("before");
  CHECK(pool.take(40 * kMiB, kMain) == a);
  CHECK(lab.ran().size() == 1);
  lab.work("after");
  lab.recorder.end();
  CHECK(lab.ran().size() == 2);
}

TEST_CASE("memory goes back to the driver when no graph that waits uses it") {
  Fixture lab;
  {
    DevicePool pool(lab.pools);
    PinnedPool pinned(lab.pools, PinnedPool::kPiece);
    lab.recorder.begin();
    void* a = pool.take(40 * kMiB, kMain);
    lab.work("writes a");
    pool.give(a, kMain);
    pool.trim();
    CHECK(lab.ran().size() == 1);
    CHECK(lab.device.used() == 0);
    pinned.give(pinned.take(), kMain);
    lab.work("b");
  }
  CHECK(lab.ran().size() == 2);  // the pools' memory went
  CHECK(lab.device.freed_events == lab.device.events());
}

TEST_CASE(
    "recordings of two streams go their ways, and one that waits for the other flushes both") {
  Fixture lab;
  GraphRecorder side(lab.graphs, lab.device, kSide, [] {});
  lab.pools.add(side);
  void* event = lab.pools.make_event();
  lab.recorder.begin();
  side.begin();
  lab.work("main");
  side.open();
  lab.graphs.work(kSide, "side");
  lab.recorder.flush();
  CHECK(side.capturing());
  CHECK(lab.graphs.ran[kSide].empty());
  lab.work("main");
  lab.pools.record(event, kMain);
  lab.pools.wait_on_stream(kSide, event);
  CHECK_FALSE(side.capturing());
  CHECK_FALSE(lab.recorder.capturing());
  CHECK(lab.graphs.ran[kSide].size() == 1);
  side.open();
  lab.graphs.work(kSide, "side");
  lab.pools.record(event, kSide);
  lab.pools.record(event, kMain);  // stands for the other stream now
  CHECK_FALSE(side.owes(event));
  lab.device.finish(kMain);
  CHECK(lab.pools.done(event));
  lab.recorder.end();
  side.end();
  lab.pools.remove(side);
}

TEST_CASE(
    "whatever a step does, its work runs in its order with its arguments, and steps that repeat "
    "themselves make no graphs") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    Fixture lab;
    PinnedPool pinned(lab.pools, 3 * PinnedPool::kPiece);
    DevicePool pool(lab.pools);
    std::vector<unsigned> program(40);
    for (unsigned& what : program) what = random() % 12;
    int count = 0;
    auto step = [&](int changed) {
      lab.recorder.begin();
      std::vector<void*> live;
      for (size_t i = 0; i < program.size(); ++i) {
        unsigned what = static_cast<int>(i) == changed ? 0u : program[i];
        if (what == 0) lab.recorder.flush();
        if (what == 1) {
          void* piece = pinned.take();
          lab.work("copy", ++count);
          pinned.give(piece, kMain);
        }
        if (what == 2) live.push_back(pool.take((i + 1) * kMiB, kMain));
        if (what == 3 && !live.empty()) pool.give(live.back(), kMain), live.pop_back();
        if (what > 3) lab.work(cat("kernel ", i), ++count);
      }
      for (void* data : live) pool.give(data, kMain);
      auto figures = lab.recorder.end();
      lab.device.finish(kMain);
      lab.recorder.settled();
      return figures;
    };
    for (int i = 0; i < 3; ++i) step(-1);
    CHECK(step(-1).instantiated == 0);
    step(static_cast<int>(random() % 40));
    step(-1);
    CHECK(step(-1).instantiated == 0);
    std::vector<int> wanted(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) wanted[static_cast<size_t>(i)] = i + 1;
    CHECK(lab.arguments() == wanted);
    CHECK(lab.graphs.graphs.empty());
  }
}
