// Pictures of a simulated schedule. Stateless; thread-safe.
#pragma once
#include <string>

#include "mtrain/pipeline/simulate.h"

namespace mtrain {

/// One line per rank, all of the same width: the makespan is `columns` wide, an action begins with
/// its letter and its micro-batch and goes on with blanks, idle time is dots, or = while a Gather
/// or a Scatter is under way. Small letters are those of a rank's second, fourth, … stage. What is
/// too short for its name is cut.
///   rank 0 |==F0F1..B0  F2B1  ..B2  |
MT_API std::string draw_text(const Simulated& run, int columns);
/// The same as an SVG image of that many pixels: blue forwards, green backwards, orange weight
/// gradients, grey transfers, paler for a rank's further stages; a narrow violet bar is a Gather or
/// a Scatter, which can overlap with others; pointing at an action tells its name and times.
MT_API std::string draw_svg(const Simulated& run, int width);

}  // namespace mtrain
