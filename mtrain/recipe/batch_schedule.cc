#include "mtrain/recipe/batch_schedule.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>

#include "mtrain/base/text.h"
#include "mtrain/config/fields.h"
#include "mtrain/recipe/settings.h"

namespace mtrain {
namespace {

std::optional<int64_t> whole(std::string_view text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 ||
      static_cast<double>(value) > kLargestDimension)
    return {};
  return value;
}

std::optional<BatchSchedule::Period> period_of(std::string_view item) {
  const size_t colon = item.find(':');
  if (colon == std::string_view::npos) return {};
  auto step = whole(trim(item.substr(0, colon))), samples = whole(trim(item.substr(colon + 1)));
  if (!step || !samples || *samples == 0) return {};
  return BatchSchedule::Period{*step, *samples};
}

}  // namespace

BatchSchedule BatchSchedule::parse(std::span<const std::string> items, std::string& fault) {
  std::vector<Period> periods;
  for (const std::string& item : items) {
    auto period = period_of(item);
    if (!period) {
      fault = cat("'", printable(item),
                  "' does not have the form FINISHED_STEPS:SAMPLES, such as 2000:1024");
    } else if (periods.empty() && period->steps_before != 0) {
      fault =
          cat("the first item is '", printable(item), "', so ",
              period->steps_before == 1 ? "the first step has"
                                        : cat("the first ", period->steps_before, " steps have"),
              " no batch size: start with 0:SAMPLES");
    } else if (!periods.empty() && period->steps_before <= periods.back().steps_before) {
      fault = cat("'", printable(item), "' follows an item with ", periods.back().steps_before,
                  ": finished steps must ascend");
    } else {
      periods.push_back(*period);
      continue;
    }
    return constant(1);
  }
  return periods.empty() ? constant(1) : BatchSchedule(std::move(periods));
}

int64_t BatchSchedule::samples_at(int64_t finished) const {
  int64_t samples = periods_.front().samples;
  for (const Period& period : periods_)
    if (period.steps_before <= finished) samples = period.samples;
  return samples;
}

int64_t BatchSchedule::samples_until(int64_t steps) const {
  int64_t sum = 0;
  for (size_t i = 0; i < periods_.size() && periods_[i].steps_before < steps; ++i) {
    const int64_t end =
        i + 1 < periods_.size() ? std::min(steps, periods_[i + 1].steps_before) : steps;
    sum += (end - periods_[i].steps_before) * periods_[i].samples;
  }
  return sum;
}

double BatchSchedule::steps_for(double samples) const {
  for (size_t i = 0; i + 1 < periods_.size(); ++i) {
    const auto before = static_cast<double>(samples_until(periods_[i].steps_before));
    if (static_cast<double>(samples_until(periods_[i + 1].steps_before)) >= samples)
      return static_cast<double>(periods_[i].steps_before) +
             std::ceil((samples - before) / static_cast<double>(periods_[i].samples));
  }
  const Period& last = periods_.back();
  return static_cast<double>(last.steps_before) +
         std::ceil((samples - static_cast<double>(samples_until(last.steps_before))) /
                   static_cast<double>(last.samples));
}

int64_t BatchSchedule::largest() const {
  int64_t samples = 0;
  for (const Period& period : periods_) samples = std::max(samples, period.samples);
  return samples;
}

int64_t BatchSchedule::smallest() const {
  return std::ranges::min_element(periods_, {}, &Period::samples)->samples;
}

int64_t BatchSchedule::common_divisor() const {
  int64_t divisor = 0;
  for (const Period& period : periods_) divisor = std::gcd(divisor, period.samples);
  return divisor;
}

BatchSchedule Settings::batches() const {
  if (train.batch_schedule.empty())
    return BatchSchedule::constant(train.global_batch_size > 0 ? train.global_batch_size
                                                               : train.micro_batch_size);
  std::string fault;  // a rule reports the fault
  return BatchSchedule::parse(train.batch_schedule, fault);
}

std::string BatchSchedule::text() const {
  std::string out = std::to_string(periods_.front().samples);
  for (size_t i = 1; i < periods_.size(); ++i)
    out += cat(", from step ", periods_[i].steps_before + 1, " on ", periods_[i].samples);
  return out;
}

}  // namespace mtrain
