// The console shows the progress of a run. On a terminal, one line is redrawn in place (at most ten
// times a second) and everything else scrolls above it; otherwise a plain line is printed every few
// steps. Owns only a duplicate of its descriptor. For the trainer's thread. A closed output never
// affects the trainer.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "mtrain/base/export.h"
#include "mtrain/train/observer.h"

namespace mtrain {

enum class ConsoleMode { automatic, live, plain };

struct ConsoleOptions {
  int fd = 1;
  ConsoleMode mode = ConsoleMode::automatic;  // live when fd is a terminal that can move its cursor
  int64_t interval = 0;           // steps between plain lines; 0: about a hundred lines in the run
  int columns = 0;                // width of the live line; 0: the terminal's
  std::function<double()> clock;  // monotonic seconds; empty: the system's clock
};

/// Colour is used only on the live line, and not if NO_COLOR is set to a non-empty value.
MT_API std::unique_ptr<Observer> make_console(ConsoleOptions options);

/// Steps between plain lines so that a run of `total_steps` has about a hundred: 1, 2, 5, 10, 20,
/// 50, …
MT_API int64_t plain_interval(int64_t total_steps);

}  // namespace mtrain
