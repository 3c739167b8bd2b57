// Pictures of a simulated schedule. Stateless; thread-safe.
#pragma once
#include <string>

#include "mtrain/pipeline/simulate.h"

namespace mtrain {

/// One line per rank, all of the same width. The makespan takes `columns` columns. An action starts
/// with its letter and micro-batch and is filled with blanks; idle time is shown as dots, or as =
/// during a Gather, a Scatter or an R. Lower-case letters are actions of a rank's second,
/// fourth, … stage. The name of an action that is too short for it is truncated.
///   rank 0 |==F0F1..B0  F2B1  ..B2  |
MT_API std::string draw_text(const Simulated& run, int columns);
/// The same as an SVG image of that many pixels: blue forwards, green backwards, orange weight
/// gradients, grey transfers, paler for a rank's further stages; a narrow violet bar is a Gather,
/// which can overlap with others, the wait of a Scatter or an R, or a gather, an exchange or a
/// reduction of `steps` inside an action; a tooltip shows an action's name and times.
MT_API std::string draw_svg(const Simulated& run, int width, const InnerStepRules& steps = {});

}  // namespace mtrain
