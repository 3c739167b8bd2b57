// Damage of every kind to a checkpoint's files: all of it must be found before any tensor is handed
// out.
#include <doctest/doctest.h>

#include "checkpoint_testing.h"
#include "mtrain/base/hash.h"
#include "mtrain/checkpoint/digest.h"
#include "mtrain/checkpoint/store.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

constexpr const char* kShard = "shard-00000-of-00001.safetensors";

/// A folder with the valid checkpoint step-7, two boxes per tensor.
struct Saved {
  TempDir dir;
  std::vector<Sample> samples = sample_tensors(5);
  fs::path shard = dir / "step-7" / kShard, manifest = dir / "step-7" / "manifest.json";
  std::string shard_bytes, manifest_bytes;

  Saved() {
    CheckpointStore store(dir.path(), StoreOptions{});
    Slices all = slices_of(samples, 0, 2, 0), second = slices_of(samples, 1, 2, 0);
    all.list.insert(all.list.end(), second.list.begin(), second.list.end());
    store.save(7, all.list, R"({"rng": 1, "cursor": 2, "config_hash": "00"})");
    shard_bytes = read_file(shard), manifest_bytes = read_file(manifest);
  }
  /// Checks that the damage is refused by name in every way of reading, and nothing handed out.
  void refused(const char* expected = "step-7") {
    CheckpointStore store(dir.path());
    std::string problem = store.problem(7);
    CAPTURE(problem);
    CHECK(problem.find(expected) != std::string::npos);
    CHECK(problem.find("step-7") != std::string::npos);
    ErrorClass error_class{};
    CHECK_FALSE(failure([&] { store.latest_valid(); }, &error_class).empty());
    CHECK(error_class == ErrorClass::checkpoint);
    Slices wanted = slices_of(samples, 0, 1, 0, false);
    auto before = wanted.memory;
    error_class = {};
    CHECK_FALSE(failure([&] { store.load(7, wanted.list); }, &error_class).empty());
    CHECK(error_class == ErrorClass::checkpoint);
    CHECK(wanted.memory == before);
  }
  void repair() {
    put_file(shard, shard_bytes);
    put_file(manifest, manifest_bytes);
  }
  /// Replaces text in the manifest and gives it a right checksum again, as an attacker or another
  /// version would.
  void forge(const std::string& from, const std::string& to) {
    std::string text = manifest_bytes;
    size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
    text.resize(text.find("\"checksum\""));
    put_file(manifest, text + "\"checksum\": \"sha256:" + sha256(text) + "\"\n}\n");
  }
};

}  // namespace

TEST_CASE("a file truncated at any 64th byte, or grown, is refused") {
  Saved saved;
  for (auto [path, bytes] : {std::pair(&saved.shard, &saved.shard_bytes),
                             std::pair(&saved.manifest, &saved.manifest_bytes)}) {
    for (size_t keep = 0; keep < bytes->size(); keep += 64) {
      put_file(*path, bytes->substr(0, keep));
      saved.refused();
    }
    put_file(*path, bytes->substr(0, bytes->size() - 1));
    saved.refused();
    put_file(*path, *bytes + '\0');
    saved.refused();
    put_file(*path, *bytes + *bytes);
    saved.refused();
    saved.repair();
  }
  CHECK(CheckpointStore(saved.dir.path()).problem(7).empty());
}

TEST_CASE("any flipped bit is refused") {
  Saved saved;
  std::mt19937_64 random(11);
  const uint64_t total = (saved.shard_bytes.size() + saved.manifest_bytes.size()) * 8;
  constexpr int kFlips = 3000;
  for (int i = 0; i < kFlips; ++i) {
    uint64_t bit = random() % total;
    bool in_shard = bit < saved.shard_bytes.size() * 8;
    std::string bytes = in_shard ? saved.shard_bytes : saved.manifest_bytes;
    if (!in_shard) bit -= saved.shard_bytes.size() * 8;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    put_file(in_shard ? saved.shard : saved.manifest, bytes);
    saved.refused(in_shard ? kShard : "manifest.json");
    put_file(in_shard ? saved.shard : saved.manifest,
             in_shard ? saved.shard_bytes : saved.manifest_bytes);
  }
  MESSAGE(kFlips, " flips in ", total / 8, " bytes");
  CHECK(CheckpointStore(saved.dir.path()).problem(7).empty());
}

TEST_CASE("missing, swapped, linked and misplaced files are refused; foreign ones are ignored") {
  Saved saved;
  fs::remove(saved.shard);
  saved.refused("No such file");
  fs::create_directory(saved.shard);
  saved.refused("got a folder");
  fs::remove(saved.shard);
  put_file(saved.dir / "elsewhere", saved.shard_bytes);
  fs::create_symlink(saved.dir / "elsewhere", saved.shard);
  saved.refused("is a link");
  saved.repair();
  fs::remove(saved.manifest);
  saved.refused("manifest.json");
  put_file(saved.manifest, "{}");
  saved.refused("wanted a manifest");
  saved.repair();

  {  // of another step: equal in size and layout, its own checksums right
    CheckpointStore store(saved.dir.path(), StoreOptions{});
    Slices other = slices_of(sample_tensors(6), 0, 2, 0),
           second = slices_of(sample_tensors(6), 1, 2, 0);
    other.list.insert(other.list.end(), second.list.begin(), second.list.end());
    store.save(6, other.list, R"({"rng": 1, "cursor": 2, "config_hash": "00"})");
  }
  put_file(saved.shard, read_file(saved.dir / "step-6" / kShard));
  CHECK(CheckpointStore(saved.dir.path()).problem(7).find("do not match their checksum") !=
        std::string::npos);
  CHECK(CheckpointStore(saved.dir.path()).latest_valid().step == 6);
  fs::rename(saved.dir / "step-6", saved.dir / "step-8");
  CHECK(CheckpointStore(saved.dir.path())
            .problem(8)
            .find("has step 6 but is in the folder of step 8") != std::string::npos);
  fs::remove_all(saved.dir / "step-8");
  saved.repair();
  put_file(saved.dir / "step-7" / "shard-00009-of-00010.safetensors", "not listed");
  CHECK(CheckpointStore(saved.dir.path()).problem(7).empty());
}

TEST_CASE("forged manifests with right checksums are refused") {
  Saved saved;
  struct Forgery {
    const char *from, *to, *expected;
  };
  const std::vector<Forgery> forgeries = {
      {"\"version\": 1", "\"version\": 2", "format version 2, this build reads 1"},
      {"\"version\": 1", "\"version\": -1", "\"version\" must be a non-negative integer"},
      {"mtrain-checkpoint", "other-checkpoint", "\"format\""},
      {"\"step\": 7", "\"step\": 7.0", "\"step\" must be a non-negative integer"},
      {"\"step\": 7", "\"step\": 9223372036854775808", "\"step\" is out of range"},
      {"\"step\": 7", "\"step\": 7, \"step\": 7", "\"step\" occurs twice"},
      {"\"files\": [", "\"files\": {}, \"x\": [", "\"files\" must be an array"},
      {"shard-00000-of-00001", "../shard-00000-of-00001", "not the name of a shard"},
      {"shard-00000-of-00001.safetensors", "/etc/passwd", "not the name of a shard"},
      {"shard-00000-of-00001.safetensors", "shard-00000-of-00001.safetensors\\u0000",
       "not the name of a shard"},
      {"shard-00000-of-00001", "shard--0001-of-00001", "not the name of a shard"},
      {"\"header_bytes\":", "\"header_bytes\":9", "header is longer than the file"},
      {"\"header_crc32c\":\"", "\"header_crc32c\":\"0", "eight hex digits"},
      {"\"offset\":[0]", "\"offset\":[5]", "outside of"},
      {"\"offset\":[0]", "\"offset\":[0,0]", "outside of"},
      {"\"offset\":[0]", "\"offset\":[-1]", "must contain non-negative integers"},
      {"\"shape\":[3]", "\"shape\":[2]", "its bytes do not match"},
      {"\"shape\":[3]", "\"shape\":[9223372036854775807]", "outside of"},
      {"\"shape\": [7]", "\"shape\": [9223372036854775807,2]", "overflows"},
      {"\"shape\": [7]", "\"shape\": [1,1,1,1,1,1,1,1,7]", "rank 9"},
      {"\"file\":0", "\"file\":1", "file 1 of 1"},
      {"\"at\":", "\"at\":1", "overlaps another tensor or leaves a gap"},
      {"\"dtype\": \"uint8\"", "\"dtype\": \"uint7\"", "unknown dtype uint7"},
      {"\"name\": \"bytes\"", "\"name\": \"zzzzz\"", "not sorted"},
      {"\"name\": \"bytes\"", "\"name\": \"\"", "name is empty"},
      {"\"name\": \"bytes\"", "\"name\": \"\\u0007\"", "control character"},
      {"\"meta\": {", "\"meta\": [], \"x\": {", "\"meta\" must be an object"},
      {"\"meta\": {",
       "\"meta\": "
       "{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]"
       "]]]]]]]]]]"
       "]]]]]]]]]]]]]]]]]]"
       "]]]]]]]]]]]]]]]],",
       "nested deeper than the limit of 64"},
      {"\"tensors\": [", "\"tensors\": [[],", "has no \"name\""},
      {"\"name\": \"model.norm.weight\", \"dtype\": \"fp32\"",
       "\"name\": \"model.norm.weight\", \"dtype\": \"int32\"", "differs from the manifest"},
      {"\"key\":\"bytes@0\"", "\"key\":\"bytes@9\"", "has no tensor 'bytes@9'"},
  };
  for (const auto& forgery : forgeries) {
    CAPTURE(forgery.from);
    CAPTURE(forgery.to);
    saved.forge(forgery.from, forgery.to);
    std::string problem = CheckpointStore(saved.dir.path()).problem(7);
    CAPTURE(problem);
    CHECK(problem.find(forgery.expected) != std::string::npos);
    CHECK(problem.find("step-7") != std::string::npos);
    saved.repair();
  }
  const size_t empty = saved.manifest_bytes.find("{\"name\": \"model.empty\"");
  saved.forge(
      saved.manifest_bytes.substr(empty, saved.manifest_bytes.find("{\"name\"", empty + 1) - empty),
      "");
  CHECK(CheckpointStore(saved.dir.path())
            .problem(7)
            .find("contains tensors that the manifest does not list") != std::string::npos);
  put_file(saved.shard, saved.shard_bytes + "12345678");
  saved.forge(cat("\"bytes\":", saved.shard_bytes.size(), ","),
              cat("\"bytes\":", saved.shard_bytes.size() + 8, ","));
  CHECK(CheckpointStore(saved.dir.path()).problem(7).find("its tensors do not cover the file") !=
        std::string::npos);
  saved.repair();
  saved.forge("\"created\"", "\"created\"");
  CHECK(CheckpointStore(saved.dir.path()).problem(7).empty());  // the forging itself is right
}

TEST_CASE("what a manifest leaves out is an error that names tensor and box") {
  Saved saved;
  // Drop the second half of "bytes" [7]: the file's tiling stays right if the header is said to be
  // longer — so forge the first box instead to cover rows that the second one covers as well.
  saved.forge("\"offset\":[3]", "\"offset\":[0]");
  CheckpointStore store(saved.dir.path());
  CHECK(store.problem(7).find("tensor 'bytes': box offset [0] size [") != std::string::npos);
  CHECK(store.problem(7).find("overlaps") != std::string::npos);
  Slices wanted = slices_of(saved.samples, 0, 1, 0, false);
  CHECK(failure([&] { store.load(7, wanted.list); }).find("overlaps") != std::string::npos);
  saved.repair();
  saved.forge("\"shape\": [7]", "\"shape\": [8]");  // one row more than was saved
  CHECK(store.problem(7).find("tensor 'bytes': its boxes cover 7 of 8 elements") !=
        std::string::npos);
  std::vector<std::byte> memory(8);
  std::vector<Slice> one = {whole_slice("bytes", DType::u8, {8}, memory)};
  CHECK(failure([&] {
          store.load(7, one);
        }).find("tensor 'bytes': only 7 of 8 elements of the box offset [0] size [8]") !=
        std::string::npos);
  one[0] = {"bytes", DType::u8, {8}, {1}, {6}, std::span(memory).first(6)};
  store.load(7, one);  // what is there can still be had
  CHECK(memory[0] == saved.samples[6].bytes[1]);
}
