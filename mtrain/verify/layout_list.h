// Lists the parallel layouts that are valid for a recipe on a number of ranks. Every combination of
// sizes, schedules and variants is checked against the rules of recipes, so the list needs no
// separate knowledge of valid combinations. Stateless functions; safe from any thread.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mtrain/plugin/plugin_host.h"

namespace mtrain {

/// One layout of ranks. The remaining factor is data parallel.
struct RankLayout {
  int64_t ranks = 1, tp = 1, pp = 1, vp = 1, cp = 1, ep = 1, etp = 1, zero = 0;
  bool sp = false;
  bool mtp_apart = false;          // model.mtp.standalone
  int64_t resident = 0;            // dist.resident_stages
  std::string schedule = "1f1b";   // dist.schedule
  std::string cp_comm = "p2p";     // dist.cp_comm of every block
  std::string recompute = "none";  // model.recompute; "distributed": full, with
                                   // model.recompute_distribute
  int64_t dp() const { return ranks / (tp * pp * cp); }
  /// The number of axes and choices that differ from those of one rank. The simplest failing layout
  /// is the most informative.
  int distance() const;
  bool operator==(const RankLayout&) const = default;
};

/// "tp2+sp pp2 zb_h1 dp2 zero1 recompute-full"; "one rank".
MT_API std::string text(const RankLayout& layout);
/// The settings that differ from those of one rank: {"dist.nproc=8", "dist.tp=2", …}.
MT_API std::vector<std::string> overrides(const RankLayout& layout);

/// Layouts that are refused for the same reason.
struct RefusedLayouts {
  std::string reason;  // "rule tp-divides-heads", "expert parallelism"
  std::string detail;  // the message for the first of them
  std::vector<RankLayout> layouts;
};

struct LayoutList {
  std::vector<RankLayout> valid;        // simple ones first
  std::vector<RefusedLayouts> refused;  // by rule
  std::vector<RefusedLayouts>
      not_built;  // valid, but they need a part that is not implemented or not in this build
  size_t candidates = 0;
};

/// Says which combinations are checked against the rules; called once for each, simple ones first.
/// The check takes about a millisecond, and large numbers of ranks have many thousands of
/// combinations.
using LayoutFilter = std::function<bool(const RankLayout&)>;

/// Tries every combination on exactly `ranks` ranks that passes the filter (null: all). Does not
/// vary choices without effect, e.g. a schedule without a pipeline. `recipe`: the text of a recipe
/// that is valid on one rank.
MT_API LayoutList list_layouts(const std::string& recipe, const PluginHost& plugins, int64_t ranks,
                               const LayoutFilter& filter = {});

/// A subset in which every two values of two different choices that occur together in `layouts`
/// still do. Greedy and deterministic.
MT_API std::vector<RankLayout> pairwise(const std::vector<RankLayout>& layouts);

}  // namespace mtrain
