// Sweeps: one run for each combination of values, in Hydra's form
// (https://hydra.cc/docs/advanced/override_grammar/extended/):
//   k=a,b   k=choice(a,b)   k=range(1,9,2)   group=glob(llama*)   k=interval(1e-5,1e-3)
//   k=tag(log,interval(…))
// and, ours, name=zip(model=choice(a,b), k=choice(1,2)): settings that step together.
// A recipe says them in its `sweep:` map, with the same texts; the command line wins for each key.
// Stateless functions over values.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/config/override.h"
#include "mtrain/config/report.h"
#include "mtrain/config/tree.h"

namespace mtrain {

/// One setting and the values it takes.
struct SweepAxis {
  std::string key;                  // as it is written, with its sign: "optimizer.lr", "+db"
  std::vector<std::string> values;  // each the right side of key=value; none for an interval
};

struct SweepInterval {
  double low = 0, high = 0;  // low <= value < high
  bool integer = false, log = false;
};

/// One dimension of a sweep.
struct SweepDimension {
  std::string name;             // the key, or the name of the zip
  std::vector<SweepAxis> axes;  // one; several for a zip, all of one length
  std::optional<SweepInterval> interval;
  bool ordered = false;  // a range: its values have an order and a distance
  std::vector<std::string> tags;
  OverrideText said;        // the whole of it
  Location where;           // of it, for messages
  size_t fixed_before = 0;  // how many of Sweep::fixed stand before it

  /// How many values; 0 for an interval.
  size_t size() const { return axes.empty() ? 0 : axes[0].values.size(); }
};

/// What the overrides of a sweep say.
struct Sweep {
  std::vector<OverrideText> fixed;  // for every trial, in order
  std::vector<SweepDimension> dimensions;

  bool has_interval() const;
  /// How many combinations; nothing when there is an interval or when the number does not fit 64
  /// bits.
  MT_API std::optional<uint64_t> trials() const;
};

struct SweepRequest {
  const Node* recipe = nullptr;         // Composition::sweep: the recipe's `sweep:` map, or null
  std::vector<OverrideText> overrides;  // of the command line
  /// The options of a config group, for glob().
  std::function<std::vector<std::string>(const std::string& group)> options_of;
};

/// The dimensions of a sweep; nothing when the report got an error.
MT_API std::optional<Sweep> read_sweep(const SweepRequest& request, Report& report);

/// The overrides of one combination, in the order in which they were said; the last dimension
/// varies fastest. REQUIRES: index < trials().
MT_API std::vector<OverrideText> sweep_trial(const Sweep& sweep, uint64_t index);
/// The overrides of a point: a value text for each axis of each dimension, in their order. For
/// samplers.
MT_API std::vector<OverrideText> sweep_point(const Sweep& sweep,
                                             const std::vector<std::vector<std::string>>& values);
/// All combinations. More than `limit`, or an interval, is an error of the report.
MT_API std::vector<std::vector<OverrideText>> expand(const Sweep& sweep, Report& report,
                                                     size_t limit = 10000);

}  // namespace mtrain
