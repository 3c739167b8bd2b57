// Pictures of a simulated schedule. Stateless; thread-safe.
#pragma once
#include <string>

#include "mtrain/pipeline/simulate.h"

namespace mtrain {

/// One line per rank, all of the same width. The makespan takes `columns` columns; an action starts
/// with its letter and its micro-batch and continues with blanks; idle time is dots. Lower-case
/// letters mean the second, fourth, … stage of a rank. Names that do not fit are truncated.
///   rank 0 |F0F1..B0  F2B1  ..B2  |
MT_API std::string draw_text(const Simulated& run, int columns);
/// The same as an SVG image `width` pixels wide: blue forwards, green backwards, orange weight
/// gradients, grey transfers, paler for further stages of a rank. A tooltip shows the name and
/// times of an action.
MT_API std::string draw_svg(const Simulated& run, int width);

}  // namespace mtrain
