// Timing for the benchmark programs: the median of repeated runs after a warm-up.
#pragma once
#include <algorithm>
#include <chrono>
#include <vector>

namespace mtrain::bench {

/// Median seconds of one call of f, measured for about `budget` seconds and at least five times.
/// `wait` returns when all calls are complete: a device queues calls, so as many calls are timed
/// together as take at least `least` seconds, which makes the time of `wait` negligible.
template <class F, class Wait>
double median_seconds(F&& f, Wait&& wait, double least, double budget) {
  using Clock = std::chrono::steady_clock;
  int calls = 1;
  auto timed = [&] {
    auto start = Clock::now();
    for (int i = 0; i < calls; ++i) f();
    wait();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  timed();
  for (double seconds = timed(); seconds < least && calls < 4096; seconds = timed()) calls *= 2;
  std::vector<double> times;
  for (double total = 0; total < budget || times.size() < 5;) {
    double seconds = timed();
    total += seconds;
    times.push_back(seconds / calls);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

/// For calls that are complete when they return.
template <class F>
double median_seconds(F&& f, double budget = 0.3) {
  return median_seconds(
      f, [] {}, 0, budget);
}

}  // namespace mtrain::bench
