// The live line: the progress of a run as text that fits in one terminal row. Pure functions; safe
// from any thread.
#pragma once
#include <cstdint>
#include <string>

namespace mtrain {

struct Progress {
  int64_t step = 0, total = 0;
  double loss = 0;  // smoothed, nats
  double lr = 0;
  double tokens_per_second = 0;  // smoothed
  double seconds_left = -1;      // negative: not known yet
};

struct ProgressStyle {
  bool color = false;
  bool blocks = false;  // Unicode block characters for the bar, not '#'
};

/// At most `columns` wide (escape sequences have no width). If space is short, the bar shrinks and
/// is then dropped; then the rate, the learning rate, the time left and the loss are dropped, in
/// this order.
std::string progress_line(const Progress& progress, int columns, ProgressStyle style);

/// "3.0e-04".
std::string short_lr(double lr);
/// A loss with four decimals, or nan, inf, -inf.
std::string short_loss(double loss);

}  // namespace mtrain
