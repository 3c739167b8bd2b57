#include "mtrain/checkpoint/store.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <limits>
#include <thread>

#include "checkpoint_testing.h"
#include "mtrain/checkpoint/digest.h"
#include "mtrain/checkpoint/safetensors.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

constexpr const char* kMeta =
    R"({"rng": {"seed": 42}, "cursor": 7, "note": "not part of the digest"})";

/// Saves the sample of this seed as one part.
SaveResult save(CheckpointStore& store, int64_t step, uint32_t seed) {
  return store.save(step, slices_of(sample_tensors(seed), 0, 1, 0).list, kMeta);
}

std::vector<int64_t> steps_of(const CheckpointStore& store) {
  std::vector<int64_t> out;
  for (const auto& info : store.list()) out.push_back(info.step);
  return out;
}

void flip(const fs::path& path, uint64_t at) {
  std::string bytes = read_file(path);
  bytes[at] = static_cast<char>(bytes[at] ^ 4);
  put_file(path, bytes);
}

}  // namespace

TEST_CASE(
    "a rewind sets newer checkpoints aside, keeps their bytes, and refuses a step that is absent "
    "or damaged") {
  TempDir dir;
  const fs::path folder = dir / "checkpoints";
  CheckpointStore store(folder, StoreOptions{.keep = 0});
  for (int64_t step : {5, 10, 15, 20}) save(store, step, static_cast<uint32_t>(step));
  const std::string newest = checkpoint_digest(store.step_folder(20));
  CHECK(store.rewind(20).empty());
  CHECK_FALSE(fs::exists(folder / "set-aside-1"));
  CHECK(failure([&] { store.rewind(7); }).find("step-7: no such checkpoint") != std::string::npos);
  flip(store.step_folder(5) / "shard-00000-of-00001.safetensors", 400);
  ErrorClass error_class{};
  CHECK(failure([&] { store.rewind(5); }, &error_class).find("cannot go back to step 5") !=
        std::string::npos);
  CHECK(error_class == ErrorClass::checkpoint);
  CHECK(steps_of(store) == std::vector<int64_t>{5, 10, 15, 20});
  CHECK(store.rewind(10) ==
        std::vector{folder / "set-aside-1" / "step-20", folder / "set-aside-1" / "step-15"});
  CHECK(steps_of(store) == std::vector<int64_t>{5, 10});
  CHECK(trim(read_file(folder / "latest")) == "step-10");
  CHECK(checkpoint_digest(folder / "set-aside-1" / "step-20") == newest);
  // The run goes on by another way, and back again.
  save(store, 15, 99);
  CHECK(store.rewind(10) == std::vector{folder / "set-aside-2" / "step-15"});
  CHECK(store.latest_valid().step == 10);
}

TEST_CASE("a checkpoint is saved, found and loaded") {
  TempDir dir;
  auto samples = sample_tensors(1);
  Slices saved = slices_of(samples, 0, 1, 0);
  {
    CheckpointStore store(dir / "run" / "checkpoints", StoreOptions{});
    CHECK_FALSE(store.latest_valid().step.has_value());
    auto result = store.save(5, saved.list, kMeta);
    CHECK(result.path == dir / "run" / "checkpoints" / "step-5");
    CHECK(result.bytes > 0);
    CHECK(result.warnings.empty());
    CHECK_FALSE(result.already_saved);
  }
  CheckpointStore store(dir / "run" / "checkpoints");
  CHECK(store.latest_valid().step == 5);
  CHECK(store.meta(5) == R"({"cursor":7,"note":"not part of the digest","rng":{"seed":42}})");
  CHECK(store.tensors(5).size() == samples.size());
  Slices loaded = slices_of(samples, 0, 1, 0, false);
  store.load(5, loaded.list);
  CHECK(loaded.memory == saved.memory);
  CHECK(trim(read_file(dir / "run" / "checkpoints" / "latest")) == "step-5");

  auto info = store.list().at(0);
  CHECK(info.problem.empty());
  CHECK(info.num_tensors == samples.size());
  CHECK(info.created.size() == 20);
  CHECK(locate_checkpoints(dir / "run").folder == dir / "run" / "checkpoints");
  CHECK(locate_checkpoints(dir / "run" / "checkpoints").step == std::nullopt);
  CHECK(locate_checkpoints(dir / "run" / "checkpoints" / "step-5").step == 5);
  CHECK(locate_checkpoints((dir / "run" / "checkpoints" / "step-5").string() + "/").step == 5);
  CHECK(locate_checkpoints((dir / "run" / "checkpoints" / "step-5").string() + "/.").step == 5);
  CHECK(failure([&] { locate_checkpoints(dir.path()); }).find("contains no checkpoints") !=
        std::string::npos);
  CHECK(failure([&] { locate_checkpoints(dir / "x"); }).find("no such folder") !=
        std::string::npos);
}

TEST_CASE("a one-rank checkpoint is readable by any safetensors reader") {
  TempDir dir;
  CheckpointStore store(dir.path(), StoreOptions{});
  auto samples = sample_tensors(3);
  store.save(1, slices_of(samples, 0, 1, 0).list, "{}");
  SafetensorsFile file(dir / "step-1" / "shard-00000-of-00001.safetensors");
  REQUIRE(file.tensors().size() == samples.size());
  for (const auto& sample : samples) {
    CHECK(file.at(sample.name).shape == sample.shape);
    CHECK(std::ranges::equal(file.at(sample.name).data, sample.bytes));
  }
}

TEST_CASE("the digest depends on content, and nothing else") {
  TempDir a, b;
  CheckpointStore first(a.path(), StoreOptions{}), second(b.path(), StoreOptions{});
  auto list = [](uint32_t seed) { return slices_of(sample_tensors(seed), 0, 1, 0); };
  first.save(1, list(1).list, R"({"rng": 1, "cursor": {"b": 2, "a": 1}, "wall": 5})");
  second.save(1, list(1).list, R"({"wall": 6, "cursor": {"a": 1, "b": 2}, "rng": 1})");
  const std::string digest = checkpoint_digest(a / "step-1");
  CHECK(digest.size() == 64);
  CHECK(digest == checkpoint_digest(b / "step-1"));
  second.save(2, list(1).list, R"({"rng": 1, "cursor": {"b": 2, "a": 1}})");
  CHECK(digest != checkpoint_digest(b / "step-2"));
  for (const char* meta :
       {R"({"rng": 2, "cursor": {"b": 2, "a": 1}})", R"({"rng": 1, "cursor": {"b": 2, "a": 2}})",
        R"({"rng": 1})", R"({"rng": 1, "cursor": {"b": 2, "a": 1}, "state": 0})"}) {
    TempDir c;
    CheckpointStore other(c.path(), StoreOptions{});
    other.save(1, list(1).list, meta);
    CHECK(digest != checkpoint_digest(c / "step-1"));
  }
  std::vector<std::string> digests;
  for (Shape shape : {Shape{2, 6}, Shape{3, 4}, Shape{12}}) {  // the same bytes
    TempDir d;
    std::vector<std::byte> bytes(12);
    std::vector<Slice> slices = {whole_slice("t", DType::u8, shape, bytes)};
    CheckpointStore(d.path(), StoreOptions{}).save(1, slices, "{}");
    digests.push_back(checkpoint_digest(d / "step-1"));
  }
  CHECK((digests[0] != digests[1] && digests[1] != digests[2] && digests[0] != digests[2]));
  TempDir c;
  CheckpointStore other(c.path(), StoreOptions{});
  Slices changed = list(1);
  changed.memory.back().back() ^= std::byte{1};
  other.save(1, changed.list, R"({"rng": 1, "cursor": {"b": 2, "a": 1}})");
  CHECK(digest != checkpoint_digest(c / "step-1"));
}

TEST_CASE("saving a step again: the same is accepted, another refused, a damaged one replaced") {
  TempDir dir;
  CheckpointStore store(dir.path(), StoreOptions{});
  save(store, 5, 1);
  std::string manifest = read_file(dir / "step-5" / "manifest.json");
  CHECK(save(store, 5, 1).already_saved);
  ErrorClass error_class{};
  CHECK(failure([&] { save(store, 5, 2); }, &error_class).find("another state of step 5") !=
        std::string::npos);
  CHECK(error_class == ErrorClass::checkpoint);
  CHECK(failure([&] {
          store.save(5, slices_of(sample_tensors(1), 0, 1, 0).list, R"({"cursor": 8})");
        }).size() > 0);
  CHECK(read_file(dir / "step-5" / "manifest.json") == manifest);
  CHECK(store.problem(5).empty());

  flip(dir / "step-5" / "shard-00000-of-00001.safetensors", 1000);
  CHECK_FALSE(store.problem(5).empty());
  CHECK_FALSE(save(store, 5, 1).already_saved);
  CHECK(store.problem(5).empty());
  CHECK(steps_of(store) == std::vector<int64_t>{5});
}

TEST_CASE("retention keeps the newest, the multiples, and what it must not judge") {
  TempDir dir;
  CheckpointStore store(dir.path(), StoreOptions{.keep = 2, .keep_every = 100});
  for (int64_t step : {100, 110, 120, 130}) save(store, step, static_cast<uint32_t>(step));
  CHECK(steps_of(store) == std::vector<int64_t>{100, 120, 130});
  // A run that went back to 115 must not lose what it saves to the newer ones of its first try.
  save(store, 115, 1);
  save(store, 117, 1);
  CHECK(steps_of(store) == std::vector<int64_t>{100, 115, 117, 120, 130});
  // A torn one does not count as one of those kept.
  fs::remove(dir / "step-130" / "manifest.json");
  save(store, 140, 1);
  CHECK(steps_of(store) == std::vector<int64_t>{100, 120, 130, 140});
  CHECK(failure([&] {
          CheckpointStore(dir / "x", StoreOptions{.keep = 1});
        }).find("checkpoint.keep") != std::string::npos);

  TempDir all;
  CheckpointStore keeps_all(all.path(), StoreOptions{.keep = 0});
  for (int64_t step = 1; step <= 6; ++step) save(keeps_all, step, 1);
  CHECK(steps_of(keeps_all).size() == 6);
}

TEST_CASE(
    "the newest valid checkpoint is found, whatever the hint says; damaged ones are reported") {
  TempDir dir;
  CheckpointStore store(dir.path(), StoreOptions{.keep = 0});
  for (int64_t step : {9, 10, 11}) save(store, step, 1);
  for (const char* hint : {"", "step-9\n", "step-99999999999999999999\n", "../../etc\n"}) {
    put_file(dir / "latest", hint);
    CHECK(store.latest_valid().step == 11);  // by number, not by text
  }
  fs::remove(dir / "latest");
  fs::create_directory(dir / "step-012");
  fs::create_directory(dir / "step-x");
  put_file(dir / "step-77", "a file");
  flip(dir / "step-11" / "shard-00000-of-00001.safetensors", 1500);
  auto latest = store.latest_valid();
  CHECK(latest.step == 10);
  REQUIRE(latest.refused.size() == 1);
  CHECK(latest.refused[0].step == 11);
  CHECK(latest.refused[0].reason.find("step-11/shard-00000-of-00001.safetensors") !=
        std::string::npos);
  CHECK(latest.refused[0].reason.find('\n') == std::string::npos);
  fs::remove(dir / "step-10" / "manifest.json");
  flip(dir / "step-9" / "manifest.json", 30);
  ErrorClass error_class{};
  std::string message = failure([&] { store.latest_valid(); }, &error_class);
  CHECK(error_class == ErrorClass::checkpoint);
  for (const char* part : {"none of the 3", "step 11: ", "step 10: ", "step 9: ", "run.dir=PATH"})
    CHECK(message.find(part) != std::string::npos);
}

TEST_CASE("loading refuses what is not there, before it touches anything") {
  TempDir dir;
  CheckpointStore store(dir.path(), StoreOptions{});
  auto samples = sample_tensors(1);
  save(store, 5, 1);
  auto message_of = [&](auto&& change) {
    Slices wanted = slices_of(samples, 0, 1, 0, false);
    auto before = wanted.memory;
    change(wanted.list[1]);
    ErrorClass error_class{};
    std::string message = failure([&] { store.load(5, wanted.list); }, &error_class);
    CHECK(error_class == ErrorClass::checkpoint);
    CHECK(wanted.memory == before);
    return message;
  };
  CHECK(message_of([](Slice& s) {
          s.name = "model.norm.wieght";
        }).find("the nearest names are model.norm.weight") != std::string::npos);
  CHECK(message_of([](Slice& s) {
          s.dtype = DType::i32;
        }).find("'model.norm.weight': wanted int32, the checkpoint has fp32") != std::string::npos);
  CHECK(message_of([](Slice& s) { s.global = {9}; }).find("wanted [9], the checkpoint has [8]") !=
        std::string::npos);
  CHECK(message_of([](Slice& s) {
          s.offset = {1};
        }).find("wanted box offset [1] size [8] of [8]") != std::string::npos);
  Slices wanted = slices_of(samples, 0, 1, 0, false);
  CHECK(failure([&] { store.load(6, wanted.list); }).find("no such checkpoint") !=
        std::string::npos);
}

TEST_CASE("NaN and Inf are refused by name unless allowed") {
  TempDir dir;
  CheckpointStore store(dir.path(), StoreOptions{.allow_nonfinite = true});
  for (float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> values(100, 1.0f);
    values[70] = bad;
    auto bytes = std::as_writable_bytes(std::span(values));
    std::vector<Slice> slices = {whole_slice("w", DType::f32, {10, 10}, bytes)};
    const int64_t step = std::isnan(bad) ? 1 : 2;
    store.save(step, slices, "{}");
    ErrorClass error_class{};
    CHECK(failure([&] { store.load(step, slices); }, &error_class)
              .find("'w' contains NaN or Inf, first at element 70") != std::string::npos);
    CHECK(error_class == ErrorClass::numeric);
    store.load(step, slices, {.allow_nonfinite = true});
    CHECK(inspect_checkpoint(dir / cat("step-", step)).nonfinite == std::vector<std::string>{"w"});
  }
  CHECK(first_nonfinite(DType::bf16, std::as_bytes(std::span("\x80\x3f\x80\x7f", 4))) == 1);
  CHECK(first_nonfinite(DType::f16, std::as_bytes(std::span("\xff\x7b\x00\xfc", 4))) == 1);
  CHECK_FALSE(first_nonfinite(DType::i32, std::as_bytes(std::span("\xff\xff\xff\xff", 4))));
}

TEST_CASE(
    "a state with NaN or Inf is not saved, wherever the element is, and older checkpoints stay") {
  TempDir dir;
  const StoreOptions options{.keep = 2};
  CheckpointStore store(dir.path(), options);
  save(store, 1, 1);
  save(store, 2, 2);
  constexpr size_t kCount =
      (size_t{4} << 20) / sizeof(float) + 3000;  // more than is hashed at once
  std::vector<float> values(kCount, 1.0f);
  for (size_t at : {size_t{0}, size_t{1023}, size_t{1024}, kCount - 3000, kCount - 1}) {
    values[at] =
        at % 2 ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
    auto bytes = std::as_writable_bytes(std::span(values));
    std::vector<Slice> slices = {
        whole_slice("w", DType::f32, {static_cast<int64_t>(kCount)}, bytes)};
    ErrorClass error_class{};
    std::string message = failure([&] { store.save(3, slices, "{}"); }, &error_class);
    CHECK_MESSAGE(
        message.find(cat(
            "the state of step 3 is not saved: tensor 'w' contains NaN or Inf, first at element ",
            at, " ")) != std::string::npos,
        message);
    CHECK(error_class == ErrorClass::numeric);
    CHECK(steps_of(store) == std::vector<int64_t>{1, 2});
    values[at] = 1;
    for (const auto& entry : fs::directory_iterator(dir.path()))
      CHECK_FALSE(entry.path().filename().string().starts_with("step-3"));
  }
  save(store, 3, 3);
  CHECK(steps_of(store) == std::vector<int64_t>{2, 3});
}

TEST_CASE("when one rank's part cannot be saved for what it is, all ranks fail alike") {
  TempDir dir;
  std::barrier<> barrier(2);
  std::atomic<bool> all{true};
  auto vote = [&](bool mine) {
    barrier.arrive_and_wait();
    if (!mine) all = false;
    barrier.arrive_and_wait();
    bool said = all;
    barrier.arrive_and_wait();
    all = true;
    return said;
  };
  std::array<ErrorClass, 2> classes{};
  auto rank = [&](int r) {
    CheckpointStore store(dir.path(), {.rank = r, .world = 2, .token = "t", .vote = vote});
    std::vector<float> values(4, r == 1 ? std::numeric_limits<float>::infinity() : 1.0f);
    std::vector<Slice> slices = {
        {"w", DType::f32, {8}, {4 * r}, {4}, std::as_writable_bytes(std::span(values))}};
    failure([&] { store.save(1, slices, "{}"); }, &classes[static_cast<size_t>(r)]);
  };
  std::thread other([&] { rank(1); });
  rank(0);
  other.join();
  CHECK(classes[0] == ErrorClass::numeric);
  CHECK(classes[1] == ErrorClass::numeric);
}

TEST_CASE("room for a checkpoint is asked of the folder before one is made") {
  TempDir dir;
  CheckpointStore store(dir / "checkpoints", StoreOptions{});
  store.require_room(1 << 20);
  ErrorClass error_class{};
  std::string message = failure([&] { store.require_room(uint64_t{1} << 62); }, &error_class);
  CHECK_MESSAGE(message.find("has only ") != std::string::npos, message);
  CHECK_MESSAGE(message.find("one checkpoint needs 4096.0 PiB") != std::string::npos, message);
  CHECK(error_class == ErrorClass::io);
  fs::remove_all(dir / "checkpoints");
  CHECK(failure([&] { store.require_room(1); }, &error_class).find("no checkpoint can be saved") !=
        std::string::npos);
  CHECK(error_class == ErrorClass::io);
  fs::create_directory(dir / "checkpoints");
  store.require_room(1);
  CHECK(fs::is_empty(dir / "checkpoints"));
}

TEST_CASE("a system that cannot open files is no reason to take an older checkpoint") {
  TempDir dir;
  CheckpointStore store(dir.path(), StoreOptions{});
  save(store, 1, 1);
  save(store, 2, 2);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit few{256, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  std::vector<int> taken;
  for (int fd; (fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) taken.push_back(fd);
  REQUIRE(errno == EMFILE);
  // With none free the folder cannot be listed; with one, the checkpoint's second file cannot be
  // opened.
  for (int free = 0; free < 2; ++free) {
    ErrorClass error_class{};
    std::string message = failure([&] { store.latest_valid(); }, &error_class);
    CHECK_MESSAGE(message.find("Too many open files") != std::string::npos, message);
    CHECK(error_class == ErrorClass::io);
    CHECK(failure([&] { (void)store.problem(2); }, &error_class)
              .find("raise the limit (ulimit -n)") != std::string::npos);
    CHECK(error_class == ErrorClass::io);
    if (free == 1)
      for (const auto& info : store.list()) CHECK(info.problem.empty());  // needs one at a time
    ::close(taken.back());
    taken.pop_back();
  }
  for (int fd : taken) ::close(fd);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(store.latest_valid().step == 2);
}

TEST_CASE("what cannot be a checkpoint is not saved and leaves nothing") {
  TempDir dir;
  CheckpointStore store(dir.path(), StoreOptions{});
  auto samples = sample_tensors(1);
  auto refuses = [&](const std::vector<Slice>& slices, const char* meta, const char* expected) {
    std::string message = failure([&] { store.save(1, slices, meta); });
    CAPTURE(message);
    CHECK(message.find(expected) != std::string::npos);
    CHECK(std::distance(fs::directory_iterator(dir.path()), {}) == 1);  // the lock
  };
  Slices good = slices_of(samples, 0, 1, 0), half = slices_of(samples, 0, 2, 0);
  refuses(half.list, "{}", "tensor 'bytes': its boxes cover 3 of 7 elements");
  refuses(good.list, "[]", "JSON object");
  refuses(good.list, "{", "malformed JSON");
  refuses(good.list, R"({"a":1,"a":2})", "\"a\" occurs twice");
  auto twice = good.list;
  twice.push_back(twice[0]);
  refuses(twice, "{}", "two tensors are named");
  auto overlapping = good.list;
  overlapping.push_back(half.list[0]);
  refuses(overlapping, "{}", "overlaps");
  auto nameless = good.list;
  nameless[0].name = "a\nb";
  refuses(nameless, "{}", "control character");
  save(store, 1, 1);
  CHECK(store.problem(1).empty());
}

TEST_CASE("one folder has one writer, and a killed one leaves no lock") {
  TempDir dir;
  int ready[2], hold[2];
  REQUIRE((::pipe(ready) == 0 && ::pipe(hold) == 0));
  pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::close(hold[1]);  // so that the wait below ends with the parent, however that ends
    CheckpointStore store(dir.path(), StoreOptions{});
    char byte = 1;
    if (::write(ready[1], &byte, 1) != 1 || ::read(hold[0], &byte, 1) < 0) ::_exit(1);
    ::_exit(0);
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  ErrorClass error_class{};
  std::string message =
      failure([&] { CheckpointStore store(dir.path(), StoreOptions{}); }, &error_class);
  CHECK(error_class == ErrorClass::io);
  CHECK(message.find(cat("in use by another job (pid ", child, " host ")) != std::string::npos);
  CHECK(CheckpointStore(dir.path()).list().empty());  // reading needs no lock
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CheckpointStore store(dir.path(), StoreOptions{});
  save(store, 1, 1);
  CHECK(failure([&] { RunLock lock(dir.path()); }).find("in use") != std::string::npos);
  for (int fd : {ready[0], ready[1], hold[0], hold[1]}) ::close(fd);
}

TEST_CASE("a folder that cannot be written is found before the first step") {
  TempDir dir;
  put_file(dir / "file", "");
  ErrorClass error_class{};
  CHECK(failure([&] { CheckpointStore store(dir / "file" / "x", StoreOptions{}); }, &error_class)
            .size() > 0);
  CHECK(error_class == ErrorClass::io);
  if (::geteuid() != 0) {
    fs::create_directory(dir / "locked");
    fs::permissions(dir / "locked", fs::perms::owner_read | fs::perms::owner_exec);
    CHECK(failure([&] { CheckpointStore store(dir / "locked", StoreOptions{}); }, &error_class)
              .find("Permission denied") != std::string::npos);
  }
}

TEST_CASE("opening removes what a killed job left, and only that") {
  TempDir dir;
  {
    CheckpointStore store(dir.path(), StoreOptions{});
    save(store, 1, 1);
  }
  fs::create_directories(dir / "step-2.tmp-77-1" / "deep");
  fs::create_directory(dir / "trash-step-0-77-1");
  put_file(dir / "latest.tmp-77", "step-");
  put_file(dir / "notes.txt", "mine");
  fs::create_directory(dir / "step-notes");
  CheckpointStore(dir.path()).list();
  CHECK(fs::exists(dir / "step-2.tmp-77-1"));  // a reader removes nothing
  CheckpointStore store(dir.path(), StoreOptions{});
  CHECK_FALSE(fs::exists(dir / "step-2.tmp-77-1"));
  CHECK_FALSE(fs::exists(dir / "trash-step-0-77-1"));
  CHECK_FALSE(fs::exists(dir / "latest.tmp-77"));
  CHECK(fs::exists(dir / "notes.txt"));
  CHECK(fs::exists(dir / "step-notes"));
  CHECK(store.latest_valid().step == 1);
}
