#include "mtrain/finetune/packed_file.h"

#include <doctest/doctest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "../data/data_files.h"
#include "mtrain/base/counted.h"
#include "mtrain/base/hash.h"
#include "mtrain/base/rng.h"

using namespace mtrain;
using namespace mtrain::finetune;
using namespace mtrain::testing;

namespace {

constexpr int64_t kSeq = 24;

/// Records of two to `kSeq` + 1 ids of 1000, some of them trained on.
struct Records {
  std::shared_ptr<const ExampleStore> store;
  std::shared_ptr<const Packs> packs;

  explicit Records(int count, uint64_t seed = 1) {
    RngStream random(seed, "records");
    auto made = std::make_shared<ExampleStore>();
    std::vector<int32_t> lengths;
    uint64_t next = 0;
    auto upto = [&](uint32_t most) { return random.words(next++)[0] % (most + 1); };
    for (int i = 0; i < count; ++i) {
      TokenizedExample example;
      const size_t length = 2 + upto(kSeq - 1);
      for (size_t t = 0; t < length; ++t) {
        example.ids.push_back(static_cast<int32_t>(upto(999)));
        example.trained.push_back(static_cast<uint8_t>(upto(1)));
      }
      made->add(example);
      lengths.push_back(static_cast<int32_t>(length) - 1);
    }
    packs = std::make_shared<const Packs>(pack_first_fit_decreasing(lengths, kSeq));
    store = made;
  }
};

PackedOrigin origin(const fs::path& source = "/nowhere/chats.jsonl") {
  return {.tokenizer = "bytes",
          .encoding = "template none",
          .vocab_size = 1000,
          .seq_length = kSeq,
          .source = source,
          .source_sha256 = sha256("records")};
}

/// All of a source's samples.
std::string samples(const SampleSource& source) {
  std::string out;
  for (int64_t i = 0; i < source.size(); ++i) {
    std::vector<int32_t> tokens(kSeq), targets(kSeq), positions(kSeq);
    Sample sample{tokens, targets, positions, {5}};
    source.get(i, sample);
    for (const auto* list : {&tokens, &targets, &positions, &sample.starts})
      for (int32_t value : *list) out += cat(value, ' ');
    out += '\n';
  }
  return out;
}

std::string samples(const fs::path& prefix, SampleOrder order = {}) {
  auto file = std::make_shared<const PackedFile>(prefix, origin());
  std::vector<int32_t> all;
  for (int64_t p = 0; p < file->size(); ++p) all.push_back(static_cast<int32_t>(p));
  return samples(PackedFileSource(file, all, order, 7));
}

const std::vector<std::string> kFiles = {".bin", ".idx", ".learnt.bin", ".learnt.idx",
                                         ".packed.json"};

}  // namespace

TEST_CASE("samples of packs on disk are those of packs in memory") {
  ScratchFolder scratch;
  for (int count : {1, 2, 300}) {
    const Records records(count);
    const fs::path prefix = scratch / cat("p", count);
    CHECK_FALSE(is_packed(prefix));
    write_packed(prefix, *records.store, *records.packs, origin(), false);
    CHECK(is_packed(prefix));
    for (const SampleOrder& order :
         {SampleOrder{}, SampleOrder{.num_samples = 500, .shuffle_seed = 3},
          SampleOrder{.num_samples = 70, .shuffle_seed = {}}})
      CHECK(samples(prefix, order) ==
            samples(PackedSource(records.store, records.packs, order, 7)));
    const PackedFile file(prefix, origin());
    CHECK(file.num_records() == count);
    CHECK(file.size() == records.packs->size());
    CHECK(file.summary().find(cat(counted(count, "record"), " in ",
                                  counted(file.size(), "pack"))) != std::string::npos);
    CHECK(file.summary().ends_with(" tokens are trained on"));
  }
}

TEST_CASE(
    "another tokenizer, encoding or length of samples is refused by name, and so is a source that "
    "changed") {
  ScratchFolder scratch;
  const Records records(20);
  put(scratch / "chats.jsonl", "records");
  write_packed(scratch / "p", *records.store, *records.packs, origin(scratch / "chats.jsonl"),
               false);
  auto with = [&](const std::function<void(PackedOrigin&)>& change) {
    PackedOrigin wanted = origin();
    change(wanted);
    PackedFile(scratch / "p", wanted);
  };
  with([](PackedOrigin&) {});
  expect_error(ErrorClass::config, {"another tokenizer: bytes", "the recipe's is words"},
               [&] { with([](PackedOrigin& o) { o.tokenizer = "words"; }); });
  expect_error(ErrorClass::config,
               {"packed with template none", "template abc", "dataset.train_on"},
               [&] { with([](PackedOrigin& o) { o.encoding = "template abc"; }); });
  expect_error(
      ErrorClass::config,
      {"samples of 24 tokens", "model.seq_length is 32", "model.seq_length=24", "--seq-length 32"},
      [&] { with([](PackedOrigin& o) { o.seq_length = 32; }); });
  put(scratch / "chats.jsonl", "other records");
  expect_error(
      ErrorClass::data,
      {"chats.jsonl has changed since", sha256("records"), sha256("other records"), "data pack"},
      [&] { with([](PackedOrigin&) {}); });
  fs::remove(scratch / "chats.jsonl");
  with([](PackedOrigin&) {});
}

TEST_CASE("files that exist stay, unless they are to be replaced") {
  ScratchFolder scratch;
  const Records records(20), others(40, 2);
  write_packed(scratch / "p", *records.store, *records.packs, origin(), false);
  const std::string before = samples(scratch / "p");
  expect_error(ErrorClass::io, {"p.idx exists already", "--force"},
               [&] { write_packed(scratch / "p", *others.store, *others.packs, origin(), false); });
  CHECK(samples(scratch / "p") == before);
  write_packed(scratch / "p", *others.store, *others.packs, origin(), true);
  CHECK(samples(scratch / "p") == samples(PackedSource(others.store, others.packs, {}, 7)));
  CHECK(std::distance(fs::directory_iterator(scratch.path()), {}) == 5);
}

TEST_CASE("any byte that changes and any end that is missing is one error that names the file") {
  ScratchFolder scratch;
  const Records records(12);
  write_packed(scratch / "p", *records.store, *records.packs, origin(), false);
  for (const auto& end : kFiles) {
    const fs::path path = scratch / cat("p", end);
    const std::string whole = read_file(path);
    auto refused = [&](const std::string& content) {
      put(path, content);
      expect_error(ErrorClass::data, {"p."}, [&] { PackedFile(scratch / "p", origin()); });
    };
    CAPTURE(end);
    for (size_t kept : {size_t{0}, size_t{1}, whole.size() / 2, whole.size() - 2})
      refused(whole.substr(0, kept));
    if (end != ".packed.json")
      for (size_t at = 0; at < whole.size(); ++at) {
        std::string bad = whole;
        bad[at] = static_cast<char>(bad[at] ^ 1);
        refused(bad);
      }
    fs::remove(path);
    expect_error(ErrorClass::data,
                 {"is not complete", path.filename().string(), "data pack", "--force"},
                 [&] { PackedFile(scratch / "p", origin()); });
    put(path, whole);
  }
  const PackedFile sound(scratch / "p", origin());
  const auto manifest = nlohmann::json::parse(read_file(scratch / "p.packed.json"));
  for (const auto& [name, value] : manifest.items()) {
    if (name == "source" || name == "source_sha256") continue;  // not looked at without the source
    CAPTURE(name);
    // The name of the template is for messages; only its type is checked.
    const bool any_text = name == "chat_template";
    for (const nlohmann::json& other :
         {nlohmann::json(17), nlohmann::json("x"), nlohmann::json(nullptr), nlohmann::json(0.5)}) {
      if (any_text && other.is_string()) continue;
      auto bad = manifest;
      bad[name] = other;
      put(scratch / "p.packed.json", bad.dump());
      CHECK_THROWS_AS(PackedFile(scratch / "p", origin()), Error);
    }
    if (any_text) continue;  // files of older versions do not have it
    auto bad = manifest;
    bad.erase(name);
    put(scratch / "p.packed.json", bad.dump());
    expect_error(ErrorClass::data, {"p.packed.json", name, "missing"},
                 [&] { PackedFile(scratch / "p", origin()); });
  }
}
