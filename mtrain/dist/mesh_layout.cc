#include "mtrain/dist/mesh_layout.h"

#include <algorithm>

#include "mtrain/base/error.h"

namespace mtrain {
namespace {

constexpr int64_t kMaxRanks = (int64_t{1} << 31) - 1;

std::string names_of(const std::vector<AxisSpec>& axes) {
  std::vector<std::string> names;
  for (const AxisSpec& axis : axes) names.push_back(axis.name);
  return names.empty() ? "none" : join(names, ", ");
}

}  // namespace

MeshLayout::MeshLayout(std::vector<AxisSpec> outermost_first) : axes_(std::move(outermost_first)) {
  strides_.resize(axes_.size());
  for (size_t i = axes_.size(); i-- > 0;) {
    const auto& [name, size] = axes_[i];
    MT_USER_CHECK(!name.empty(), ErrorClass::config, cat("axis ", i, " of the mesh has no name"),
                  "");
    MT_USER_CHECK(find(name) == i, ErrorClass::config, cat("the mesh has two axes '", name, "'"),
                  "give each axis a different name");
    MT_USER_CHECK(size >= 1, ErrorClass::config, cat("mesh axis '", name, "' has size ", size),
                  "an axis is at least 1 rank long");
    MT_USER_CHECK(
        size <= kMaxRanks / num_ranks_, ErrorClass::config,
        cat("mesh axis '", name, "' of size ", size, " makes more than ", kMaxRanks, " ranks"), "");
    strides_[i] = num_ranks_;
    num_ranks_ *= size;
  }
}

size_t MeshLayout::find(std::string_view axis) const {
  auto found =
      std::find_if(axes_.begin(), axes_.end(), [&](const AxisSpec& a) { return a.name == axis; });
  MT_USER_CHECK(found != axes_.end(), ErrorClass::config,
                cat("the mesh has no axis '", printable(axis), "'"),
                cat("its axes: ", names_of(axes_)));
  return static_cast<size_t>(found - axes_.begin());
}

bool MeshLayout::has(std::string_view axis) const {
  return std::any_of(axes_.begin(), axes_.end(), [&](const AxisSpec& a) { return a.name == axis; });
}

std::string MeshLayout::to_text() const {
  std::vector<std::string> parts;
  for (const auto& [name, size] : axes_) parts.push_back(cat(name, " ", size));
  return parts.empty() ? "1 rank" : join(parts, " x ");
}

void MeshLayout::check_rank(int64_t rank) const {
  MT_CHECK(rank >= 0 && rank < num_ranks_, "rank ", rank, " of ", num_ranks_);
}

std::vector<int64_t> MeshLayout::coordinates(int64_t rank) const {
  check_rank(rank);
  std::vector<int64_t> out(axes_.size());
  for (size_t i = 0; i < axes_.size(); ++i) out[i] = rank / strides_[i] % axes_[i].size;
  return out;
}

int64_t MeshLayout::coordinate(int64_t rank, std::string_view axis) const {
  check_rank(rank);
  size_t i = find(axis);
  return rank / strides_[i] % axes_[i].size;
}

int64_t MeshLayout::rank_at(std::span<const int64_t> coordinates) const {
  MT_CHECK_EQ(coordinates.size(), axes_.size());
  int64_t rank = 0;
  for (size_t i = 0; i < axes_.size(); ++i) {
    MT_CHECK(coordinates[i] >= 0 && coordinates[i] < axes_[i].size, axes_[i].name, " ",
             coordinates[i], " of ", axes_[i].size);
    rank += coordinates[i] * strides_[i];
  }
  return rank;
}

int64_t MeshLayout::stride(std::string_view axis) const { return strides_[find(axis)]; }

// Groups. A rank's number has one digit per axis. The digits of the selected axes number the ranks
// of a group; the others number the groups. Both keep the order of the axes, so packing is
// monotonic: ascending ranks have ascending indices, and groups are numbered by their smallest
// rank.

MeshLayout::Selection MeshLayout::select(const AxisNames& axes) const {
  std::vector<bool> chosen(axes_.size());
  for (const std::string& name : axes.names()) {
    size_t i = find(name);
    MT_USER_CHECK(!chosen[i], ErrorClass::config, cat("joint axis names '", name, "' twice"), "");
    chosen[i] = true;
  }
  Selection out;
  for (size_t i = axes_.size(); i-- > 0;)
    (chosen[i] ? out.inside : out.outside).push_back({axes_[i].size, strides_[i]});
  return out;
}

int64_t MeshLayout::product(const std::vector<Digit>& digits) {
  int64_t out = 1;
  for (const Digit& d : digits) out *= d.size;
  return out;
}

// The number that is formed by the given digits of a rank.
int64_t MeshLayout::packed(const std::vector<Digit>& digits, int64_t rank) {
  int64_t out = 0, weight = 1;
  for (const Digit& d : digits) {
    out += rank / d.stride % d.size * weight;
    weight *= d.size;
  }
  return out;
}

// The inverse: the rank with these digits, and zeros elsewhere.
int64_t MeshLayout::spread(const std::vector<Digit>& digits, int64_t number) {
  int64_t out = 0;
  for (const Digit& d : digits) {
    out += number % d.size * d.stride;
    number /= d.size;
  }
  return out;
}

std::vector<int64_t> MeshLayout::members(const Selection& selection, int64_t first) {
  std::vector<int64_t> out(static_cast<size_t>(product(selection.inside)));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = first + spread(selection.inside, static_cast<int64_t>(i));
  return out;
}

int64_t MeshLayout::size(const AxisNames& axes) const { return product(select(axes).inside); }

int64_t MeshLayout::group_number(const AxisNames& axes, int64_t rank) const {
  check_rank(rank);
  return packed(select(axes).outside, rank);
}

int64_t MeshLayout::index_in_group(const AxisNames& axes, int64_t rank) const {
  check_rank(rank);
  return packed(select(axes).inside, rank);
}

RankGroup MeshLayout::group(const AxisNames& axes, int64_t rank) const {
  check_rank(rank);
  Selection selection = select(axes);
  int64_t index = packed(selection.inside, rank);
  return {members(selection, rank - spread(selection.inside, index)), index};
}

std::vector<int64_t> MeshLayout::group_ranks(const AxisNames& axes, int64_t number) const {
  Selection selection = select(axes);
  int64_t count = product(selection.outside);
  MT_CHECK(number >= 0 && number < count, "group ", number, " of ", count);
  return members(selection, spread(selection.outside, number));
}

std::vector<std::vector<int64_t>> MeshLayout::groups(const AxisNames& axes) const {
  Selection selection = select(axes);
  std::vector<std::vector<int64_t>> out(static_cast<size_t>(product(selection.outside)));
  for (size_t g = 0; g < out.size(); ++g)
    out[g] = members(selection, spread(selection.outside, static_cast<int64_t>(g)));
  return out;
}

MeshLayout MeshLayout::view(std::vector<AxisSpec> outermost_first) const {
  MeshLayout other(std::move(outermost_first));
  MT_USER_CHECK(other.num_ranks_ == num_ranks_, ErrorClass::config,
                cat("the view ", other.to_text(), " has ", other.num_ranks_,
                    " ranks, but the mesh ", to_text(), " has ", num_ranks_),
                cat("choose axes whose sizes have the product ", num_ranks_));
  for (const auto& [name, size] : other.axes_) {
    if (!has(name)) continue;
    int64_t wanted = axes_[find(name)].size;
    // Along an axis of size 1 every rank is alone, so its stride is irrelevant.
    bool alike = size == wanted && (size == 1 || stride(name) == other.stride(name));
    MT_USER_CHECK(
        alike, ErrorClass::config,
        cat("axis '", name, "' would not group the same ranks in both views: ", wanted, " ranks ",
            stride(name), " apart in ", to_text(), ", ", size, " ranks ", other.stride(name),
            " apart in ", other.to_text()),
        cat("make '", name, "' the outermost axis, or the axes inside it equally large in both"));
  }
  return other;
}

MeshLayout MeshLayout::split(std::string_view axis, std::vector<AxisSpec> outermost_first) const {
  size_t at = find(axis);
  int64_t parts = MeshLayout(outermost_first).num_ranks();
  MT_USER_CHECK(parts == axes_[at].size, ErrorClass::config,
                cat("axis '", axis, "' of size ", axes_[at].size, " cannot be divided into ",
                    MeshLayout(outermost_first).to_text(), " = ", parts),
                cat("the product of the sizes must be ", axes_[at].size));
  std::vector<AxisSpec> axes(axes_.begin(), axes_.begin() + static_cast<std::ptrdiff_t>(at));
  axes.insert(axes.end(), outermost_first.begin(), outermost_first.end());
  axes.insert(axes.end(), axes_.begin() + static_cast<std::ptrdiff_t>(at) + 1, axes_.end());
  return MeshLayout(std::move(axes));
}

}  // namespace mtrain
