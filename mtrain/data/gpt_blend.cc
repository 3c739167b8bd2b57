// The parts of gpt_index.h that divide and mix datasets.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "mtrain/base/error.h"
#include "mtrain/base/pairwise_sum.h"
#include "mtrain/data/gpt_index.h"

namespace mtrain {
namespace {

double parse_share(const std::string& text, std::string_view whole) {
  std::string digits(trim(text));
  char* end = nullptr;
  double value = std::strtod(digits.c_str(), &end);
  bool plain = !digits.empty() && digits.find_first_not_of("0123456789.") == std::string::npos;
  MT_USER_CHECK(
      plain && *end == '\0' && std::isfinite(value), ErrorClass::config,
      cat("dataset split '", printable(whole), "': '", printable(digits), "' is not a share"),
      "write the shares of train, valid and test, as in 969,30,1");
  return value;
}

/// The dataset that is furthest behind its share of `done` items; the first one on a tie. Never one
/// of weight 0, although none is behind where all others have their shares.
size_t most_behind(std::span<const double> weights, std::span<const int64_t> counts,
                   std::span<const int64_t> limits, int64_t done) {
  const double items = std::max(static_cast<double>(done), 1.0);
  size_t best = weights.size();
  double worst = 0;
  for (size_t d = 0; d < weights.size(); ++d) {
    if (weights[d] == 0 || (!limits.empty() && counts[d] >= limits[d])) continue;
    const double share = weights[d] * items;  // a separate statement, to avoid a fused multiply-add
    const double lag = share - static_cast<double>(counts[d]);
    if (best == weights.size() || lag > worst) best = d, worst = lag;
  }
  return best;
}

BlendIndex mix(std::span<const double> weights, std::span<const int64_t> limits, int64_t size) {
  MT_USER_CHECK(!weights.empty() && weights.size() <= INT16_MAX, ErrorClass::config,
                cat("a blend has ", weights.size(), " datasets, but 1 to 32767 are supported"), "");
  BlendIndex index;
  index.dataset.reserve(static_cast<size_t>(size));
  index.sample.reserve(static_cast<size_t>(size));
  std::vector<int64_t> counts(weights.size(), 0);
  for (int64_t i = 0; i < size; ++i) {
    size_t d = most_behind(weights, counts, limits, i);
    MT_CHECK(d < weights.size(), "a blend without a weight above 0");
    index.dataset.push_back(static_cast<int16_t>(d));
    index.sample.push_back(counts[d]++);
  }
  return index;
}

}  // namespace

std::array<SequenceRange, 3> split_ranges(std::string_view shares, int64_t count) {
  auto texts = split(shares, ',');
  MT_USER_CHECK(!texts.empty() && texts.size() <= 3, ErrorClass::config,
                cat("dataset split '", printable(shares), "' has ", texts.size(), " shares"),
                "write the shares of train, valid and test, as in 969,30,1");
  std::vector<double> values(3, 0.0);
  for (size_t i = 0; i < texts.size(); ++i) values[i] = parse_share(texts[i], shares);
  MT_USER_CHECK(pairwise_sum(values) > 0, ErrorClass::config,
                cat("dataset split '", printable(shares), "': all shares are 0"),
                "write the shares of train, valid and test, as in 969,30,1");
  values = normalize_weights(values);
  std::array<SequenceRange, 3> ranges;
  double before = 0;
  for (size_t i = 0; i < 3; ++i) {
    const double after = before + values[i];
    auto at = [count](double share) {
      return std::min(count,
                      static_cast<int64_t>(std::nearbyint(share * static_cast<double>(count))));
    };
    ranges[i] = {at(before), at(after)};
    before = after;
  }
  return ranges;
}

BlendIndex blend(std::span<const double> normalized_weights, int64_t size) {
  return mix(normalized_weights, {}, size);
}

BlendIndex blend_phases(std::span<const BlendPhase> phases) {
  BlendIndex out;
  std::vector<int64_t> used(phases.empty() ? 0 : phases[0].weights.size(), 0);
  for (const auto& phase : phases) {
    const BlendIndex part = blend(phase.weights, phase.samples);
    const std::vector<int64_t> before = used;
    for (size_t i = 0; i < part.dataset.size(); ++i) {
      const auto d = static_cast<size_t>(part.dataset[i]);
      out.dataset.push_back(part.dataset[i]);
      out.sample.push_back(before[d] + part.sample[i]);
      used[d] = std::max(used[d], out.sample.back() + 1);
    }
  }
  return out;
}

BlendIndex blend_exhaustive(std::span<const int64_t> sizes) {
  int64_t total = 0;
  for (int64_t size : sizes) total += size;
  std::vector<double> weights;
  for (int64_t size : sizes)
    weights.push_back(static_cast<double>(size) / static_cast<double>(total));
  return mix(weights, sizes, total);
}

std::vector<double> normalize_weights(std::span<const double> weights, const std::string& setting) {
  for (double weight : weights)
    MT_USER_CHECK(weight >= 0 && std::isfinite(weight), ErrorClass::config,
                  cat(setting, " contains ", shortest(weight)), "give numbers of at least 0");
  const double sum = pairwise_sum(weights);
  MT_USER_CHECK(sum > 0 && std::isfinite(sum), ErrorClass::config,
                cat("the numbers of ", setting, " add up to ", shortest(sum)),
                "give at least one number above 0");
  std::vector<double> out;
  for (double weight : weights) out.push_back(weight / sum);
  return out;
}

int64_t blend_share(int64_t size, double weight) {
  return static_cast<int64_t>(std::ceil(static_cast<double>(size) * weight));
}

int64_t blend_share_with_surplus(int64_t size, double weight) {
  return static_cast<int64_t>(
      std::ceil(std::ceil(static_cast<double>(size) * weight) * (1 + 0.005)));
}

}  // namespace mtrain
