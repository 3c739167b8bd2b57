// Ranks that write one folder together: the same bytes as one rank's, and a failure of one rank is
// the failure of all and leaves nothing.
#include "mtrain/train/hf_team.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

#include "mtrain/base/text.h"
#include "mtrain/comm/thread_world.h"
#include "mtrain/train/hf_export.h"
#include "temp_dir.h"

using namespace mtrain;

namespace {

using Folder = testing::TempDir;

std::vector<TensorSpec> specs() {
  std::vector<TensorSpec> out;
  for (int i = 0; i < 12; ++i)
    out.push_back({cat("layers.", i, ".weight"), DType::f32, Shape{i % 3 + 1, 100}});
  return out;
}

/// Each element has the number of its tensor; counts the tensors that were read.
class Numbers : public HfTensorReader {
 public:
  explicit Numbers(bool fails = false) : fails_(fails) {}
  void read(size_t index, const HfSink& out) override {
    if (fails_) throw Error(ErrorClass::numeric, "a value is too large", "write fp32");
    const std::vector<float> values(100, static_cast<float>(index));
    for (size_t row = 0; row < index % 3 + 1; ++row) out(std::as_bytes(std::span(values)));
    ++num_read;
  }
  int num_read = 0;

 private:
  bool fails_;
};

std::map<std::string, std::string> files(const fs::path& folder) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::directory_iterator(folder))
    out[entry.path().filename()] = read_file(entry.path());
  return out;
}

}  // namespace

TEST_CASE("things are distributed so that each rank has about as much") {
  CHECK(balanced({5, 1, 1, 1, 1, 1}, {true, true}) == std::vector<int>{0, 1, 1, 1, 1, 1});
  CHECK(balanced({3, 3, 3}, {true, false, true}) == std::vector<int>{0, 2, 0});
  CHECK(balanced({1, 2, 9}, {true}) == std::vector<int>{0, 0, 0});
  CHECK(balanced({}, {true, true}).empty());
}

TEST_CASE("a folder that ranks write together has the bytes of one rank's") {
  const Folder folder;
  auto write = [&](const fs::path& to, const HfTeam& team, Numbers& reader) {
    HfFolderWriter out(to, team);
    const HfWritten written = out.weights(specs(), 900, reader);
    team.together([&] { out.text("config.json", "{}"); });
    out.commit();
    return written;
  };
  Numbers alone;
  CHECK(write(folder / "alone", {}, alone).ranks == 1);
  CHECK(alone.num_read == 12);
  const auto wanted = files(folder / "alone");
  REQUIRE(wanted.size() > 8);
  for (const int ranks : {2, 3, 16}) {
    CAPTURE(ranks);
    const fs::path to = folder / cat("by-", ranks);
    std::atomic<int> read = 0, writers = 0, most = 0;
    run_ranks(ranks, [&](Communicator& world) {
      Numbers reader;
      const HfWritten written = write(to, HfTeam(world), reader);
      read += reader.num_read;
      writers += reader.num_read > 0;
      most = std::max<int>(most, reader.num_read);
      MT_CHECK_EQ(written.files, wanted.size() - 2);
      const size_t wanted_ranks = std::min<size_t>(static_cast<size_t>(ranks), written.files);
      MT_CHECK_EQ(written.ranks, wanted_ranks);
    });
    CHECK(read == 12);
    CHECK(writers == std::min<int>(ranks, static_cast<int>(wanted.size()) - 2));
    CHECK(most < 12);
    CHECK(files(to) == wanted);
  }
}

TEST_CASE("if one rank fails, all throw its error, and no folder is left") {
  const Folder folder;
  for (const int failing : {0, 1, 2}) {
    CAPTURE(failing);
    std::mutex mutex;
    std::vector<std::string> messages;
    run_ranks(3, [&](Communicator& world) {
      const HfTeam team(world);
      try {
        HfFolderWriter out(folder / "out", team);
        Numbers reader(world.rank() == failing);
        out.weights(specs(), 900, reader);
        out.commit();
        MT_CHECK(false, "the folder was written");
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        messages.push_back(
            cat(name(error.error_class()), ": ", error.message(), "; ", error.hint()));
      }
    });
    const std::string place = failing == 0 ? "" : cat("rank ", failing, ": ");
    const std::string wanted =
        cat(name(ErrorClass::numeric), ": ", place, "a value is too large; write fp32");
    CHECK(messages == std::vector<std::string>(3, wanted));
    CHECK(folder.entries() == 0);
  }
}

TEST_CASE("a folder that exists is refused on all ranks") {
  const Folder folder;
  fs::create_directories(folder / "out");
  std::atomic<int> refused = 0;
  run_ranks(2, [&](Communicator& world) {
    try {
      HfFolderWriter out(folder / "out", HfTeam(world));
    } catch (const Error& error) {
      refused += error.message().find("exists already") != std::string::npos;
    }
  });
  CHECK(refused == 2);
  CHECK(folder.entries() == 1);
}
