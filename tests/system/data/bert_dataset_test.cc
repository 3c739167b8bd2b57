// The bert dataset, loaded as a run loads it, with a WordPiece tokenizer of its own.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

#include "built_plugins.h"
#include "data_files.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/data/dataset.h"
#include "mtrain/data/indexed_writer.h"
#include "mtrain/data/loader.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/plugin/plugin_host.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

constexpr int32_t kCls = 2, kSep = 3, kMaskId = 4;
constexpr int64_t kLength = 34, kText = 32;  // of a sample, and of the text in it

/// [PAD] [UNK] [CLS] [SEP] [MASK], forty words, and ten pieces that go on with one.
std::string word_piece_file() {
  std::string vocab, added;
  const char* specials[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (int id = 0; id < 5; ++id) {
    vocab += cat("\"", specials[id], "\":", id, ",");
    added += cat(id ? "," : "", "{\"id\":", id, ",\"content\":\"", specials[id],
                 "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"
                 "\"special\":true}");
  }
  for (int i = 0; i < 40; ++i)
    vocab += cat("\"w", static_cast<char>('a' + i / 10), static_cast<char>('a' + i % 10),
                 "\":", 5 + i, ",");
  for (int i = 0; i < 10; ++i)
    vocab += cat("\"##", static_cast<char>('a' + i), "\":", 45 + i, i < 9 ? "," : "");
  return cat("{\"added_tokens\":[", added, "],\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},",
             "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":false},",
             "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"continuing_subword_"
             "prefix\":\"##\",",
             "\"max_input_chars_per_word\":100,\"vocab\":{", vocab, "}}}");
}

/// Documents of words and pieces, [SEP] after each; 70 tokens in all but one.
std::vector<std::vector<int32_t>> documents(int count) {
  std::vector<std::vector<int32_t>> out;
  for (int d = 0; d < count; ++d) {
    std::vector<int32_t> ids;
    for (int i = 0; i < (d == 0 ? 41 : 69); ++i)
      ids.push_back(i % 3 == 2 ? 45 + (d + i) % 10 : 5 + (7 * d + i) % 40);
    ids.push_back(kSep);
    out.push_back(ids);
  }
  return out;
}

struct Place {
  Place() : host(built_plugins()) {
    put(scratch / "tokenizer.json", word_piece_file());
    TokenizerContext context{.base_directory = scratch.path()};
    pieces = host.make<Tokenizer>("hf", parse_yaml("path: tokenizer.json"), context);
    TokenizerContext none;
    bytes = host.make<Tokenizer>("byte", Node::map(), none);
    IndexedWriter writer(scratch / "x", DType::u16, {.overwrite = true});
    for (const auto& ids : documents(40)) {
      writer.add_sequence(ids);
      writer.end_document();
    }
    writer.finish();
  }
  std::unique_ptr<Dataset> dataset(const std::string& yaml, const Tokenizer* tokenizer = nullptr,
                                   int64_t length = kLength) {
    DatasetContext context{.seq_length = length,
                           .seed = 5,
                           .base_directory = scratch.path(),
                           .tokenizer = tokenizer ? tokenizer : pieces.get()};
    return host.make<Dataset>("bert", parse_yaml("{path: x, split: '1'" + yaml + "}"), context);
  }
  PluginHost host;
  ScratchFolder scratch;
  std::unique_ptr<Tokenizer> pieces, bytes;
};

struct Taken {
  std::vector<int32_t> tokens, targets, positions, starts;
  /// As the text was.
  std::vector<int32_t> restored() const {
    std::vector<int32_t> out = tokens;
    for (size_t i = 0; i < out.size(); ++i)
      if (targets[i] != kIgnoredTarget) out[i] = targets[i];
    return out;
  }
  auto operator<=>(const Taken&) const = default;
};

Taken take(const SampleSource& source, int64_t index, int64_t length = kLength) {
  std::vector<int32_t> ids(static_cast<size_t>(length));
  Taken out{ids, ids, ids, {}};
  Sample sample{out.tokens, out.targets, out.positions, {}};
  source.get(index, sample);
  out.starts = sample.starts;
  return out;
}

}  // namespace

TEST_CASE(
    "bert: samples are pieces of the stream of documents between [CLS] and [SEP], each once in an "
    "epoch") {
  Place place;
  auto source = place.dataset("")->split(Split::train, Dataset::kOneEpoch);
  const int64_t tokens = 42 + 39 * 70;
  REQUIRE(source->size() == tokens / kText);
  std::vector<int32_t> stream;
  for (const auto& ids : documents(40)) stream.insert(stream.end(), ids.begin(), ids.end());
  std::map<int32_t, int64_t> seen, there;
  for (int32_t id : stream) ++there[id];
  for (int64_t i = 0; i < source->size(); ++i) {
    Taken sample = take(*source, i);
    std::vector<int32_t> whole = sample.restored();
    CHECK(whole.front() == kCls);
    CHECK(whole.back() == kSep);
    for (size_t t = 1; t + 1 < whole.size(); ++t) ++seen[whole[t]];
    for (size_t t = 0; t < whole.size(); ++t) CHECK(sample.positions[t] == static_cast<int32_t>(t));
    CHECK(sample.starts == std::vector<int32_t>{0});
    CHECK(sample.targets.front() == kIgnoredTarget);
    CHECK(sample.targets.back() == kIgnoredTarget);
  }
  int64_t left_out = 0;
  for (auto [id, count] : there) {
    CHECK(seen[id] <= count);
    left_out += count - seen[id];
  }
  CHECK(left_out == tokens % kText);
}

TEST_CASE("bert: 15 % of the ordinary tokens are to be predicted, never a special one") {
  Place place;
  auto source = place.dataset("")->split(Split::train, 2000);
  int64_t ordinary = 0, targets = 0, hidden = 0;
  for (int64_t i = 0; i < 2000; ++i) {
    Taken sample = take(*source, i);
    int64_t here = 0;
    for (size_t t = 0; t < sample.tokens.size(); ++t) {
      ordinary += sample.restored()[t] >= 5;
      if (sample.targets[t] == kIgnoredTarget) continue;
      CHECK(sample.targets[t] >= 5);
      ++here;
      hidden += sample.tokens[t] == kMaskId;
    }
    CHECK(here >= 1);
    targets += here;
  }
  const double share = static_cast<double>(targets) / static_cast<double>(ordinary);
  CHECK(std::abs(share - 0.15) < 0.012);  // a sample has 4 or 5 of 31 or 32
  CHECK(std::abs(static_cast<double>(hidden) / static_cast<double>(targets) - 0.8) < 0.02);
}

TEST_CASE(
    "bert: the same samples for any resume and any number of data-parallel ranks, masked anew in "
    "each epoch") {
  Place place;
  for (const char* order : {"", ", order: open"}) {
    auto data = place.dataset(order);
    const int64_t epoch = data->split(Split::train, Dataset::kOneEpoch)->size();
    auto source = data->split(Split::train, 4 * epoch),
         again = place.dataset(order)->split(Split::train, 4 * epoch);
    auto tokens = [&](const SampleSource& from, int64_t rank, int64_t ranks, int64_t consumed) {
      Loader loader(from,
                    {.seq_length = kLength,
                     .num_micro_batches = 8 / ranks,
                     .dp_rank = rank,
                     .dp_size = ranks,
                     .prefetch = false},
                    consumed);
      std::vector<int32_t> out;
      for (const MicroBatch& batch : loader.next()) {
        out.insert(out.end(), batch.tokens.begin(), batch.tokens.end());
        out.insert(out.end(), batch.targets.begin(), batch.targets.end());
      }
      return out;
    };
    const auto whole = tokens(*source, 0, 1, 16);
    CHECK(tokens(*again, 0, 1, 16) == whole);
    std::vector<int32_t> parts;
    for (int64_t rank : {0, 1}) {
      auto part = tokens(*again, rank, 2, 16);
      parts.insert(parts.end(), part.begin(), part.end());
    }
    CHECK(parts == whole);
    if (*order == 0) continue;  // Megatron's order splits each epoch again
    std::map<std::vector<int32_t>, std::set<std::vector<int32_t>>> ways;
    for (int64_t i = 0; i < 4 * epoch; ++i) {
      Taken sample = take(*source, i);
      ways[sample.restored()].insert(sample.targets);
    }
    size_t several = 0;
    for (const auto& [text, targets] : ways) several += targets.size() > 1;
    CHECK(several > static_cast<size_t>(epoch) / 2);
  }
}

TEST_CASE("bert: whole words") {
  Place place;
  auto source = place.dataset(", whole_words: true")->split(Split::train, 300);
  int64_t pieces = 0;
  for (int64_t i = 0; i < 300; ++i) {
    Taken sample = take(*source, i);
    std::vector<int32_t> whole = sample.restored();
    for (size_t t = 2; t + 1 < whole.size(); ++t) {
      if (whole[t] < 45 || whole[t - 1] < 5) continue;  // no piece, or at the begin
      CHECK((sample.targets[t] != kIgnoredTarget) == (sample.targets[t - 1] != kIgnoredTarget));
      pieces += sample.targets[t] != kIgnoredTarget;
    }
  }
  CHECK(pieces > 100);
}

TEST_CASE("bert: other marks, or none, around a sample") {
  Place place;
  auto bare =
      place.dataset(", start_token: '', end_token: ''")->split(Split::train, Dataset::kOneEpoch);
  CHECK(bare->size() == (42 + 39 * 70) / kLength);
  CHECK(take(*bare, 3).restored().front() != kCls);
  Taken other =
      take(*place.dataset(", start_token: '[PAD]', end_token: ''")->split(Split::train, 5), 3);
  CHECK(other.tokens.front() == 0);
  TokenizerContext context;
  auto bytes = place.host.make<Tokenizer>("byte", parse_yaml("extra_ids: 1"), context);
  Taken sample = take(
      *place.dataset(", mask_token: <extra_id_0>, start_token: '', end_token: ''", bytes.get())
           ->split(Split::train, 5),
      0);
  CHECK(std::count(sample.tokens.begin(), sample.tokens.end(), 257) >= 1);
}

TEST_CASE(
    "bert: validation has masks of its own, and what shapes samples is in the data's identity") {
  Place place;
  auto data = place.dataset(", valid_path: x");
  CHECK(data->objective() == Dataset::kMaskedToken);
  auto valid = data->split(Split::valid, 20), train = data->split(Split::train, 20);
  CHECK(take(*valid, 0).restored() == take(*train, 0).restored());
  CHECK(take(*valid, 0).targets != take(*train, 0).targets);
  std::set<std::string> identities;
  const char* changes[] = {"",
                           ", mask_probability: 0.2",
                           ", mask_share: 0.7",
                           ", random_share: 0.2",
                           ", whole_words: true",
                           ", start_token: ''",
                           ", end_token: '[PAD]'",
                           ", mask_token: '[UNK]'",
                           ", order: open"};
  for (const char* change : changes) identities.insert(place.dataset(change)->identity());
  CHECK(identities.size() == std::size(changes));
  CHECK(place.dataset("")->identity() == place.dataset("")->identity());
}

TEST_CASE("bert: what cannot be is refused by name") {
  Place place;
  expect_error(ErrorClass::config, {"dataset.mask_token", "'[MASKED]'", "[MASK]"},
               [&] { place.dataset(", mask_token: '[MASKED]'"); });
  expect_error(ErrorClass::config, {"dataset.start_token", "'<s>'"},
               [&] { place.dataset(", start_token: <s>"); });
  expect_error(ErrorClass::config, {"dataset.start_token", "'[CLS]'"},
               [&] { place.dataset("", place.bytes.get()); });
  expect_error(ErrorClass::config, {"dataset.mask_token is empty"},
               [&] { place.dataset(", mask_token: ''"); });
  expect_error(ErrorClass::config, {"0.95", "0.1", "more than 1"},
               [&] { place.dataset(", mask_share: 0.95"); });
  expect_error(ErrorClass::config, {"model.seq_length=2"}, [&] { place.dataset("", nullptr, 2); });
  expect_error(ErrorClass::config, {"dataset.whole_words", "only 0 of", "##"}, [&] {
    place.dataset(", whole_words: true, mask_token: <|endoftext|>, start_token: '', end_token: ''",
                  place.bytes.get());
  });
  for (const char* share : {", mask_probability: 0", ", mask_probability: 1", ", mask_share: 1.5",
                            ", random_share: -0.1"})
    expect_error(ErrorClass::config, {std::string(share).substr(2, 6)},
                 [&] { place.dataset(share); });
  DatasetContext no_tokenizer{.seq_length = kLength, .base_directory = place.scratch.path()};
  expect_error(ErrorClass::config, {"needs a tokenizer"},
               [&] { place.host.make<Dataset>("bert", parse_yaml("path: x"), no_tokenizer); });
}
