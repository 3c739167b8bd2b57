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

std::optional<BatchSchedule::Stage> stage_of(std::string_view item) {
  const size_t colon = item.find(':');
  if (colon == std::string_view::npos) return {};
  auto step = whole(trim(item.substr(0, colon))), samples = whole(trim(item.substr(colon + 1)));
  if (!step || !samples || *samples == 0) return {};
  return BatchSchedule::Stage{*step, *samples};
}

}  // namespace

BatchSchedule BatchSchedule::parse(std::span<const std::string> items, std::string& fault) {
  std::vector<Stage> stages;
  for (const std::string& item : items) {
    auto stage = stage_of(item);
    if (!stage) {
      fault = cat("'", printable(item), "' does not have the form step:samples, such as 2000:1024");
    } else if (stages.empty() && stage->first_step != 0) {
      fault = cat("the first item is '", printable(item),
                  "', so the batch sizes of the steps before step ", stage->first_step,
                  " are missing: start with 0:SAMPLES");
    } else if (!stages.empty() && stage->first_step <= stages.back().first_step) {
      fault = cat("'", printable(item), "' follows step ", stages.back().first_step,
                  ": steps must ascend");
    } else {
      stages.push_back(*stage);
      continue;
    }
    return constant(1);
  }
  return stages.empty() ? constant(1) : BatchSchedule(std::move(stages));
}

int64_t BatchSchedule::samples_at(int64_t finished) const {
  int64_t samples = stages_.front().samples;
  for (const Stage& stage : stages_)
    if (stage.first_step <= finished) samples = stage.samples;
  return samples;
}

int64_t BatchSchedule::samples_until(int64_t steps) const {
  int64_t sum = 0;
  for (size_t i = 0; i < stages_.size() && stages_[i].first_step < steps; ++i) {
    const int64_t end = i + 1 < stages_.size() ? std::min(steps, stages_[i + 1].first_step) : steps;
    sum += (end - stages_[i].first_step) * stages_[i].samples;
  }
  return sum;
}

double BatchSchedule::steps_for(double samples) const {
  for (size_t i = 0; i + 1 < stages_.size(); ++i) {
    const auto before = static_cast<double>(samples_until(stages_[i].first_step));
    if (static_cast<double>(samples_until(stages_[i + 1].first_step)) >= samples)
      return static_cast<double>(stages_[i].first_step) +
             std::ceil((samples - before) / static_cast<double>(stages_[i].samples));
  }
  const Stage& last = stages_.back();
  return static_cast<double>(last.first_step) +
         std::ceil((samples - static_cast<double>(samples_until(last.first_step))) /
                   static_cast<double>(last.samples));
}

int64_t BatchSchedule::largest() const {
  int64_t samples = 0;
  for (const Stage& stage : stages_) samples = std::max(samples, stage.samples);
  return samples;
}

int64_t BatchSchedule::common_divisor() const {
  int64_t divisor = 0;
  for (const Stage& stage : stages_) divisor = std::gcd(divisor, stage.samples);
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
  std::string out = std::to_string(stages_.front().samples);
  for (size_t i = 1; i < stages_.size(); ++i)
    out += cat(", from step ", stages_[i].first_step + 1, " on ", stages_[i].samples);
  return out;
}

}  // namespace mtrain
