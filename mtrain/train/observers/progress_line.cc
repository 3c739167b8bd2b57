#include "mtrain/train/observers/progress_line.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <vector>

#include "mtrain/base/text.h"

namespace mtrain {
namespace {

constexpr int kMinBar = 8, kMaxBar = 30;
constexpr const char* kDim = "\x1b[2m";
constexpr const char* kBarColor = "\x1b[36m";
constexpr const char* kReset = "\x1b[0m";

std::string fixed(double value, int digits) {
  std::array<char, 40> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*f", digits, value);
  return buffer.data();
}

std::string scientific(double value, int digits) {
  std::array<char, 40> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*e", digits, value);
  return buffer.data();
}

// "loss 1.2345": a name, dimmed if colour is used, and a value.
struct ProgressField {
  std::string name, value;
  int leaves = 0;  // order in which fields are dropped if the line is too long; 0: never
  int width() const {
    return static_cast<int>(name.size() + (name.empty() ? 0 : 1) + value.size()) + 2;
  }
  std::string text(bool color) const {
    if (name.empty()) return cat("  ", value);
    return color ? cat("  ", kDim, name, kReset, " ", value) : cat("  ", name, " ", value);
  }
};

std::string bar(double share, int cells, ProgressStyle style) {
  constexpr std::array<std::string_view, 8> kEighths = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  std::string full, rest;
  int eighths = static_cast<int>(share * cells * 8);
  int whole = style.blocks ? eighths / 8 : static_cast<int>(share * cells);
  for (int i = 0; i < whole; ++i) full += style.blocks ? "█" : "#";
  if (style.blocks && whole < cells) {
    full += kEighths[static_cast<size_t>(eighths % 8)];
    ++whole;
  }
  rest.assign(static_cast<size_t>(cells - whole), style.blocks ? ' ' : '-');
  std::string edge = style.blocks ? "" : "[", end = style.blocks ? "▏" : "]";
  return style.color ? cat(edge, kBarColor, full, rest, kReset, kDim, end, kReset)
                     : cat(edge, full, rest, end);
}

}  // namespace

std::string short_lr(double lr) { return scientific(lr, 1); }

std::string short_loss(double loss) {
  if (std::isnan(loss)) return "nan";
  if (std::isinf(loss)) return loss < 0 ? "-inf" : "inf";
  return std::abs(loss) < 1e6 ? fixed(loss, 4) : scientific(loss, 3);
}

std::string progress_line(const Progress& p, int columns, ProgressStyle style) {
  double share =
      p.total > 0 ? std::clamp(static_cast<double>(p.step) / static_cast<double>(p.total), 0.0, 1.0)
                  : 0.0;
  std::string percent = cat(std::floor(share * 100), "%");
  percent.insert(0, 4 - percent.size(), ' ');
  std::vector<ProgressField> fields = {
      {.value = cat(p.step, "/", p.total)},
      {.name = "loss", .value = short_loss(p.loss), .leaves = 4},
      {.name = "lr", .value = short_lr(p.lr), .leaves = 2},
      {.value = human_count(p.tokens_per_second) + " tokens/s", .leaves = 1},
      {.name = "ETA",
       .value = p.seconds_left < 0 ? "?" : human_seconds(p.seconds_left),
       .leaves = 3},
  };
  auto width = [&] {
    int sum = static_cast<int>(percent.size());
    for (const auto& field : fields) sum += field.width();
    return sum;
  };
  for (int rank = 1; rank <= 4 && width() > columns; ++rank)
    std::erase_if(fields, [&](const ProgressField& field) { return field.leaves == rank; });
  int edges = style.blocks ? 2 : 3;  // a blank before the bar, and its delimiters
  int cells = std::min(kMaxBar, columns - width() - edges);
  std::string out = percent;
  if (cells >= kMinBar) out += " " + bar(share, cells, style);
  for (const auto& field : fields) out += field.text(style.color);
  return width() > columns ? percent.substr(0, static_cast<size_t>(std::max(columns, 0))) : out;
}

}  // namespace mtrain
