#include "mtrain/dist/parallel_layout.h"

#include <algorithm>
#include <cctype>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"

namespace mtrain {
namespace {

constexpr std::string_view kAxisNames[] = {"tp", "cp", "ep", "dp", "pp"};

// The axes in the order text, innermost first; omitted axes come last.
std::vector<std::string> parse_order(std::string order) {
  std::transform(order.begin(), order.end(), order.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  std::vector<std::string> axes = split(order, '-');
  for (size_t i = 0; i < axes.size(); ++i) {
    bool known =
        std::find(std::begin(kAxisNames), std::end(kAxisNames), axes[i]) != std::end(kAxisNames);
    MT_USER_CHECK(known, ErrorClass::config,
                  cat("dist.order '", printable(order), "' names '", printable(axes[i]),
                      "', which is not an axis"),
                  "its axes: tp, cp, ep, dp, pp, the innermost first, with '-' between them");
    MT_USER_CHECK(std::find(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(i), axes[i]) ==
                      axes.begin() + static_cast<std::ptrdiff_t>(i),
                  ErrorClass::config, cat("dist.order '", order, "' names '", axes[i], "' twice"),
                  "");
  }
  return axes;
}

struct OrderedAxis {  // an axis: its name in `order`, its name in the mesh, its size
  std::string_view token;
  AxisSpec spec;
};

MeshLayout arrange(const std::vector<std::string>& order, const std::vector<OrderedAxis>& axes) {
  std::vector<AxisSpec> outermost_first;
  for (const OrderedAxis& axis : axes) {
    if (std::find(order.begin(), order.end(), axis.token) != order.end()) continue;
    MT_USER_CHECK(axis.spec.size == 1, ErrorClass::config,
                  cat("dist.order '", join(order, "-"), "' leaves out '", axis.token, "', but ",
                      axis.spec.name, " is ", axis.spec.size),
                  cat("put '", axis.token, "' where its ranks belong, e.g. tp-cp-ep-dp-pp"));
    outermost_first.push_back(axis.spec);
  }
  for (size_t i = order.size(); i-- > 0;)
    for (const OrderedAxis& axis : axes)
      if (axis.token == order[i]) outermost_first.push_back(axis.spec);
  return MeshLayout(std::move(outermost_first));
}

int64_t rest(int64_t world, std::initializer_list<AxisSpec> axes) {
  MeshLayout taken(axes);
  MT_USER_CHECK(world >= 1 && world % taken.num_ranks() == 0, ErrorClass::config,
                cat(counted(world, "rank"), " cannot be divided into groups of ", taken.to_text(),
                    " = ", taken.num_ranks()),
                "choose sizes whose product divides the number of ranks");
  return world / taken.num_ranks();
}

}  // namespace

ParallelLayout parallel_layout(const RankGrid& g) {
  std::vector<std::string> order = parse_order(g.order);
  int64_t dp = rest(g.world_size, {{"tp", g.tp}, {"cp", g.cp}, {"pp", g.pp}});
  int64_t edp = rest(g.world_size, {{"etp", g.etp}, {"ep", g.ep}, {"pp", g.pp}});
  MeshLayout dense = arrange(
      order,
      {{"tp", {"tp", g.tp}}, {"cp", {"cp", g.cp}}, {"dp", {"dp", dp}}, {"pp", {"pp", g.pp}}});
  MeshLayout expert = arrange(
      order,
      {{"tp", {"etp", g.etp}}, {"ep", {"ep", g.ep}}, {"dp", {"edp", edp}}, {"pp", {"pp", g.pp}}});
  return {dense, dense.view(expert.axes())};
}

}  // namespace mtrain
