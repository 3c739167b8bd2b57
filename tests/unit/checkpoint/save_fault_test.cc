// The save protocol under fire: a child process saves with one failpoint armed, for every site and
// every visit of it; then the parent demands the old state or the new one, no leftovers, and that
// the next save works.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "checkpoint_testing.h"
#include "mtrain/base/failpoint.h"
#include "mtrain/checkpoint/digest.h"
#include "mtrain/checkpoint/store.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

constexpr const char* kFaultMeta = R"({"rng": 1, "cursor": 2})";
const StoreOptions kOptions{.keep = 2};

std::vector<Sample> state_at(int64_t step) { return sample_tensors(static_cast<uint32_t>(step)); }
SaveResult save_state(CheckpointStore& store, int64_t step) {
  return store.save(step, slices_of(state_at(step), 0, 1, 0).list, kFaultMeta);
}

bool holds_state(const CheckpointStore& store, int64_t step) {
  Slices loaded = slices_of(state_at(step), 0, 1, 0, false);
  store.load(step, loaded.list);
  return loaded.memory == slices_of(state_at(step), 0, 1, 0).memory;
}

bool has_leftovers(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::string name = entry.path().filename().string();
    if (name.find(".tmp-") != std::string::npos || name.starts_with("trash-")) return true;
  }
  return false;
}

/// The command that starts this program's child case. MTRAIN_TEST_EMULATOR names the emulator and
/// its options where this program runs in one: the kernel cannot start a program of another
/// processor.
std::vector<std::string> child_command() {
  const char* emulator = std::getenv("MTRAIN_TEST_EMULATOR");
  std::vector<std::string> command = emulator ? split(emulator, ' ') : std::vector<std::string>{};
  command.push_back(fs::read_symlink("/proc/self/exe").string());
  command.push_back("--no-skip");
  command.push_back("--test-case=child of the fault sweeps");
  return command;
}

/// Runs this program's child case with a fault armed and gives its wait status.
int run_child(const fs::path& folder, const char* mode, const std::string& fault,
              const fs::path& visits = {}) {
  std::vector<std::string> command = child_command();
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::setenv("MTRAIN_FAULT", fault.c_str(), 1);
    ::setenv("MTRAIN_LOG", "off", 1);
    ::setenv("MTRAIN_CKPT_FOLDER", folder.c_str(), 1);
    ::setenv("MTRAIN_CKPT_MODE", mode, 1);
    ::setenv("MTRAIN_CKPT_VISITS", visits.c_str(), 1);
    int null = ::open("/dev/null", O_RDWR);
    ::dup2(null, 1);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

bool killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }
bool succeeded(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

/// The sites that the child passes in this mode, with the number of visits.
std::map<std::string, int> sites(const fs::path& start, const char* mode) {
  TempDir dir;
  fs::copy(start, dir / "run", fs::copy_options::recursive);
  REQUIRE(succeeded(run_child(dir / "run", mode, "nowhere", dir / "visits")));
  std::map<std::string, int> out;
  for (const auto& line : split(read_file(dir / "visits"), '\n')) {
    auto words = split(line, ' ');
    if (words.size() == 2) out[words[0]] = std::stoi(words[1]);
  }
  return out;
}

/// Steps 10 and 20; with `damaged`, a step 30 with a flipped bit and the leftovers of a killed job
/// as well.
void prepare(const fs::path& folder, bool damaged) {
  {
    CheckpointStore store(folder, kOptions);
    save_state(store, 10);
    save_state(store, 20);
    if (damaged) store.save(30, slices_of(state_at(31), 0, 1, 0).list, kFaultMeta);
  }
  if (!damaged) return;
  fs::path shard = folder / "step-30" / "shard-00000-of-00001.safetensors";
  std::string bytes = read_file(shard);
  bytes[bytes.size() / 2] ^= 1;
  put_file(shard, bytes);
  fs::create_directories(folder / "step-25.tmp-1-1");
  fs::create_directories(folder / "trash-step-5-1-1");
}

/// Old or new, whole, at least two (before a damaged one is counted), and usable.
void check_after(const fs::path& folder, bool damaged, const char* next_mode) {
  CheckpointStore store(folder, kOptions);
  CHECK_FALSE(has_leftovers(folder));
  auto latest = store.latest_valid();
  REQUIRE(latest.step.has_value());
  CHECK((latest.step == 20 || latest.step == 30 || latest.step == 40));
  CHECK(holds_state(store, *latest.step));
  CHECK(latest.refused.size() <= (damaged ? 1u : 0u));
  size_t valid = 0;
  for (const auto& info : store.list()) {
    if (!store.problem(info.step).empty()) continue;
    CHECK(holds_state(store, info.step));
    ++valid;
  }
  CHECK(valid >= (damaged ? 1 : 2));
  int64_t next = std::string_view(next_mode) == "same" ? 30 : 50;
  save_state(store, next);
  CHECK(store.latest_valid().step.value() >= next);
  CHECK(holds_state(store, next));
  CHECK_FALSE(has_leftovers(folder));
}

struct Count {
  int runs = 0, deaths = 0;
};

/// Arms `action` at every visit of every site in turn.
Count sweep(const char* mode, const char* action, bool damaged, bool forever = false) {
  TempDir start;
  prepare(start / "run", damaged);
  Count count;
  for (const auto& [site, visits] : sites(start / "run", mode)) {
    for (int nth = forever ? 0 : 1; nth <= (forever ? 0 : visits); ++nth) {
      CAPTURE(site);
      CAPTURE(nth);
      CAPTURE(action);
      TempDir dir;
      fs::copy(start / "run", dir / "run", fs::copy_options::recursive);
      int status = run_child(dir / "run", mode, cat(site, ':', nth, ':', action));
      ++count.runs;
      if (std::string_view(action) == "kill") {
        CHECK(killed(status));
        count.deaths += killed(status);
      } else {
        CHECK(succeeded(status));
      }
      check_after(dir / "run", damaged, nth % 2 ? "same" : "later");
    }
  }
  return count;
}

/// What a trainer does: save; on failure go on and save later. With `once`, the save after a failed
/// one must succeed.
void child_retry(const fs::path& folder, bool once) {
  CheckpointStore store(folder, kOptions);
  bool failed = false;
  for (int64_t step : {30, 40, 40}) {
    ErrorClass error_class = ErrorClass::io;
    bool existed = fs::exists(store.step_folder(step));
    bool fails = !failure([&] { save_state(store, step); }, &error_class).empty();
    if (fails && !existed) CHECK_FALSE(fs::exists(store.step_folder(step)));
    CHECK(error_class == ErrorClass::io);
    CHECK_FALSE((once && failed && fails));
    failed = failed || fails;
    if (!fails) continue;
    for (const auto& entry : fs::directory_iterator(folder))
      CHECK(entry.path().string().find(".tmp-") == std::string::npos);
  }
}

}  // namespace

TEST_CASE("child of the fault sweeps" * doctest::skip()) {
  const char* folder = std::getenv("MTRAIN_CKPT_FOLDER");
  const char* mode = std::getenv("MTRAIN_CKPT_MODE");
  if (!folder || !mode) return;
  std::string_view what = mode;
  if (what == "save") {
    CheckpointStore store(folder, kOptions);
    save_state(store, 30);
  } else if (what == "again") {
    CheckpointStore store(folder, kOptions);
    ErrorClass error_class = ErrorClass::io;
    bool same = true;
    failure([&] { same = save_state(store, 20).already_saved; }, &error_class);
    CHECK(same);
    CHECK(error_class == ErrorClass::io);
  } else if (what == "load") {
    CheckpointStore store(folder, kOptions);
    auto latest = store.latest_valid();
    CHECK(holds_state(store, latest.step.value()));
  } else if (what == "limit") {
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit limit{1500, 1500};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
    child_retry(folder, false);
  } else {
    child_retry(folder, what == "retry");
  }
  const char* visits = std::getenv("MTRAIN_CKPT_VISITS");
  if (visits && *visits) put_file(visits, join(failpoint_visits(), "\n"));
}

TEST_CASE("every point of the protocol is a failpoint") {
  TempDir start;
  prepare(start / "run", true);
  auto visited = sites(start / "run", "save");
  for (const char* site : {"ckpt.p0",
                           "ckpt.p1",
                           "ckpt.p2",
                           "ckpt.p3",
                           "ckpt.p4",
                           "ckpt.p5",
                           "ckpt.p6",
                           "ckpt.p7",
                           "ckpt.p8",
                           "ckpt.p9",
                           "ckpt.p10",
                           "ckpt.clean",
                           "ckpt.trash",
                           "ckpt.trash.delete",
                           "ckpt.shard.open",
                           "ckpt.shard.write",
                           "ckpt.shard.fsync",
                           "ckpt.shard.dirsync",
                           "ckpt.manifest.open",
                           "ckpt.manifest.write",
                           "ckpt.manifest.fsync",
                           "ckpt.manifest.dirsync",
                           "ckpt.commit.dirsync",
                           "ckpt.latest.rename",
                           "ckpt.read"})
    CHECK_MESSAGE(visited.count(site) == 1, site);
}

TEST_CASE("killed at any point of a save: the old state or the new one") {
  Count clean = sweep("save", "kill", false), damaged = sweep("save", "kill", true);
  MESSAGE((clean.deaths + damaged.deaths), " deaths");
  CHECK(clean.deaths + damaged.deaths >= 60);
}

TEST_CASE("killed at any point of finding and loading: the second try is as good") {
  Count count = sweep("load", "kill", true);
  MESSAGE(count.deaths, " deaths");
  CHECK(count.deaths > 10);
}

TEST_CASE("any failing call fails that save alone") {
  int runs = 0;
  for (const char* action : {"errno=ENOSPC", "errno=EIO", "throw"}) {
    runs += sweep("retry", action, false).runs;
    runs += sweep("retry-forever", action, false, true).runs;
  }
  runs += sweep("retry", "errno=EIO", true).runs;
  MESSAGE(runs, " faults");
}

TEST_CASE("a disk that cannot read for a moment is no proof of damage") {
  TempDir dir;
  prepare(dir / "run", false);
  struct stat before {
  }, after{};
  REQUIRE(::stat((dir / "run" / "step-20" / "manifest.json").c_str(), &before) == 0);
  const int reads = sites(dir / "run", "again")["ckpt.read"];
  CHECK(reads >= 8);
  for (int nth = 1; nth <= reads; ++nth) {
    CHECK(succeeded(run_child(dir / "run", "again", cat("ckpt.read:", nth, ":errno=EIO"))));
    REQUIRE(::stat((dir / "run" / "step-20" / "manifest.json").c_str(), &after) == 0);
    CHECK(before.st_ino == after.st_ino);
  }
}

TEST_CASE("short writes are completed") {
  TempDir start;
  prepare(start / "run", false);
  for (const char* site : {"ckpt.shard.write", "ckpt.manifest.write"}) {
    TempDir dir;
    fs::copy(start / "run", dir / "run", fs::copy_options::recursive);
    CHECK(succeeded(run_child(dir / "run", "save", cat(site, ":0:short"))));
    CHECK(CheckpointStore(dir / "run").latest_valid().step == 30);
    check_after(dir / "run", false, "later");
  }
}

TEST_CASE("a file size limit fails the save and harms nothing") {
  TempDir dir;
  prepare(dir / "run", false);
  CHECK(succeeded(run_child(dir / "run", "limit", "nowhere")));
  CHECK(CheckpointStore(dir / "run").latest_valid().step == 20);
  check_after(dir / "run", false, "same");
}
