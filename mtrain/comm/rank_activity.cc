#include "mtrain/comm/rank_activity.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "mtrain/base/text.h"

namespace mtrain {

namespace {

static_assert(std::is_trivially_copyable_v<RankStatus>);
constexpr size_t kMostSteps = 256;

template <size_t N>
void copy_text(char (&to)[N], std::string_view from) {
  size_t length = std::min(from.size(), N - 1);
  std::memcpy(to, from.data(), length);
  std::memset(to + length, 0, N - length);
}

CallNote note_of(const CommCall& call, uint64_t number, std::string_view group) {
  CallNote note;
  note.number = number;
  note.count = call.count;
  note.peer = call.peer;
  note.tag = call.tag;
  note.kind = call.kind;
  note.reduce = call.reduce;
  note.dtype = call.dtype;
  note.uneven = call.uneven;
  copy_text(note.group, group);
  return note;
}

}  // namespace

std::string brief(const CallNote& note) {
  if (note.number == 0) return "nothing";
  return cat(name(note.kind), " #", note.number, " of group '", note.group, "'");
}

std::string describe(const CallNote& note) {
  if (note.number == 0) return "nothing";
  CommCall call{.kind = note.kind,
                .reduce = note.reduce,
                .dtype = note.dtype,
                .peer = note.peer,
                .tag = note.tag,
                .count = note.count,
                .uneven = note.uneven};
  return cat(describe(call), " (#", note.number, " of group '", note.group, "')");
}

void RankActivity::begin_wait(const CommCall& call, uint64_t number, std::string_view group) {
  std::lock_guard lock(mutex_);
  status_.waits = note_of(call, number, group);
  ++status_.progress;
  wait_began_ = Clock::now();
}

void RankActivity::tick() {
  std::lock_guard lock(mutex_);
  ++status_.progress;
}

void RankActivity::end_wait() {
  std::lock_guard lock(mutex_);
  status_.waits = {};
  ++status_.progress;
  waited_ += std::chrono::duration<double>(Clock::now() - wait_began_).count();
}

void RankActivity::finished(const CommCall& call, uint64_t number, std::string_view group) {
  std::lock_guard lock(mutex_);
  status_.last = note_of(call, number, group);
  ++status_.progress;
}

void RankActivity::begin_step() {
  std::lock_guard lock(mutex_);
  waited_ = 0;
}

void RankActivity::end_step(int64_t step, double seconds) {
  std::lock_guard lock(mutex_);
  status_.step = step;
  ++status_.progress;
  if (steps_.size() < kMostSteps)
    steps_.push_back(seconds);
  else
    steps_[next_step_++ % kMostSteps] = seconds;
  busy_[num_busy_++ % kBusySteps] = std::max(0.0, seconds - waited_);
  waited_ = 0;
}

void RankActivity::begin_long(std::string_view what) {
  std::lock_guard lock(mutex_);
  copy_text(status_.doing, what);
  ++status_.progress;
}

void RankActivity::end_long() {
  std::lock_guard lock(mutex_);
  copy_text(status_.doing, "");
  ++status_.progress;
}

void RankActivity::end(bool failed) {
  std::lock_guard lock(mutex_);
  status_.ended = true;
  status_.failed = failed;
  ++status_.progress;
}

RankStatus RankActivity::status() const {
  std::lock_guard lock(mutex_);
  RankStatus now = status_;
  if (steps_.size() >= kFewSteps) {
    std::vector<double> sorted = steps_;
    size_t at = (sorted.size() * 99 + 99) / 100 - 1;
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(at),
                     sorted.end());
    now.slow_step = sorted[at];
  }
  if (num_busy_ >= kBusySteps)
    now.busy_step = std::accumulate(busy_.begin(), busy_.end(), 0.0) / kBusySteps;
  return now;
}

}  // namespace mtrain
