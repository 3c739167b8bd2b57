#include "mtrain/pipeline/picture.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iomanip>
#include <set>
#include <sstream>

#include "mtrain/base/error.h"
#include "mtrain/pipeline/schedule_check.h"

namespace mtrain {
namespace {

/// The index of each stage among its rank's stages, starting with 0.
std::vector<int> chunks_of(const Simulated& run) {
  std::vector<int> out;
  for (const auto& spans : run.timeline) {
    std::set<int16_t> stages;
    for (const TimedAction& span : spans) stages.insert(span.action.stage);
    int chunk = 0;
    for (int16_t stage : stages) {
      if (out.size() <= static_cast<size_t>(stage)) out.resize(static_cast<size_t>(stage) + 1);
      out[static_cast<size_t>(stage)] = chunk++;
    }
  }
  return out;
}

char letter(ActionKind what, int chunk) {
  char c = what == ActionKind::forward ? 'F' : what == ActionKind::backward ? 'B' : 'W';
  return chunk % 2 ? static_cast<char>(std::tolower(c)) : c;
}

/// Drawn as a narrow bar, or as = where nothing is computed.
bool is_narrow(ActionKind what) { return is_collective(what) || what == ActionKind::reduce; }

const char* colour(ActionKind what, int chunk) {
  static constexpr const char* kColours[3][2] = {
      {"#4c78d8", "#a9c1f2"}, {"#3f9b57", "#a3d9b1"}, {"#e08a2c", "#f3c793"}};
  if (is_narrow(what)) return "#8e6bbf";
  return is_compute(what) ? kColours[static_cast<size_t>(what)][chunk % 2] : "#b5b5b5";
}

constexpr int kLeft = 60, kRow = 24, kTop = 6, kBar = kRow - 4, kNarrow = 5;

/// A rectangle with a tooltip; the element is left open.
void draw_bar(std::ostringstream& out, const std::string& text, double start, double end,
              bool narrow, const char* fill, double scale, size_t row) {
  size_t y = kTop + row * kRow + (narrow ? kBar - kNarrow : 0);
  out << "<g><title>" << text << ", " << shortest(start) << " to " << shortest(end)
      << "</title><rect x=\"" << kLeft + start * scale << "\" y=\"" << y << "\" width=\""
      << (end - start) * scale << "\" height=\"" << (narrow ? kNarrow : kBar) << "\" fill=\""
      << fill << "\" stroke=\"#fff\" stroke-width=\"0.5\"/>";
}

void draw_span(std::ostringstream& out, const TimedAction& span, int chunk, double scale,
               size_t row) {
  double x = kLeft + span.start * scale, width = (span.end - span.start) * scale;
  draw_bar(out, to_text(span.action), span.start, span.end, is_narrow(span.action.what),
           colour(span.action.what, chunk), scale, row);
  std::string micro = std::to_string(span.action.micro);
  if (is_compute(span.action.what) && width >= 7.0 * static_cast<double>(micro.size()))
    out << "<text x=\"" << x + width / 2 << "\" y=\"" << kTop + row * kRow + 14
        << "\" text-anchor=\"middle\">" << micro << "</text>";
  out << "</g>\n";
}

}  // namespace

std::string draw_text(const Simulated& run, int columns) {
  MT_CHECK(columns >= 1, columns);
  std::vector<int> chunks = chunks_of(run);
  std::string out;
  size_t digits = std::to_string(std::max<size_t>(1, run.timeline.size()) - 1).size();
  for (size_t r = 0; r < run.timeline.size(); ++r) {
    std::string line(static_cast<size_t>(columns), '.');
    auto column = [&](double t) {
      return run.makespan > 0 ? static_cast<size_t>(std::lround(t / run.makespan * columns)) : 0;
    };
    for (const TimedAction& span : run.timeline[r])
      if (size_t begin = column(span.start); is_narrow(span.action.what))
        line.replace(begin, column(span.end) - begin, column(span.end) - begin, '=');
    for (const TimedAction& span : run.timeline[r]) {
      if (!is_compute(span.action.what)) continue;
      size_t begin = column(span.start), end = column(span.end);
      std::string text(1, letter(span.action.what, chunks[static_cast<size_t>(span.action.stage)]));
      text += std::to_string(span.action.micro);
      text.resize(end - begin, ' ');
      line.replace(begin, end - begin, text);
    }
    std::string number = std::to_string(r);
    out += "rank " + std::string(digits - number.size(), ' ') + number + " |" + line + "|\n";
  }
  return out;
}

std::string draw_svg(const Simulated& run, int width, const InnerStepRules& steps) {
  MT_CHECK(width > 2 * kLeft, width, " pixels");
  std::vector<int> chunks = chunks_of(run);
  double scale = run.makespan > 0 ? (width - kLeft - kTop) / run.makespan : 0;
  size_t height = 2 * kTop + run.timeline.size() * kRow;
  std::ostringstream out;
  out << std::fixed << std::setprecision(2) << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\""
      << width << "\" height=\"" << height << "\" font-family=\"sans-serif\" font-size=\"10\">\n";
  for (size_t r = 0; r < run.timeline.size(); ++r) {
    size_t y = kTop + r * kRow;
    out << "<text x=\"4\" y=\"" << y + 14 << "\">rank " << r << "</text><rect x=\"" << kLeft
        << "\" y=\"" << y << "\" width=\"" << run.makespan * scale << "\" height=\"" << kBar
        << "\" fill=\"#eee\"/>\n";
    for (bool collectives : {false, true})  // draw the narrow bars last, on top of the wide ones
      for (const TimedAction& span : run.timeline[r])
        if (span.end > span.start && is_narrow(span.action.what) == collectives)
          draw_span(out, span, chunks[static_cast<size_t>(span.action.stage)], scale, r);
    for (const TimedStep& done : run.collectives[r]) {
      if (done.end <= done.start) continue;
      const Action& action = run.timeline[r][done.action].action;
      draw_bar(out, cat(to_text(action), " ", to_text(done.step, action.stage, steps)), done.start,
               done.end, true, colour(ActionKind::gather_params, 0), scale, r);
      out << "</g>\n";
    }
  }
  out << "</svg>\n";
  return out.str();
}

}  // namespace mtrain
