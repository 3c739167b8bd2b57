#include "mtrain/dist/mesh_picture.h"

#include <algorithm>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"

namespace mtrain {
namespace {

struct Shown {  // an axis of size > 1
  const MeshLayout* layout;
  AxisSpec axis;
};

const char* what_it_splits(std::string_view axis) {
  struct Row {
    std::string_view axis;
    const char* what;
  };
  constexpr Row kRows[] = {{"pp", "the blocks of the model"},
                           {"dp", "the samples of a batch"},
                           {"cp", "the tokens of a sample"},
                           {"tp", "each weight"},
                           {"ep", "the experts"},
                           {"etp", "each weight of an expert"},
                           {"edp", "the tokens of each expert"}};
  for (const Row& row : kRows)
    if (row.axis == axis) return row.what;
  return "";
}

// The axes of all views, one per name, without those of size 1, whose names go to `whole`.
std::vector<Shown> shown_axes(std::span<const MeshLayout> views, std::vector<std::string>& whole) {
  MT_CHECK(!views.empty(), "no mesh to draw");
  std::vector<Shown> out;
  for (const MeshLayout& view : views) {
    MT_CHECK_EQ(view.num_ranks(), views[0].num_ranks());
    for (const AxisSpec& axis : view.axes()) {
      auto same = [&](const Shown& s) { return s.axis.name == axis.name; };
      if (axis.size > 1 && std::none_of(out.begin(), out.end(), same)) out.push_back({&view, axis});
      if (axis.size == 1 && std::find(whole.begin(), whole.end(), axis.name) == whole.end())
        whole.push_back(axis.name);
    }
  }
  return out;
}

int64_t num_nodes(int64_t ranks, int64_t per_node) { return (ranks + per_node - 1) / per_node; }

// The largest number of nodes that one group spans.
int64_t nodes_reached(const Shown& s, int64_t per_node) {
  int64_t most = 0;
  for (int64_t g = 0; g < s.layout->num_groups(s.axis.name); ++g) {
    int64_t count = 0, last = -1;
    for (int64_t rank : s.layout->group_ranks(s.axis.name, g))
      if (int64_t node = rank / per_node; node != last) ++count, last = node;
    most = std::max(most, count);
  }
  return most;
}

std::string ranks_text(const std::vector<int64_t>& ranks) {
  constexpr size_t kFirst = 7;
  std::vector<std::string> out;
  for (size_t i = 0; i < std::min(kFirst, ranks.size()); ++i) out.push_back(cat(ranks[i]));
  if (ranks.size() > kFirst + 1) out.push_back("..");
  if (ranks.size() > kFirst) out.push_back(cat(ranks.back()));
  return join(out, " ");
}

using Row = std::vector<std::string>;

// Columns are as wide as their widest entry; the last `text_columns` are left-aligned.
std::string table(const std::vector<Row>& rows, size_t text_columns) {
  std::vector<size_t> widths(rows[0].size());
  for (const Row& row : rows)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string out;
  for (const Row& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      std::string pad(widths[c] - row[c].size(), ' ');
      bool left = c == 0 || c + text_columns >= row.size();
      line += (c ? "  " : "") + (left ? row[c] + pad : pad + row[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string heading(std::span<const MeshLayout> views, const MeshPictureOptions& options) {
  int64_t ranks = views[0].num_ranks(), nodes = num_nodes(ranks, options.ranks_per_node);
  Row texts;
  for (const MeshLayout& view : views) texts.push_back(view.to_text());
  return cat(counted(ranks, "rank"), " on ", counted(nodes, "node"), " of ", options.ranks_per_node,
             ": ", join(texts, " = "));
}

std::string axis_table(const std::vector<Shown>& shown, int64_t per_node) {
  std::vector<Row> rows = {{"axis", "size", "groups", "nodes", "group of rank 0", "splits"}};
  for (const Shown& s : shown)
    rows.push_back({s.axis.name, cat(s.axis.size), cat(s.layout->num_groups(s.axis.name)),
                    cat(nodes_reached(s, per_node)),
                    ranks_text(s.layout->group(s.axis.name, 0).ranks),
                    what_it_splits(s.axis.name)});
  return table(rows, 2);
}

std::string rank_table(const std::vector<Shown>& shown, int64_t ranks,
                       const MeshPictureOptions& options) {
  std::vector<Row> rows = {{"rank", "node"}};
  for (const Shown& s : shown) rows[0].push_back(s.axis.name);
  for (int64_t rank = 0; rank < std::min(ranks, options.max_ranks); ++rank) {
    rows.push_back({cat(rank), cat(rank / options.ranks_per_node)});
    for (const Shown& s : shown)
      rows.back().push_back(cat(s.layout->coordinate(rank, s.axis.name)));
  }
  return table(rows, 0);
}

std::string more_ranks(int64_t ranks, const MeshPictureOptions& options) {
  int64_t more = ranks - options.max_ranks;
  return more > 0 ? cat("and ", counted(more, "more rank")) : "";
}

// Drawing. Units are pixels.
constexpr int64_t kCellWidth = 46, kCellHeight = 36, kGap = 2, kMargin = 16, kLine = 22,
                  kNodeLabel = 64;

std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text)
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

std::string label(int64_t x, int64_t y, int size, std::string_view text) {
  return cat("<text x=\"", x, "\" y=\"", y, "\" font-size=\"", size, "\">", escaped(text),
             "</text>\n");
}

// Adjacent numbers get distant hues (steps of the golden angle), and three strengths distinguish
// hues that repeat.
std::string colour(int64_t group) {
  constexpr int64_t kStrengths[] = {80, 68, 90};
  return cat("hsl(", group * 13751 / 100 % 360, ",70%,", kStrengths[group / 16 % 3], "%)");
}

std::string cell(const Shown& s, int64_t rank, int64_t x, int64_t y) {
  int64_t group = s.layout->group_number(s.axis.name, rank);
  return cat("<g><title>rank ", rank, ", group ", group, " of ", escaped(s.axis.name), ": ",
             ranks_text(s.layout->group_ranks(s.axis.name, group)), "</title><rect x=\"", x,
             "\" y=\"", y, "\" width=\"", kCellWidth - kGap, "\" height=\"", kCellHeight - kGap,
             "\" rx=\"4\" fill=\"", colour(group), "\"/>\n", label(x + 6, y + 15, 12, cat(rank)),
             label(x + 6, y + 28, 10, cat(s.axis.name, s.layout->coordinate(rank, s.axis.name))),
             "</g>\n");
}

std::string panel(const Shown& s, int64_t ranks, int64_t per_node, int64_t top) {
  const std::string& name = s.axis.name;
  std::string splits = what_it_splits(name);
  std::string out = label(kMargin, top + 14, 14,
                          cat(name, ": ", s.layout->num_groups(name), " groups of ", s.axis.size,
                              splits.empty() ? "" : ", splits " + splits));
  for (int64_t rank = 0; rank < ranks; ++rank) {
    int64_t x = kMargin + kNodeLabel + rank % per_node * kCellWidth;
    int64_t y = top + kLine + rank / per_node * kCellHeight;
    if (rank % per_node == 0) out += label(kMargin, y + 20, 12, cat("node ", rank / per_node));
    out += cell(s, rank, x, y);
  }
  return out;
}

}  // namespace

std::string mesh_text(std::span<const MeshLayout> views, const MeshPictureOptions& options) {
  Row whole;
  std::vector<Shown> shown = shown_axes(views, whole);
  int64_t ranks = views[0].num_ranks();
  std::string out = heading(views, options) + "\n";
  if (!whole.empty()) out += cat("not split: ", join(whole, ", "), "\n");
  if (shown.empty()) return out;
  out +=
      "\n" + axis_table(shown, options.ranks_per_node) + "\n" + rank_table(shown, ranks, options);
  if (std::string more = more_ranks(ranks, options); !more.empty()) out += more + "\n";
  return out;
}

std::string mesh_svg(std::span<const MeshLayout> views, const MeshPictureOptions& options) {
  Row whole;
  std::vector<Shown> shown = shown_axes(views, whole);
  int64_t ranks = std::min(views[0].num_ranks(), options.max_ranks),
          per_node = options.ranks_per_node;
  std::string title = heading(views, options), more = more_ranks(views[0].num_ranks(), options);
  int64_t panel_height = kLine + num_nodes(ranks, per_node) * kCellHeight + kMargin;
  int64_t top = kMargin + (more.empty() ? 1 : 2) * kLine,
          height = top + panel_height * static_cast<int64_t>(shown.size());
  constexpr int64_t kLetter = 8;  // approximate width of a letter
  int64_t width = std::max(2 * kMargin + kNodeLabel + std::min(ranks, per_node) * kCellWidth,
                           2 * kMargin + kLetter * static_cast<int64_t>(title.size()));
  std::string out =
      cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height,
          "\" viewBox=\"0 0 ", width, " ", height, "\" font-family=\"sans-serif\" fill=\"#222\">\n",
          "<rect width=\"", width, "\" height=\"", height, "\" fill=\"#fff\"/>\n",
          label(kMargin, kMargin + 14, 15, title));
  if (!more.empty()) out += label(kMargin, kMargin + kLine + 14, 12, more);
  for (const Shown& s : shown) {
    out += panel(s, ranks, per_node, top);
    top += panel_height;
  }
  return out + "</svg>\n";
}

}  // namespace mtrain
