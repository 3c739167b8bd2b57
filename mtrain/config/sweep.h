// Sweeps: one run for each combination of values, in Hydra's grammar
// (https://hydra.cc/docs/advanced/override_grammar/extended/):
//   k=a,b   k=choice(a,b)   k=range(1,9,2)   group=glob(llama*)   k=interval(1e-5,1e-3)
//   k=tag(log,interval(…))
// mtrain adds name=zip(model=choice(a,b), k=choice(1,2)): settings that vary together. A recipe has
// sweeps in its `sweep:` map, in the same notation; for each setting the command line wins.
// Stateless functions over values; safe from any thread.
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

/// One setting and its values.
struct SweepAxis {
  std::string key;                  // as written, with its sign: "optimizer.lr", "+db"
  std::vector<std::string> values;  // each is the right side of key=value; empty for an interval
  std::vector<std::string> settings = {};  // what these values set; see SweepRequest::settings_of
};

struct SweepInterval {
  double low = 0, high = 0;  // low <= value < high
  bool integer = false, log = false;
};

/// One dimension of a sweep.
struct SweepDimension {
  std::string name;             // the key, or the name of the zip
  std::vector<SweepAxis> axes;  // one; several of equal length for a zip
  std::optional<SweepInterval> interval;
  bool ordered = false;  // true for a range, whose values have an order and a distance
  std::vector<std::string> tags;
  OverrideText definition;  // the override that defines the dimension
  Location where;           // its location, for messages
  size_t fixed_before = 0;  // how many of Sweep::fixed precede it

  /// The number of values; 0 for an interval.
  size_t size() const { return axes.empty() ? 0 : axes[0].values.size(); }
};

/// A sweep: its fixed overrides and its dimensions.
struct Sweep {
  std::vector<OverrideText> fixed;                       // for every trial, in order
  std::vector<std::vector<std::string>> fixed_settings;  // what each sets; empty for list edits
  std::vector<SweepDimension> dimensions;

  bool has_interval() const;
  /// The number of combinations; nothing when there is an interval or the number exceeds 64 bits.
  MT_API std::optional<uint64_t> trials() const;
};

struct SweepRequest {
  const Node* recipe = nullptr;         // Composition::sweep: the recipe's `sweep:` map, or null
  std::vector<OverrideText> overrides;  // of the command line
  /// The options of a config group, for glob().
  std::function<std::vector<std::string>(const std::string& group)> options_of;
  /// The settings that `key=value` sets, whatever names it uses: settings_of() of
  /// override_settings.h. `value` is null for ~key. Without this function, each key is a setting.
  std::function<std::vector<std::string>(const std::string& key, const Node* value)> settings_of;
  /// True for a setting that is a free text: is_text_setting() of text_settings.h. Its value may
  /// contain commas itself.
  std::function<bool(const std::string& key)> is_text;
};

/// Reads the dimensions of a sweep. For each setting the command line replaces the recipe's sweep.
/// A setting that varies twice, or that a later override sets to one value, is an error, and so are
/// numbers separated by commas for a text, which may be one value. On failure, reports an error and
/// returns nothing.
MT_API std::optional<Sweep> read_sweep(const SweepRequest& request, Report& report);

/// The values of one combination: one for each axis of each dimension, in their order.
/// REQUIRES: index < trials().
MT_API std::vector<std::vector<std::string>> sweep_values(const Sweep& sweep, uint64_t index);
/// The overrides of one combination, in the order of writing; the last dimension varies fastest.
/// REQUIRES: index < trials().
MT_API std::vector<OverrideText> sweep_trial(const Sweep& sweep, uint64_t index);
/// The overrides of a point: one value for each axis of each dimension, in their order. For
/// samplers.
MT_API std::vector<OverrideText> sweep_point(const Sweep& sweep,
                                             const std::vector<std::vector<std::string>>& values);
/// All combinations. Reports an error when there are more than `limit`, or for an interval.
MT_API std::vector<std::vector<OverrideText>> expand(const Sweep& sweep, Report& report,
                                                     size_t limit = 10000);

}  // namespace mtrain
