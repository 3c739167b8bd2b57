#include "mtrain/data/span_corruption.h"

#include <algorithm>
#include <cmath>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/data/sample_draws.h"

namespace mtrain {
namespace {

/// Rounds ties to even like Python's round(), independent of the processor's rounding mode.
int64_t rounded(double value) {
  const double below = std::floor(value), part = value - below;
  const bool up = part > 0.5 || (part == 0.5 && std::fmod(below, 2) != 0);
  return static_cast<int64_t>(below) + (up ? 1 : 0);
}

/// Lengths of `parts` non-empty parts of `items` items; all divisions are equally likely. A
/// division is a choice of parts - 1 of the gaps between items, sampled by Floyd's algorithm.
std::vector<size_t> random_division(size_t items, size_t parts, SampleDraws& draws) {
  std::vector<uint8_t> ends_here(
      items,
      0);  // whether a part ends after the item; not drawn for the last item
  for (size_t place = items - parts; place + 1 < items; ++place) {
    const size_t drawn = draws.below(place + 1);
    ends_here[ends_here[drawn] ? place : drawn] = 1;
  }
  ends_here[items - 1] = 1;
  std::vector<size_t> lengths;
  lengths.reserve(parts);
  for (size_t i = 0, begin = 0; i < items; ++i)
    if (ends_here[i]) lengths.push_back(i + 1 - begin), begin = i + 1;
  return lengths;
}

int64_t together(const SpanLengths& lengths) { return lengths.inputs + lengths.targets; }

}  // namespace

SpanLengths span_lengths(int64_t tokens, const SpanShares& shares) {
  MT_CHECK(tokens >= 2, "a text of ", tokens);
  MT_CHECK(shares.mask_probability > 0 && shares.mask_probability < 1 && shares.mean_span >= 1,
           "bad shares");
  SpanLengths out;
  out.removed_tokens = std::clamp<int64_t>(
      rounded(static_cast<double>(tokens) * shares.mask_probability), 1, tokens - 1);
  const int64_t left = tokens - out.removed_tokens;
  const int64_t spans =
      rounded(static_cast<double>(out.removed_tokens) / static_cast<double>(shares.mean_span));
  out.spans = std::clamp<int64_t>(spans, 1, std::min(out.removed_tokens, left));
  out.inputs = left + out.spans + 1;
  out.targets = out.removed_tokens + out.spans + (shares.closing_sentinel ? 1 : 0) + 1;
  return out;
}

int64_t longest_text(int64_t places, const SpanShares& shares) {
  auto fits = [&](int64_t tokens) { return together(span_lengths(tokens, shares)) <= places; };
  if (places < 2 || !fits(2)) return 0;
  int64_t most = 2, too_many = places + 1;  // each further token takes at least one more position
  while (most + 1 < too_many) {
    const int64_t middle = most + (too_many - most) / 2;
    (fits(middle) ? most : too_many) = middle;
  }
  return most;
}

SpanCorruption::SpanCorruption(SpanCorruptionConfig config, int64_t tokens, uint64_t seed,
                               std::string_view stream)
    : config_(std::move(config)),
      sorted_sentinels_(config_.sentinels),
      tokens_(tokens),
      lengths_(span_lengths(tokens, config_.shares)),
      seed_(seed),
      stream_(name_key(stream)) {
  const auto needed =
      static_cast<size_t>(lengths_.spans + (config_.shares.closing_sentinel ? 1 : 0));
  MT_CHECK(config_.sentinels.size() >= needed, config_.sentinels.size(), " sentinels of ", needed);
  std::sort(sorted_sentinels_.begin(), sorted_sentinels_.end());
}

void SpanCorruption::refuse_sentinels(std::span<const int32_t> text) const {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] < sorted_sentinels_.front() || text[i] > sorted_sentinels_.back()) continue;
    MT_USER_CHECK(!std::binary_search(sorted_sentinels_.begin(), sorted_sentinels_.end(), text[i]),
                  ErrorClass::data,
                  cat("token ", i, " of the text is id ", text[i], ", which is a sentinel"),
                  "the data was prepared with another tokenizer, or the chosen sentinels occur in "
                  "text: choose others in dataset.sentinel");
  }
}

void SpanCorruption::apply(uint64_t sample, std::span<const int32_t> text,
                           std::vector<int32_t>& out) const {
  MT_CHECK_EQ(static_cast<int64_t>(text.size()), tokens_);
  refuse_sentinels(text);
  SampleDraws draws(seed_, stream_, sample);
  const auto spans = static_cast<size_t>(lengths_.spans),
             removed_tokens = static_cast<size_t>(lengths_.removed_tokens);
  const auto removed = random_division(removed_tokens, spans, draws);
  const auto kept = random_division(text.size() - removed_tokens, spans, draws);
  auto append = [&](size_t begin, size_t count) {
    const auto part = text.subspan(begin, count);
    out.insert(out.end(), part.begin(), part.end());
  };
  out.clear();
  out.reserve(static_cast<size_t>(together(lengths_)));
  for (size_t i = 0, at = 0; i < spans; at += kept[i] + removed[i], ++i) {
    append(at, kept[i]);
    out.push_back(config_.sentinels[i]);
  }
  out.push_back(config_.end);
  for (size_t i = 0, at = 0; i < spans; at += kept[i] + removed[i], ++i) {
    out.push_back(config_.sentinels[i]);
    append(at + kept[i], removed[i]);
  }
  if (config_.shares.closing_sentinel) out.push_back(config_.sentinels[spans]);
  out.push_back(config_.end);
}

std::vector<int32_t> corrupted_ids(const SampleSource& text, const SpanCorruption& corruption,
                                   int64_t index, const std::string& what) {
  const auto length = static_cast<size_t>(corruption.tokens());
  std::vector<int32_t> places(3 * length), ids;
  const std::span<int32_t> all(places);
  Sample sample{all.first(length), all.subspan(length, length), all.last(length), {}};
  text.get(index, sample);
  try {
    corruption.apply(static_cast<uint64_t>(index), sample.tokens, ids);
  } catch (const Error& error) {
    throw Error(error.error_class(), cat(what, ", sample ", index, ": ", error.message()),
                error.hint());
  }
  return ids;
}

}  // namespace mtrain
