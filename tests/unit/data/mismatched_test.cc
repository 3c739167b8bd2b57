// Mismatched answers: each sample's prompts with the answers of the sample before it in the global
// batch, the same for every division of the batch.
#include "mtrain/data/mismatched.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

using namespace mtrain;

namespace {

using Ids = std::vector<int32_t>;
/// Prompt and answer.
using Asked = std::pair<Ids, Ids>;

/// Samples of questions with answers, one after the other, each followed by an untrained id 99.
class Questions final : public SampleSource {
 public:
  explicit Questions(std::vector<std::vector<Asked>> samples) : samples_(std::move(samples)) {}
  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  void get(int64_t index, Sample& out) const override {
    out.starts.clear();
    size_t at = 0;
    for (const auto& [prompt, answer] : samples_[static_cast<size_t>(index)]) {
      out.starts.push_back(static_cast<int32_t>(at));
      Ids ids = prompt;
      ids.insert(ids.end(), answer.begin(), answer.end());
      ids.push_back(99);
      for (size_t i = 0; i + 1 < ids.size(); ++i, ++at) {
        const bool trained = i + 1 >= prompt.size() && i + 2 < ids.size();
        out.tokens[at] = ids[i], out.targets[at] = trained ? ids[i + 1] : kIgnoredTarget;
        out.positions[at] = static_cast<int32_t>(i);
      }
    }
    out.padding = static_cast<int64_t>(out.tokens.size() - at);
    if (out.padding > 0) out.starts.push_back(static_cast<int32_t>(at));
    for (int32_t i = 0; at < out.tokens.size(); ++at)
      out.tokens[at] = 7, out.targets[at] = kIgnoredTarget, out.positions[at] = i++;
  }

 private:
  std::vector<std::vector<Asked>> samples_;
};

/// The questions with answers of one row. Checks that the rest is padding.
std::vector<Asked> asked_in(const MicroBatch& batch, int64_t row) {
  const auto length = static_cast<int32_t>(batch.seq_length),
             from = static_cast<int32_t>(row) * length;
  std::vector<Asked> out;
  for (size_t s = 0; s + 1 < batch.cu_seqlens.size(); ++s) {
    const int32_t begin = batch.cu_seqlens[s], end = batch.cu_seqlens[s + 1];
    if (begin < from || begin >= from + length) continue;
    CHECK(end - begin <= batch.max_seqlen);
    Asked found;
    for (int32_t t = begin; t < end; ++t) {
      const auto at = static_cast<size_t>(t);
      CHECK(batch.positions[at] == t - begin);
      if (found.second.empty()) {
        found.first.push_back(batch.tokens[at]);
      } else {
        CHECK(batch.tokens[at] == found.second.back());
      }
      if (batch.targets[at] != kIgnoredTarget) found.second.push_back(batch.targets[at]);
    }
    if (found.second.empty()) {
      CHECK(end == from + length);
      CHECK(end - begin == batch.padding[static_cast<size_t>(row)]);
      continue;
    }
    out.push_back(found);
  }
  return out;
}

std::vector<std::vector<Asked>> rows_of(std::span<const MicroBatch> batches) {
  std::vector<std::vector<Asked>> out;
  for (const MicroBatch& batch : batches) {
    CHECK(batch.cu_seqlens.back() == std::ssize(batch.tokens));
    CHECK(batch.num_target_tokens ==
          std::ssize(batch.targets) -
              std::count(batch.targets.begin(), batch.targets.end(), kIgnoredTarget));
    for (int64_t row = 0; row < batch.rows; ++row) out.push_back(asked_in(batch, row));
  }
  return out;
}

LoaderConfig with_others(int64_t seq_length, int64_t rows, int64_t batches, int64_t rank = 0,
                         int64_t ranks = 1) {
  return {.seq_length = seq_length,
          .micro_batch_size = rows,
          .num_micro_batches = batches,
          .dp_rank = rank,
          .dp_size = ranks,
          .mismatched = true};
}

const Asked kA{{10, 11, 12}, {13, 14}}, kB{{20}, {21, 22, 23, 24}}, kC{{30, 31}, {32}},
    kD{{40, 41, 42, 43}, {44, 45, 46}};

}  // namespace

TEST_CASE("each prompt gets the answer of the sample before it, however the batch is divided") {
  const Questions source({{kA}, {kB}, {kC}, {kD}, {kD}, {kC}, {kB}, {kA}});
  const std::vector<std::vector<Asked>> first = {{{kA.first, kD.second}},
                                                 {{kB.first, kA.second}},
                                                 {{kC.first, kB.second}},
                                                 {{kD.first, kC.second}}},
                                        second = {{{kD.first, kA.second}},
                                                  {{kC.first, kD.second}},
                                                  {{kB.first, kC.second}},
                                                  {{kA.first, kB.second}}};
  for (const auto& [rows, batches] : {std::pair{1, 4}, std::pair{2, 2}, std::pair{4, 1}})
    for (const bool prefetch : {false, true}) {
      LoaderConfig config = with_others(9, rows, batches);
      config.prefetch = prefetch;
      Loader loader(source, config);
      loader.next();
      CHECK(rows_of(loader.mismatched()) == first);
      CHECK(loader.mismatched()[0].first_sample == 0);
      loader.next();
      CHECK(rows_of(loader.mismatched()) == second);
    }
  std::vector<std::vector<Asked>> found;
  for (const int rank : {0, 1}) {
    Loader loader(source, with_others(9, 1, 2, rank, 2));
    loader.next();
    for (auto& row : rows_of(loader.mismatched())) found.push_back(std::move(row));
  }
  CHECK(found == first);
  Loader without(source, {.seq_length = 9});
  without.next();
  CHECK(without.mismatched().empty());
}

TEST_CASE("a batch of one sample gets the answer of the one before it in the source") {
  const Questions source({{kA}, {kB}, {kC}});
  Loader loader(source, with_others(9, 1, 1));
  for (const auto& wanted : {Asked{kA.first, kC.second}, Asked{kB.first, kA.second}}) {
    loader.next();
    CHECK(rows_of(loader.mismatched()) == std::vector<std::vector<Asked>>{{wanted}});
  }
  const Questions one({{kA}});
  Loader alone(one, with_others(9, 1, 1));
  CHECK_THROWS_WITH(alone.next(), doctest::Contains("there is one sample"));
}

TEST_CASE("the longest mismatched answers are shortened to fit") {
  // Two answers a sample; a row has the places of the longer sample.
  const Ids five = {51, 52, 53, 54, 55}, two = {61, 62};
  const Questions source({{{{1, 2, 3, 4}, {5}}, {{1, 2, 3, 4}, {6}}}, {{{8}, five}, {{8}, two}}});
  Loader loader(source, with_others(10, 2, 1));
  loader.next();
  const std::vector<std::vector<Asked>> wanted = {
      {{{1, 2, 3, 4}, {51, 52}}, {{1, 2, 3, 4}, {61, 62}}}, {{{8}, {5}}, {{8}, {6}}}};
  CHECK(rows_of(loader.mismatched()) == wanted);
}

TEST_CASE("answers are exchanged only between samples with the same number of them") {
  const Questions source({{kA}, {kB, kC}});
  Loader loader(source, with_others(12, 2, 1));
  CHECK_THROWS_WITH(loader.next(),
                    doctest::Contains("sample 0 has 1 answer, and sample 1, of which "
                                      "it gets mismatched answers, has 2"));
  const Questions none({{{{1, 2}, {}}}, {{{1, 2}, {}}}});
  Loader empty(none, with_others(12, 2, 1));
  CHECK_THROWS_WITH(empty.next(), doctest::Contains("has 0 answers"));
}
