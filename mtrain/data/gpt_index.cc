#include "mtrain/data/gpt_index.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "mtrain/base/checked.h"
#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/data/numpy_random.h"

namespace mtrain {
namespace {

/// The last epoch is shuffled separately when less than this part of it is used.
constexpr double kSeparateBelow = 0.80;
constexpr size_t kFetchAhead = 24;  // documents

struct Plan {
  int64_t num_epochs = 1, num_samples = 0;
  int64_t samples_before_last_epoch = 0;
  bool separate_last_epoch = false;
};

[[noreturn]] void too_many(std::string_view what, int64_t num_samples) {
  throw Error(ErrorClass::config,
              cat("cannot index ", num_samples, " samples: more ", what, " than 2^32-2"),
              "lower train.steps or the global batch size");
}

Plan plan_epochs(int64_t num_documents, int64_t tokens_per_epoch, const GptIndexConfig& config) {
  Plan plan;
  const int64_t seq = config.seq_length, extra = config.extra_tokens;
  const bool one_epoch = config.num_samples == Dataset::kOneEpoch;
  if (!one_epoch) {
    auto wanted = Checked<int64_t>(config.num_samples) * seq + extra;
    if (!wanted.valid() || wanted.value() > INT64_MAX - tokens_per_epoch)
      too_many("tokens", config.num_samples);
    plan.num_epochs =
        std::max<int64_t>(1, (wanted.value() + tokens_per_epoch - 1) / tokens_per_epoch);
  }
  constexpr auto kMost = int64_t{UINT32_MAX} - 1;
  if (!(Checked<int64_t>(plan.num_epochs) * num_documents).valid() ||
      plan.num_epochs * num_documents > kMost)
    too_many("documents over all epochs", config.num_samples);
  const int64_t available = plan.num_epochs * tokens_per_epoch - extra;
  plan.num_samples = config.drop_last ? available / seq : (available + seq - 1) / seq;
  if (plan.num_samples > kMost) too_many("samples", config.num_samples);
  if (plan.num_epochs > 1) {
    plan.samples_before_last_epoch = ((plan.num_epochs - 1) * tokens_per_epoch - extra) / seq;
    const int64_t from_last = config.num_samples - plan.samples_before_last_epoch;
    const int64_t per_epoch = (tokens_per_epoch - extra) / seq;
    plan.separate_last_epoch =
        from_last < static_cast<int64_t>(kSeparateBelow * static_cast<double>(per_epoch));
  }
  return plan;
}

void append_epochs(std::vector<int32_t>& documents, int64_t count, int64_t epochs,
                   NumpyRandom& random) {
  const size_t begin = documents.size();
  documents.resize(begin + static_cast<size_t>(count * epochs));
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    auto at = documents.begin() + static_cast<std::ptrdiff_t>(begin) + epoch * count;
    std::iota(at, at + count, 0);
  }
  random.shuffle(std::span(documents).subspan(begin));
}

}  // namespace

std::vector<SampleStart> build_sample_index(std::span<const int32_t> lengths,
                                            std::span<const int32_t> documents, int64_t num_epochs,
                                            int64_t tokens_per_epoch,
                                            const GptIndexConfig& config) {
  const int64_t seq = config.seq_length, extra = config.extra_tokens;
  const int64_t available = num_epochs * tokens_per_epoch - extra;
  const int64_t count = config.drop_last ? available / seq : (available + seq - 1) / seq;
  std::vector<SampleStart> samples;
  samples.reserve(static_cast<size_t>(count) + 1);
  size_t position = 0;
  int64_t offset = 0;
  auto length = [&] { return int64_t{lengths[static_cast<size_t>(documents[position])]}; };
  auto next_document = [&] {  // prefetches: in reading order the lengths are scattered in memory
    ++position;
    if (position + kFetchAhead < documents.size())
      __builtin_prefetch(&lengths[static_cast<size_t>(documents[position + kFetchAhead])]);
  };
  samples.push_back({0, 0});
  while (static_cast<int64_t>(samples.size()) <= count) {
    int64_t wanted = seq + extra;
    while (length() - offset < wanted && position + 1 < documents.size()) {
      wanted -= length() - offset;
      next_document();
      offset = 0;
    }
    // The next sample starts at the last token of this one, which is only a target here. If the
    // data ends before the sample does (drop_last off), the sample ends with the last document.
    offset = std::min(offset + wanted, length()) - extra;
    samples.push_back({static_cast<uint32_t>(position), static_cast<int32_t>(offset)});
  }
  return samples;
}

GptIndex build_gpt_index(std::span<const int32_t> lengths, int64_t first,
                         const GptIndexConfig& config) {
  MT_CHECK(config.seq_length > 0 && config.extra_tokens >= 0 && config.extra_tokens <= 1,
           "bad index settings");
  MT_CHECK(config.num_samples >= Dataset::kOneEpoch, "num_samples ", config.num_samples);
  const auto count = static_cast<int64_t>(lengths.size());
  MT_USER_CHECK(first + count <= INT32_MAX, ErrorClass::data,
                cat("the split has ", counted(count, "sequence"),
                    "; Megatron's index counts 2147483647 at most"),
                "split the dataset into several and blend them");
  GptIndex index;
  index.tokens_per_epoch = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  if (index.tokens_per_epoch < config.seq_length + config.extra_tokens) {
    throw Error(ErrorClass::data,
                cat("the split has ", counted(count, "document"), " with ",
                    counted(index.tokens_per_epoch, "token"), ", but one sample takes ",
                    config.seq_length + config.extra_tokens,
                    config.extra_tokens > 0
                        ? cat(" (seq_length ", config.seq_length, " and the next token)")
                        : ""),
                "add data, increase the proportion of this split, or lower model.seq_length");
  }
  Plan plan = plan_epochs(count, index.tokens_per_epoch, config);
  index.num_epochs = plan.num_epochs;
  index.separate_last_epoch = plan.separate_last_epoch;

  NumpyRandom random(config.seed);
  index.documents.reserve(static_cast<size_t>(count * plan.num_epochs));
  append_epochs(index.documents, count, plan.num_epochs - plan.separate_last_epoch, random);
  if (plan.separate_last_epoch) append_epochs(index.documents, count, 1, random);

  index.samples =
      build_sample_index(lengths, index.documents, plan.num_epochs, index.tokens_per_epoch, config);

  index.shuffle.resize(static_cast<size_t>(plan.num_samples));
  std::iota(index.shuffle.begin(), index.shuffle.end(), 0u);
  auto all = std::span(index.shuffle);
  auto together =
      plan.separate_last_epoch ? static_cast<size_t>(plan.samples_before_last_epoch) : all.size();
  random.shuffle(all.first(together));
  if (together < all.size()) random.shuffle(all.subspan(together));

  for (int32_t& document : index.documents) document += static_cast<int32_t>(first);
  return index;
}

}  // namespace mtrain
