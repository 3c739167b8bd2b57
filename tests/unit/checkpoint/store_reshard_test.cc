// Layouts: what was saved in one partition loads in any other, over one rank or several.
#include <doctest/doctest.h>

#include <barrier>
#include <thread>

#include "checkpoint_testing.h"
#include "mtrain/checkpoint/digest.h"
#include "mtrain/checkpoint/store.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

constexpr const char* kReshardMeta = R"({"rng": 3, "cursor": 4})";

struct Layout {
  int parts, dim;
};
const std::vector<Layout> kLayouts = {{1, 0}, {2, 0}, {2, 1}, {3, 0},
                                      {3, 2}, {4, 0}, {4, 1}, {4, 2}};

Slices all_parts(const std::vector<Sample>& samples, Layout layout) {
  Slices out;
  for (int part = 0; part < layout.parts; ++part) {
    Slices one = slices_of(samples, part, layout.parts, layout.dim);
    for (auto& slice : one.list) out.list.push_back(std::move(slice));
    for (auto& memory : one.memory) out.memory.push_back(std::move(memory));
  }
  return out;
}

/// An AND over `world` threads.
class Ballot {
 public:
  explicit Ballot(int world) : barrier_(world) {}
  bool operator()(bool mine) {
    if (!mine) failed_ = true;
    barrier_.arrive_and_wait();
    bool all = !failed_;
    barrier_.arrive_and_wait();
    failed_ = false;
    barrier_.arrive_and_wait();
    return all;
  }

 private:
  std::barrier<> barrier_;
  std::atomic<bool> failed_{false};
};

/// Runs `act(rank)` on `world` threads and gives each one's error.
std::vector<std::string> on_ranks(int world, const std::function<void(int)>& act) {
  std::vector<std::string> errors(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back(
        [&, rank] { errors[static_cast<size_t>(rank)] = failure([&] { act(rank); }); });
  for (auto& thread : threads) thread.join();
  return errors;
}

}  // namespace

TEST_CASE("any partition loads in any other, and all have one digest") {
  auto samples = sample_tensors(9);
  std::string digest;
  int pairs = 0;
  for (Layout from : kLayouts) {
    TempDir dir;
    CheckpointStore store(dir.path(), StoreOptions{});
    store.save(3, all_parts(samples, from).list, kReshardMeta);
    REQUIRE(store.problem(3).empty());
    std::string mine = checkpoint_digest(dir / "step-3");
    if (digest.empty()) digest = mine;
    CHECK(mine == digest);
    for (Layout to : kLayouts) {
      for (int part = 0; part < to.parts; ++part) {
        Slices wanted = slices_of(samples, part, to.parts, to.dim, false);
        Slices expected = slices_of(samples, part, to.parts, to.dim, true);
        store.load(3, wanted.list);
        CHECK(wanted.memory == expected.memory);
      }
      ++pairs;
    }
  }
  MESSAGE(pairs, " pairs of layouts");
}

TEST_CASE("random boxes of random shapes are read correctly") {
  std::mt19937 random(21);
  for (int round = 0; round < 200; ++round) {
    Sample sample{"t", random() % 2 ? DType::f32 : DType::u8, {}, {}};
    for (int rank = static_cast<int>(random() % 5); rank > 0; --rank)
      sample.shape.push_back(1 + random() % 6);
    sample.bytes.resize(static_cast<size_t>(sample.shape.numel()) * size_of(sample.dtype));
    for (auto& byte : sample.bytes) byte = static_cast<std::byte>(random() & 0x37);
    TempDir dir;
    CheckpointStore store(dir.path(), StoreOptions{});
    store.save(
        0,
        all_parts({sample}, {1 + static_cast<int>(random() % 3), static_cast<int>(random() % 4)})
            .list,
        "{}");
    for (int k = 0; k < 10; ++k) {
      Box box;
      for (int64_t size : sample.shape) {
        box.offset.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(size)));
        box.extent.push_back(
            static_cast<int64_t>(random() % static_cast<uint64_t>(size - box.offset[-1] + 1)));
      }
      Slices wanted;
      wanted.add(sample, box, false);
      store.load(0, wanted.list);
      CHECK(wanted.memory[0] == sample.copy_of(box));
    }
  }
}

TEST_CASE("large tensors take the same way in pieces") {
  Sample sample{"big",
                DType::f32,
                {1500, 3000},
                {}};  // 18 MB: over the digest's piece and the reader's window
  sample.bytes.resize(static_cast<size_t>(sample.shape.numel()) * 4);
  for (size_t i = 0; i < sample.bytes.size(); i += 4)
    std::memcpy(&sample.bytes[i], &(const uint32_t&)(uint32_t(i * 2654435761u) & 0x3FFFFFFF), 4);
  std::string digest;
  for (Layout from : {Layout{1, 0}, Layout{3, 1}, Layout{4, 0}}) {
    TempDir dir;
    CheckpointStore store(dir.path(), StoreOptions{});
    store.save(1, all_parts({sample}, from).list, kReshardMeta);
    std::string mine = checkpoint_digest(dir / "step-1");
    CHECK((digest.empty() || mine == digest));
    digest = mine;
    Slices wanted;
    wanted.add(sample, {{700, 1}, {300, 2998}}, false);
    store.load(1, wanted.list);
    CHECK(wanted.memory[0] == sample.copy_of({{700, 1}, {300, 2998}}));
  }
}

TEST_CASE("several ranks save one checkpoint together") {
  auto samples = sample_tensors(13);
  std::string digest;
  for (int world : {1, 2, 3, 4}) {
    TempDir dir;
    Ballot ballot(world);
    auto errors = on_ranks(world, [&](int rank) {
      CheckpointStore store(
          dir.path(),
          StoreOptions{.rank = rank, .world = world, .token = "job", .vote = std::ref(ballot)});
      Slices mine = slices_of(samples, rank, world, 0);
      store.save(8, mine.list, kReshardMeta);
      CHECK(store.save(8, mine.list, kReshardMeta).already_saved);
    });
    for (const auto& error : errors) CHECK(error.empty());
    CheckpointStore store(dir.path());
    CHECK(store.problem(8).empty());
    CHECK(fs::exists(dir / "step-8" /
                     cat("shard-0000", world - 1, "-of-0000", world, ".safetensors")));
    CHECK(std::distance(fs::directory_iterator(dir / "step-8"), {}) == world + 1);
    std::string mine = checkpoint_digest(dir / "step-8");
    CHECK((digest.empty() || mine == digest));
    digest = mine;
    Slices wanted = slices_of(samples, 0, 1, 0, false);
    store.load(8, wanted.list);
    CHECK(wanted.memory == slices_of(samples, 0, 1, 0).memory);
  }
}

TEST_CASE("ranks save in the background, polling at the same places") {
  auto samples = sample_tensors(13);
  TempDir dir;
  constexpr int kWorld = 3;
  Ballot ballot(kWorld);
  auto errors = on_ranks(kWorld, [&](int rank) {
    CheckpointStore store(
        dir.path(),
        StoreOptions{.rank = rank, .world = kWorld, .token = "job", .vote = std::ref(ballot)});
    Slices mine = slices_of(samples, rank, kWorld, 0);
    store.save(1, mine.list, kReshardMeta);
    PendingSave pending = store.start_save(2, mine.list, kReshardMeta);
    int polls = 1;
    while (!pending.poll()) ++polls;
    CHECK(polls >= 2);  // the shards, the manifest
    CHECK(pending.poll());
    CHECK_FALSE(pending.result().already_saved);
    CHECK(store.start_save(2, mine.list, kReshardMeta).wait().already_saved);
    std::vector<Slice> bad = mine.list;
    if (rank == 2) bad.push_back(bad[0]);
    std::string why = failure([&] {
      PendingSave fails = store.start_save(3, bad, kReshardMeta);
      while (!fails.poll()) {
      }
    });
    CHECK(why.find(rank == 2 ? "two tensors are named" : "another rank could not save") !=
          std::string::npos);
    PendingSave some = store.start_save(4, mine.list, kReshardMeta);
    if (rank != 1)
      some.poll();  // two come to where they are counted, one gives up before
    else
      ballot(false);
  });
  for (const auto& error : errors) CHECK(error.empty());
  CHECK(checkpoint_digest(dir / "step-1") !=
        checkpoint_digest(dir / "step-2"));           // it holds the step
  CheckpointStore store(dir.path(), StoreOptions{});  // clears away what was given up
  CHECK(store.list().size() == 2);
  CHECK(store.problem(2).empty());
  Slices wanted = slices_of(samples, 0, 1, 0, false);
  store.load(2, wanted.list);
  CHECK(wanted.memory == slices_of(samples, 0, 1, 0).memory);
  for (const auto& entry : fs::directory_iterator(dir.path()))
    CHECK(entry.path().filename().string().find("tmp") == std::string::npos);
}

TEST_CASE("ranks save more often than checkpoints are kept") {
  auto samples = sample_tensors(13);
  TempDir dir;
  constexpr int kWorld = 3;
  Ballot ballot(kWorld);
  auto errors = on_ranks(kWorld, [&](int rank) {
    CheckpointStore store(
        dir.path(),
        StoreOptions{
            .keep = 2, .rank = rank, .world = kWorld, .token = "job", .vote = std::ref(ballot)});
    Slices mine = slices_of(samples, rank, kWorld, 0);
    for (int64_t step = 1; step <= 6; ++step)
      CHECK(store.save(step, mine.list, kReshardMeta).warnings.empty());
  });
  for (const auto& error : errors) CHECK(error.empty());
  CheckpointStore store(dir.path());
  CHECK(store.list().size() == 2);
  CHECK(store.latest_valid().step == 6);
}

TEST_CASE(
    "slices are made on the save's thread, and a rank that cannot make them fails the save on "
    "all") {
  auto samples = sample_tensors(13);
  TempDir dir;
  constexpr int kWorld = 3;
  Ballot ballot(kWorld);
  auto errors = on_ranks(kWorld, [&](int rank) {
    CheckpointStore store(
        dir.path(),
        StoreOptions{.rank = rank, .world = kWorld, .token = "job", .vote = std::ref(ballot)});
    Slices mine = slices_of(samples, rank, kWorld, 0);
    auto save = [&](int64_t step, const std::function<std::vector<Slice>()>& make) {
      return failure([&] {
        PendingSave pending = store.start_save(step, make, kReshardMeta);
        while (!pending.poll()) {
        }
      });
    };
    std::thread::id maker;
    int made = 0;
    CHECK(save(1, [&] { return ++made, maker = std::this_thread::get_id(), mine.list; }).empty());
    CHECK(made == 1);
    CHECK(maker != std::this_thread::get_id());
    std::string why = save(2, [&] { return rank == 1 ? throw std::bad_alloc() : mine.list; });
    CHECK_MESSAGE(why.find(rank == 1 ? "not enough memory" : "another rank could not save") !=
                      std::string::npos,
                  why);
    CHECK(save(3, [&] { return mine.list; }).empty());
  });
  for (const auto& error : errors) CHECK(error.empty());
  CheckpointStore store(dir.path());
  CHECK(store.list().size() == 2);
  CHECK(store.problem(1).empty());
  CHECK(store.problem(3).empty());
}

TEST_CASE("ranks that fail by different errors throw one class") {
  auto samples = sample_tensors(5);
  TempDir dir;
  constexpr int kWorld = 3;
  Ballot ballot(kWorld);
  auto errors = on_ranks(kWorld, [&](int rank) {
    CheckpointStore store(
        dir.path(),
        StoreOptions{.rank = rank, .world = kWorld, .token = "job", .vote = std::ref(ballot)});
    Slices mine = slices_of(samples, rank, kWorld, 0);
    int64_t step = 0;
    for (ErrorClass other : {ErrorClass::usage, ErrorClass::config, ErrorClass::data,
                             ErrorClass::checkpoint, ErrorClass::plugin, ErrorClass::numeric,
                             ErrorClass::peer, ErrorClass::io, ErrorClass::bug}) {
      ErrorClass got{};
      std::string why = failure(
          [&] {
            store
                .start_save(
                    ++step,
                    [&]() -> std::vector<Slice> {
                      if (rank == 1) throw Error(other, "the device is gone");
                      if (rank == 2) throw Error(ErrorClass::io, "the disk is full");
                      return mine.list;
                    },
                    kReshardMeta)
                .wait();
          },
          &got);
      CHECK(got == other);
      const char* wanted[] = {"another rank could not save", "the device is gone",
                              "the disk is full"};
      CHECK_MESSAGE(why.find(wanted[rank]) != std::string::npos, why);
    }
    std::string why =
        failure([&] { store.agree(rank == 2 ? std::make_exception_ptr(7) : nullptr); });
    CHECK_MESSAGE(why.find(rank == 2 ? "not a std::exception" : "another rank could not save") !=
                      std::string::npos,
                  why);
    store.agree(nullptr);
  });
  for (const auto& error : errors) CHECK_MESSAGE(error.empty(), error);
  CHECK(CheckpointStore(dir.path()).list().empty());
}

TEST_CASE("when one rank fails, none commits and all say so") {
  auto samples = sample_tensors(13);
  TempDir dir;
  constexpr int kWorld = 3;
  Ballot ballot(kWorld);
  auto errors = on_ranks(kWorld, [&](int rank) {
    CheckpointStore store(
        dir.path(),
        StoreOptions{.rank = rank, .world = kWorld, .token = "job", .vote = std::ref(ballot)});
    Slices mine = slices_of(samples, rank, kWorld, 0);
    store.save(1, mine.list, kReshardMeta);
    std::vector<Slice> bad = mine.list;
    if (rank == 1) bad.push_back(bad[0]);  // refused by the writer of its shard
    std::string first = failure([&] { store.save(2, bad, kReshardMeta); });
    CHECK(first.find(rank == 1 ? "two tensors are named" : "another rank could not save") !=
          std::string::npos);
    std::vector<Slice> less(mine.list.begin() + (rank == 2),
                            mine.list.end());  // found at the commit, by rank 0
    std::string second = failure([&] { store.save(2, less, kReshardMeta); });
    CHECK(second.find(rank == 0 ? "its boxes cover" : "another rank could not save") !=
          std::string::npos);
    store.save(3, mine.list, kReshardMeta);
  });
  for (const auto& error : errors) CHECK(error.empty());
  CheckpointStore store(dir.path());
  CHECK(store.list().size() == 2);
  CHECK(store.latest_valid().step == 3);
  for (const auto& entry : fs::directory_iterator(dir.path()))
    CHECK(entry.path().string().find(".tmp-") == std::string::npos);
}
