#include "mtrain/data/gpt_source.h"

#include <doctest/doctest.h>

#include <atomic>
#include <map>
#include <numeric>
#include <thread>

#include "data_files.h"
#include "mtrain/data/indexed_writer.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

constexpr int32_t kGptEod = 99;

struct OwnedSample {
  explicit OwnedSample(int64_t seq)
      : tokens(static_cast<size_t>(seq)),
        targets(tokens),
        positions(tokens),
        view{tokens, targets, positions, {}} {}
  OwnedSample(const OwnedSample&) = delete;
  std::vector<int32_t> tokens, targets, positions;
  Sample view;
};

std::shared_ptr<const IndexedFile> write(const fs::path& prefix,
                                         const std::vector<std::vector<int32_t>>& documents) {
  IndexedWriter writer(prefix, DType::i32, {.overwrite = true});
  for (const auto& document : documents) {
    if (!document.empty()) writer.add_sequence(document);
    writer.end_document();
  }
  writer.finish();
  return std::make_shared<IndexedFile>(prefix);
}

std::vector<int32_t> file_lengths(const IndexedFile& file) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < file.num_sequences(); ++i) out.push_back(file.length(i));
  return out;
}

// An index in file order, so that the expected values below can be read off the documents.
GptIndex in_order(const IndexedFile& file, GptIndexConfig config) {
  GptIndex index;
  auto lengths = file_lengths(file);
  index.documents.resize(lengths.size());
  std::iota(index.documents.begin(), index.documents.end(), 0);
  index.samples = build_sample_index(lengths, index.documents, 1, file.num_tokens(), config);
  index.shuffle.resize(index.samples.size() - 1);
  std::iota(index.shuffle.begin(), index.shuffle.end(), 0u);
  return index;
}

}  // namespace

TEST_CASE("samples are pieces of the concatenated documents") {
  ScratchFolder scratch;
  std::vector<std::vector<int32_t>> documents(40);
  for (int32_t d = 0, next = 1000; d < 40; ++d)
    for (int32_t n = (d * 7) % 13; n > 0; --n) documents[static_cast<size_t>(d)].push_back(next++);
  auto file = write(scratch / "x", documents);
  auto lengths = file_lengths(*file);
  for (int64_t seq : {1, 2, 5, 16, 100}) {
    for (bool drop_last : {true, false}) {
      GptIndex index = build_gpt_index(lengths, 0,
                                       {.seq_length = seq,
                                        .num_samples = 2 * file->num_tokens() / seq,
                                        .seed = 5,
                                        .drop_last = drop_last});
      std::vector<int32_t> stream;
      for (int32_t d : index.documents) {
        stream.resize(stream.size() + static_cast<size_t>(file->length(d)));
        file->read(d, 0, std::span(stream).last(static_cast<size_t>(file->length(d))));
      }
      GptSource source(file, index, {.seq_length = seq});
      OwnedSample sample(seq);
      for (int64_t i = 0; i < source.size(); ++i) {
        source.get(i, sample.view);
        auto begin =
            static_cast<size_t>(index.shuffle[static_cast<size_t>(i)]) * static_cast<size_t>(seq);
        for (size_t t = 0; t < static_cast<size_t>(seq); ++t) {
          REQUIRE(sample.tokens[t] == (begin + t < stream.size() ? stream[begin + t] : 0));
          REQUIRE(sample.targets[t] ==
                  (begin + t + 1 < stream.size() ? stream[begin + t + 1] : kIgnoredTarget));
          REQUIRE(sample.positions[t] == static_cast<int32_t>(t));
        }
        REQUIRE(sample.view.starts == std::vector<int32_t>{0});
      }
    }
  }
}

TEST_CASE(
    "two orders of a file have one text where they are the same as far as both go, and else two") {
  ScratchFolder scratch;
  std::vector<std::vector<int32_t>> documents(30);
  for (int32_t d = 0, next = 0; d < 30; ++d)
    for (int32_t n = 1 + (d * 5) % 7; n > 0; --n)
      documents[static_cast<size_t>(d)].push_back(next++);
  auto file = write(scratch / "x", documents);
  const auto lengths = file_lengths(*file);
  const int64_t epoch = (file->num_tokens() - 1) / 4;
  std::map<std::string, std::vector<std::vector<int32_t>>>
      seen;  // by text, what the longest of those gave
  for (int64_t wanted = 1; wanted <= 4 * epoch; ++wanted) {
    GptSource source(
        file, build_gpt_index(lengths, 0, {.seq_length = 4, .num_samples = wanted, .seed = 3}),
        {.seq_length = 4});
    OwnedSample sample(4);
    std::vector<std::vector<int32_t>> samples;
    for (int64_t i = 0; i < source.size(); ++i)
      source.get(i, sample.view), samples.push_back(sample.tokens);
    auto& known = seen[source.order()];
    const auto both = static_cast<std::ptrdiff_t>(std::min(known.size(), samples.size()));
    CHECK(std::equal(known.begin(), known.begin() + both, samples.begin()));
    if (samples.size() > known.size()) known = samples;
  }
  CHECK(seen.size() == 7);  // 1 to 4 epochs, and 2 to 4 with the last one shuffled by itself
  CHECK(seen.contains("1 epoch"));
  CHECK(seen.contains("2 epochs, the last one shuffled by itself"));
  for (auto a = seen.begin(); a != seen.end(); ++a)
    for (auto b = std::next(a); b != seen.end(); ++b)
      CHECK_FALSE(std::equal(a->second.begin(), a->second.begin() + epoch, b->second.begin()));
}

TEST_CASE("ends of documents reset positions, sequences and loss as asked") {
  ScratchFolder scratch;
  auto file = write(scratch / "x", {{1, 2, kGptEod}, {3, kGptEod}, {4, 5, 6, kGptEod}});
  GptIndex index = in_order(*file, {.seq_length = 8});
  REQUIRE(index.shuffle.size() == 1);
  OwnedSample sample(8);
  using Ids = std::vector<int32_t>;

  GptSource(file, index, {.seq_length = 8, .eod = kGptEod}).get(0, sample.view);
  CHECK(sample.tokens == Ids{1, 2, kGptEod, 3, kGptEod, 4, 5, 6});
  CHECK(sample.targets == Ids{2, kGptEod, 3, kGptEod, 4, 5, 6, kGptEod});
  CHECK(sample.positions == Ids{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(sample.view.starts == Ids{0});

  GptSource(file, index, {.seq_length = 8, .eod = kGptEod, .reset_position_ids = true})
      .get(0, sample.view);
  CHECK(sample.positions == Ids{0, 1, 2, 0, 1, 0, 1, 2});
  CHECK(sample.view.starts == Ids{0});

  GptSource(file, index, {.seq_length = 8, .eod = kGptEod, .reset_attention_mask = true})
      .get(0, sample.view);
  CHECK(sample.positions == Ids{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(sample.view.starts == Ids{0, 3, 5});

  GptSource(file, index, {.seq_length = 8, .eod = kGptEod, .eod_mask_loss = true})
      .get(0, sample.view);
  CHECK(sample.targets == Ids{2, kGptEod, -1, kGptEod, -1, 5, 6, kGptEod});

  // A sample that ends on the mark starts no empty sequence.
  OwnedSample shorter(3);
  GptSource(
      file, in_order(*file, {.seq_length = 3}),
      {.seq_length = 3, .eod = kGptEod, .reset_position_ids = true, .reset_attention_mask = true})
      .get(0, shorter.view);
  CHECK(shorter.tokens == Ids{1, 2, kGptEod});
  CHECK(shorter.view.starts == Ids{0});
}

TEST_CASE("a last sample that the data cannot fill is padded without loss") {
  ScratchFolder scratch;
  auto file = write(scratch / "x", {{1, 2, 3, 4}, {5, kGptEod}});
  GptIndex index = in_order(*file, {.seq_length = 4, .drop_last = false});
  REQUIRE(index.shuffle.size() == 2);
  OwnedSample sample(4);
  GptSource(file, index, {.seq_length = 4, .eod = kGptEod, .reset_attention_mask = true})
      .get(1, sample.view);
  CHECK(sample.tokens == std::vector<int32_t>{5, kGptEod, 0, 0});
  CHECK(sample.targets == std::vector<int32_t>{kGptEod, -1, -1, -1});
  CHECK(sample.view.starts == std::vector<int32_t>{0, 2});
  CHECK(sample.view.padding == 2);
}

TEST_CASE("ids outside the vocabulary are refused by document and position") {
  ScratchFolder scratch;
  {
    IndexedWriter writer(scratch / "x", DType::i32);
    writer.add_sequence(std::vector<int32_t>{1, 2, 3});
    writer.end_document();
    writer.add_sequence(std::vector<int32_t>{4, 5});
    writer.add_sequence(std::vector<int32_t>{6, 300, 7, 8, 9});
    writer.end_document();
    writer.finish();
  }
  auto file = std::make_shared<IndexedFile>(scratch / "x");
  GptIndex index = in_order(*file, {.seq_length = 3});
  OwnedSample sample(3);
  GptSource source(file, index, {.seq_length = 3, .vocab_size = 257});
  source.get(0, sample.view);
  CHECK(sample.targets.back() == 4);
  expect_error(ErrorClass::data, {"x.bin", "document 1", "token 3", "id 300", "vocabulary of 257"},
               [&] { source.get(1, sample.view); });  // the last target
  expect_error(ErrorClass::data, {"document 1", "token 3", "id 300"},
               [&] { source.get(2, sample.view); });
  GptSource(file, index, {.seq_length = 3, .vocab_size = 301}).get(2, sample.view);
  CHECK(sample.tokens[0] == 300);

  auto negative = write(scratch / "n", {{1, 2, 3, -7}});
  expect_error(ErrorClass::data, {"document 0", "token 3", "-7", "negative"}, [&] {
    GptSource(negative, in_order(*negative, {.seq_length = 3}), {.seq_length = 3})
        .get(0, sample.view);
  });
}

TEST_CASE("a blend hands out the samples of its index") {
  ScratchFolder scratch;
  auto first = write(scratch / "a", {{1, 2, 3, 4, 5, 6, 7}}),
       second = write(scratch / "b", {{11, 12, 13, 14}});
  auto sources = [&] {
    std::vector<std::unique_ptr<SampleSource>> out;
    for (const auto& file : {first, second})
      out.push_back(std::make_unique<GptSource>(file, in_order(*file, {.seq_length = 3}),
                                                GptSourceConfig{.seq_length = 3}));
    return out;
  };
  BlendSource blend(sources(), {{0, 1, 0}, {0, 0, 1}});
  REQUIRE(blend.size() == 3);
  OwnedSample sample(3);
  std::vector<int32_t> firsts;
  for (int64_t i = 0; i < 3; ++i) {
    blend.get(i, sample.view);
    firsts.push_back(sample.tokens[0]);
  }
  CHECK(firsts == std::vector<int32_t>{1, 11, 4});
  CHECK_THROWS(BlendSource(sources(), {{1, 1}, {0, 1}}));
}

TEST_CASE("many threads read the same source") {
  ScratchFolder scratch;
  std::vector<std::vector<int32_t>> documents(50, std::vector<int32_t>(37, 4));
  auto file = write(scratch / "x", documents);
  GptSource source(file, build_gpt_index(file_lengths(*file), 0, {.seq_length = 16}),
                   {.seq_length = 16, .vocab_size = 5});
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      OwnedSample sample(16);
      for (int64_t i = 0; i < source.size(); ++i) {
        source.get(i, sample.view);
        sum += std::accumulate(sample.tokens.begin(), sample.tokens.end(), int64_t{0});
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(sum == 4 * source.size() * 16 * 4);
}
