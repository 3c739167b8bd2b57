#include "mtrain/data/loader.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

using namespace mtrain;

namespace {

// Sample i holds i*seq, i*seq+1, …; odd samples are two sequences, and their last target is
// ignored.
class Counting final : public SampleSource {
 public:
  Counting(int64_t size, int64_t seq, bool repeats = false)
      : size_(size), seq_(seq), repeats_(repeats) {}
  int64_t size() const override { return size_; }
  bool repeats() const override { return repeats_; }
  void get(int64_t index, Sample& out) const override {
    if (index < 0 || index >= size_) throw Error(ErrorClass::bug, cat("index ", index));
    if (index == fails_at) throw Error(ErrorClass::data, "broken sample");
    std::iota(out.tokens.begin(), out.tokens.end(), static_cast<int32_t>(index * seq_));
    std::iota(out.targets.begin(), out.targets.end(), static_cast<int32_t>(index * seq_ + 1));
    std::iota(out.positions.begin(), out.positions.end(), 0);
    out.starts.assign(1, 0);
    if (index % 2) {
      out.targets.back() = kIgnoredTarget;
      out.starts.push_back(static_cast<int32_t>(seq_ / 4));
    }
  }
  int64_t fails_at = -1;

 private:
  int64_t size_, seq_;
  bool repeats_;
};

std::vector<int32_t> batch_tokens(std::span<const MicroBatch> batches) {
  std::vector<int32_t> out;
  for (const MicroBatch& batch : batches)
    out.insert(out.end(), batch.tokens.begin(), batch.tokens.end());
  return out;
}

}  // namespace

TEST_CASE("a micro-batch lays samples end to end and counts what the loss uses") {
  Counting source(100, 8);
  for (bool prefetch : {false, true}) {
    Loader loader(
        source,
        {.seq_length = 8, .micro_batch_size = 2, .num_micro_batches = 3, .prefetch = prefetch});
    auto step = loader.next();
    REQUIRE(step.size() == 3);
    const MicroBatch& batch = step[1];
    CHECK(batch.first_sample == 2);
    CHECK(batch.tokens.front() == 16);
    CHECK(batch.tokens.back() == 31);
    CHECK(batch.cu_seqlens == std::vector<int32_t>{0, 8, 10, 16});
    CHECK(batch.max_seqlen == 8);
    CHECK(batch.num_target_tokens == 15);
    CHECK(batch.positions[8] == 0);
    CHECK(loader.consumed_samples() == 6);
  }
}

// Every third sample ends with two padded positions; the others do not mention padding.
class Padded final : public SampleSource {
 public:
  int64_t size() const override { return 6; }
  void get(int64_t index, Sample& out) const override {
    std::fill(out.tokens.begin(), out.tokens.end(), 1);
    std::fill(out.targets.begin(), out.targets.end(), 1);
    std::iota(out.positions.begin(), out.positions.end(), 0);
    out.starts.assign(1, 0);
    if (index % 3 != 0) return;
    out.padding = 2;
    std::fill(out.targets.end() - (trained ? 1 : 2), out.targets.end(), kIgnoredTarget);
  }
  bool trained = false;  // one padded position has a target
};

TEST_CASE("a micro-batch says how much of each row is padding") {
  Padded source;
  const LoaderConfig config{.seq_length = 4, .micro_batch_size = 2, .num_micro_batches = 3};
  Loader loader(source, config);
  auto step = loader.next();
  CHECK(step[0].padding == std::vector<int32_t>{2, 0});
  CHECK(step[1].padding == std::vector<int32_t>{0, 2});
  CHECK(step[2].padding == std::vector<int32_t>{0, 0});
  source.trained = true;
  Loader wrong(source, config);
  CHECK_THROWS_WITH(wrong.next(),
                    doctest::Contains("targets[2] is 1, and the last 2 positions are padding"));
}

namespace {

/// Sample 3 is changed by `spoil`.
class Spoiled final : public SampleSource {
 public:
  explicit Spoiled(std::function<void(Sample&)> spoil) : spoil_(std::move(spoil)) {}
  int64_t size() const override { return 4; }
  bool repeats() const override { return true; }
  void get(int64_t index, Sample& out) const override {
    std::fill(out.tokens.begin(), out.tokens.end(), kVocab - 1);
    std::fill(out.targets.begin(), out.targets.end(), kVocab - 1);
    std::iota(out.positions.begin(), out.positions.end(), 0);
    out.starts.assign(1, 0);
    if (index == 3) spoil_(out);
  }
  static constexpr int32_t kVocab = 11;

 private:
  std::function<void(Sample&)> spoil_;
};

constexpr int64_t kLong = 10000;  // more than one block of the check

/// The error of a loader that reads the sample, and its message; empty if there is none.
std::string fault_of(const std::function<void(Sample&)>& spoil, int64_t vocab = Spoiled::kVocab) {
  const Spoiled source(spoil);
  Loader loader(
      source,
      {.seq_length = kLong, .micro_batch_size = 2, .num_micro_batches = 4, .vocab_size = vocab});
  try {
    loader.next();
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::plugin);
    CHECK_FALSE(error.hint().empty());
    return error.message();
  }
  return {};
}

}  // namespace

TEST_CASE("values of a sample outside their range are refused by the first one") {
  CHECK(fault_of([](Sample&) {}).empty());
  CHECK(fault_of([](Sample& s) { s.tokens[0] = 0, s.targets[0] = kIgnoredTarget; }).empty());
  CHECK(fault_of([](Sample& s) { s.tokens[9999] = s.tokens[4097] = 11; }) ==
        "the dataset filled a sample wrongly in get(): sample 3: tokens[4097] is 11, outside the "
        "vocabulary of 11");
  for (const int32_t token : {-1, INT32_MIN, INT32_MAX})
    CHECK(fault_of([=](Sample& s) { s.tokens[4095] = token; }) ==
          cat("the dataset filled a sample wrongly in get(): sample 3: tokens[4095] is ", token,
              ", outside the vocabulary of 11"));
  for (const int32_t target : {-2, -100, INT32_MIN, 11, INT32_MAX})
    CHECK(fault_of([=](Sample& s) { s.targets[9999] = target; }) ==
          cat("the dataset filled a sample wrongly in get(): sample 3: targets[9999] is ", target,
              ", outside the vocabulary of 11"));
  for (const int32_t position : {-1, 10000, INT32_MAX})
    CHECK(fault_of([=](Sample& s) { s.positions[5000] = position; }) ==
          cat("the dataset filled a sample wrongly in get(): sample 3: positions[5000] is ",
              position, ", outside 0 to 9999"));
  // Without a known vocabulary only negative ids are wrong.
  CHECK(fault_of([](Sample& s) { s.tokens[1] = s.targets[1] = INT32_MAX; }, 0).empty());
  CHECK(fault_of([](Sample& s) { s.tokens[1] = -7; }, 0) ==
        "the dataset filled a sample wrongly in get(): sample 3: tokens[1] is -7, a negative id");
  CHECK(fault_of([](Sample& s) { s.targets[1] = -2; }, 0) ==
        "the dataset filled a sample wrongly in get(): sample 3: targets[1] is -2, a negative id");
}

TEST_CASE("starts, padding and spans of a sample are checked") {
  auto fault = [](const std::function<void(Sample&)>& spoil) {
    const std::string message = fault_of(spoil);
    const std::string begin = "the dataset filled a sample wrongly in get(): sample 3: ";
    return message.starts_with(begin) ? message.substr(begin.size()) : message;
  };
  CHECK(fault([](Sample& s) { s.starts.clear(); }) == "starts is empty");
  CHECK(fault([](Sample& s) { s.starts = {3}; }) == "starts[0] is 3, not 0");
  CHECK(fault([](Sample& s) {
          s.starts = {0, 7, 7};
        }) == "starts[2] is 7 after 7, in a sample of 10000 positions");
  CHECK(fault([](Sample& s) {
          s.starts = {0, 10000};
        }) == "starts[1] is 10000 after 0, in a sample of 10000 positions");
  CHECK(fault([](Sample& s) { s.starts = {0, 9999}; }).empty());
  CHECK(fault([](Sample& s) { s.padding = -1; }) == "padding is -1, outside 0 to 10000");
  CHECK(fault([](Sample& s) { s.padding = 10001; }) == "padding is 10001, outside 0 to 10000");
  CHECK(fault([](Sample& s) { s.padding = 2; }) ==
        "targets[9998] is 10, and the last 2 positions are padding");
  std::vector<int32_t> own(static_cast<size_t>(kLong), 1);
  CHECK(fault([&](Sample& s) { s.tokens = own; }) ==
        "tokens, targets or positions refer to other memory");
}

TEST_CASE("the global batch depends on the cursor, not on the layout") {
  Counting source(4096, 4);
  std::vector<std::vector<int32_t>> wanted;
  Loader whole(source, {.seq_length = 4, .micro_batch_size = 12, .num_micro_batches = 1});
  for (int step = 0; step < 5; ++step) wanted.push_back(batch_tokens(whole.next()));
  struct Layout {
    int64_t micro, count, dp;
  };
  for (Layout layout :
       {Layout{12, 1, 1}, Layout{1, 12, 1}, Layout{3, 2, 2}, Layout{2, 2, 3}, Layout{1, 1, 12}}) {
    std::vector<std::vector<int32_t>> got(5);
    for (int64_t rank = 0; rank < layout.dp; ++rank) {
      Loader loader(source, {.seq_length = 4,
                             .micro_batch_size = layout.micro,
                             .num_micro_batches = layout.count,
                             .dp_rank = rank,
                             .dp_size = layout.dp});
      for (auto& step : got) {
        auto part = batch_tokens(loader.next());
        step.insert(step.end(), part.begin(), part.end());
      }
    }
    CHECK(got == wanted);
  }
}

TEST_CASE("a cursor taken from one loader continues in another") {
  Counting source(1000, 4);
  LoaderConfig config{.seq_length = 4, .micro_batch_size = 2, .num_micro_batches = 2};
  Loader first(source, config);
  for (int i = 0; i < 7; ++i) first.next();
  Loader resumed(source, config, first.consumed_samples());
  Loader sought(source, config);
  sought.next();
  sought.seek(first.consumed_samples());
  for (int i = 0; i < 10; ++i) {
    auto wanted = batch_tokens(first.next());
    CHECK(batch_tokens(resumed.next()) == wanted);
    CHECK(batch_tokens(sought.next()) == wanted);
  }
  CHECK(first.consumed_samples() == 68);
}

TEST_CASE("steady state reuses its buffers") {
  Counting source(1000, 4);
  Loader loader(source, {.seq_length = 4, .micro_batch_size = 2, .num_micro_batches = 2});
  std::vector<const int32_t*> seen;
  for (int i = 0; i < 50; ++i) {
    auto step = loader.next();
    for (const MicroBatch& batch : step) {
      seen.push_back(batch.tokens.data());
      seen.push_back(batch.cu_seqlens.data());
    }
  }
  auto early = std::vector(seen.begin() + 40, seen.begin() + 48),
       late = std::vector(seen.end() - 8, seen.end());
  std::sort(early.begin(), early.end());
  std::sort(late.begin(), late.end());
  CHECK(early == late);
}

TEST_CASE("the end of the data is an error unless the source repeats") {
  LoaderConfig config{.seq_length = 4, .micro_batch_size = 2, .num_micro_batches = 2};
  Counting finite(10, 4), endless(10, 4, true);
  Loader loader(finite, config);
  loader.next();
  loader.next();
  for (int twice = 0; twice < 2; ++twice) {
    try {
      loader.next();
      FAIL("read beyond the end");
    } catch (const Error& error) {
      CHECK(error.error_class() == ErrorClass::data);
      CHECK(error.message().find("10 samples") != std::string::npos);
    }
  }
  CHECK(loader.consumed_samples() == 8);
  Loader again(endless, config, 8);
  CHECK(again.next()[1].tokens.front() == 0);
}

TEST_CASE("a failing sample is reported by the step that wants it, and a seek gets past it") {
  Counting source(100, 4);
  source.fails_at = 6;
  Loader loader(source, {.seq_length = 4, .micro_batch_size = 2, .num_micro_batches = 2});
  CHECK(batch_tokens(loader.next()).front() == 0);
  CHECK_THROWS_WITH(loader.next(), doctest::Contains("broken sample"));
  CHECK_THROWS_WITH(loader.next(), doctest::Contains("broken sample"));
  loader.seek(8);
  CHECK(loader.next()[0].first_sample == 8);
}

TEST_CASE("loaders end cleanly at any moment") {
  Counting source(100000, 64);
  for (int i = 0; i < 50; ++i) {
    Loader loader(source, {.seq_length = 64, .micro_batch_size = 8, .num_micro_batches = 4});
    for (int step = 0; step < i % 4; ++step) loader.next();
    if (i % 3 == 0) loader.seek(320);
  }
}
