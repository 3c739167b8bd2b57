// Timing for the benchmark programs: the median of repeated runs after a warm-up.
#pragma once
#include <algorithm>
#include <chrono>
#include <vector>

namespace mtrain::bench {

/// Median seconds of one call of f over about `budget` seconds, at least five calls.
template <class F>
double median_seconds(F&& f, double budget = 0.3) {
  using Clock = std::chrono::steady_clock;
  auto once = [&] {
    auto start = Clock::now();
    f();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  once();
  std::vector<double> times;
  for (double total = 0; total < budget || times.size() < 5;) {
    times.push_back(once());
    total += times.back();
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

}  // namespace mtrain::bench
