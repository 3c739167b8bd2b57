#include "mtrain/config/sweep.h"

#include <algorithm>
#include <set>

#include "mtrain/base/checked.h"
#include "mtrain/base/text.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

using Kind = SweepValue::Kind;

constexpr size_t kMaxValues = 200000;  // of one sweep, over all its dimensions

std::string signed_key(const Override& override) {
  const char* sign = override.kind == Override::Kind::add          ? "+"
                     : override.kind == Override::Kind::set_or_add ? "++"
                                                                   : "";
  return sign + override.key;
}

std::string without_sign(std::string_view key) {
  while (key.starts_with('+') || key.starts_with('~')) key.remove_prefix(1);
  return std::string(key);
}

std::vector<std::string> value_texts(const std::vector<Node>& values) {
  std::vector<std::string> out;
  for (const auto& value : values) out.push_back(override_value_text(value));
  return out;
}

/// "llama*", "?b", "[ab]*" as a shell matches names; linear in the text for each star.
bool glob_match(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
  auto one = [&](size_t& at, char c) {
    if (pattern[at] == '?') return ++at, true;
    size_t close = pattern[at] == '[' ? pattern.find(']', at + 2) : std::string_view::npos;
    if (close == std::string_view::npos) return pattern[at] == c ? (++at, true) : false;
    bool negate = pattern[at + 1] == '!', in = false;
    for (size_t i = at + 1 + (negate ? 1 : 0); i < close; ++i) {
      bool range = i + 2 < close && pattern[i + 1] == '-';
      in = in || (range ? pattern[i] <= c && c <= pattern[i + 2] : pattern[i] == c);
      if (range) i += 2;
    }
    if (in == negate) return false;
    return at = close + 1, true;
  };
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && one(p, name[n])) {
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

class SweepReader {
 public:
  SweepReader(const SweepRequest& request, Report& report) : request_(request), report_(report) {}

  std::optional<Sweep> read() {
    size_t errors = report_.errors();
    std::set<std::string> overridden;  // keys of the command line, which takes precedence
    std::vector<Override> given;
    for (const auto& text : request_.overrides) {
      auto override = parse_override(text, report_, true);
      if (!override) continue;
      if (!charge(*override)) return std::nullopt;
      overridden.insert(override->key);
      if (override->sweep)
        for (const auto& key : override->sweep->keys) overridden.insert(without_sign(key));
      given.push_back(std::move(*override));
      texts_.push_back(&text);
    }
    recipe(overridden);
    for (size_t i = 0; i < given.size(); ++i) take(*texts_[i], given[i]);
    check_keys();
    if (report_.errors() > errors) return std::nullopt;
    return std::move(out_);
  }

 private:
  void fault(const Override& override, const std::string& message, const std::string& help) {
    report_.error("sweep", override.key, override.where, message).fix(help);
  }

  void recipe(const std::set<std::string>& overridden) {
    if (!request_.recipe || request_.recipe->is_null()) return;
    if (!request_.recipe->is_map()) {
      report_
          .error("wrong-type", "sweep", request_.recipe->loc(),
                 "wanted a map of settings to their values")
          .fix("sweep: {optimizer.lr: 'choice(1e-3, 1e-4)'}");
      return;
    }
    for (const auto& entry : request_.recipe->entries()) {
      if (overridden.count(without_sign(entry.key))) continue;
      OverrideText text{entry.key + "=", 0, entry.value.loc(), false, {}};
      if (entry.value.is_map()) {
        report_
            .error("wrong-type", "sweep." + entry.key, entry.value.loc(),
                   "wanted values, got a map")
            .fix(cat("write each setting by its whole name: ", entry.key, ".KEY: choice(a, b)"));
        continue;
      }
      if (entry.value.is_list()) {  // a list means a choice of its items
        std::string values = join(value_texts(entry.value.items()), ",");
        text.text += cat("choice(", values, ")");
      } else {
        text.text += entry.value.as_text();
      }
      auto override = parse_override(text, report_, true);
      if (override && !charge(*override)) return;
      if (override) take(text, *override);
    }
  }

  void take(const OverrideText& text, const Override& override) {
    if (!override.sweep) {
      out_.fixed.push_back(text);
      return;
    }
    const SweepValue& value = *override.sweep;
    SweepDimension dimension;
    dimension.name = override.key;
    dimension.tags = value.tags;
    dimension.ordered = value.kind == Kind::range;
    dimension.definition = text;
    dimension.where = override.where;
    dimension.fixed_before = out_.fixed.size();
    if (value.kind == Kind::zip) {
      for (size_t i = 0; i < value.keys.size(); ++i)
        dimension.axes.push_back({value.keys[i], value_texts(value.members[i].values)});
    } else {
      dimension.axes.push_back({signed_key(override), {}});
      if (value.kind == Kind::interval)
        dimension.interval = interval_of(value);
      else if (value.kind == Kind::glob)
        dimension.axes[0].values = options(override);
      else
        dimension.axes[0].values = value_texts(value.values);
    }
    if (value.kind == Kind::zip && !are_keys(dimension)) return;
    out_.dimensions.push_back(std::move(dimension));
  }

  /// Counts the values of a sweep; false, with a fault reported, when there are too many.
  bool charge(const Override& override) {
    if (!override.sweep) return true;
    values_ += override.sweep->values.size();
    for (const auto& member : override.sweep->members) values_ += member.values.size();
    if (values_ <= kMaxValues) return true;
    fault(override, cat("the sweep has more than ", kMaxValues, " values"), "write larger steps");
    return false;
  }

  /// True when all members of a zip can be set; reports those that cannot.
  bool are_keys(const SweepDimension& dimension) {
    size_t errors = report_.errors();
    for (const auto& axis : dimension.axes) {
      OverrideText text = dimension.definition;
      text.text = axis.key + "=0";
      text.exact = false;
      (void)parse_override(text, report_);
    }
    return report_.errors() == errors;
  }

  static SweepInterval interval_of(const SweepValue& value) {
    bool integer = value.values[0].is(NodeKind::integer) && value.values[1].is(NodeKind::integer);
    return {value.values[0].as_double(), value.values[1].as_double(), integer, value.log};
  }

  /// The options of a group that match a glob.
  std::vector<std::string> options(const Override& override) {
    std::string group = override.key.substr(0, override.key.find('@'));
    std::vector<std::string> all, out;
    if (request_.options_of) all = request_.options_of(group);
    if (all.empty()) {
      fault(override, "glob() chooses options of a config group, but this is not one",
            cat("write ", override.key, "=choice(a, b)"));
      return {};
    }
    auto matches = [](const std::vector<std::string>& patterns, const std::string& name) {
      return std::any_of(patterns.begin(), patterns.end(),
                         [&](const std::string& pattern) { return glob_match(pattern, name); });
    };
    for (const auto& name : all)
      if (matches(override.sweep->include, name) && !matches(override.sweep->exclude, name))
        out.push_back(name);
    if (out.empty())
      fault(override, cat("no option of ", group, " matches"), "there are: " + join(all, ", "));
    return out;
  }

  /// A setting may vary in only one dimension.
  void check_keys() {
    std::set<std::string> seen;
    for (const auto& dimension : out_.dimensions)
      for (const auto& axis : dimension.axes) {
        if (seen.insert(without_sign(axis.key)).second) continue;
        report_.error("sweep", without_sign(axis.key), dimension.where, "varies twice")
            .fix("keep one of the two");
      }
  }

  const SweepRequest& request_;
  Report& report_;
  std::vector<const OverrideText*> texts_;
  size_t values_ = 0;  // of all dimensions
  Sweep out_;
};

}  // namespace

bool Sweep::has_interval() const {
  return std::any_of(dimensions.begin(), dimensions.end(), [](const SweepDimension& dimension) {
    return dimension.interval.has_value();
  });
}

std::optional<uint64_t> Sweep::trials() const {
  if (has_interval()) return std::nullopt;
  std::optional<uint64_t> out = 1;
  for (const auto& dimension : dimensions)
    if (out) out = checked_mul<uint64_t>(*out, dimension.size());
  return out;
}

std::optional<Sweep> read_sweep(const SweepRequest& request, Report& report) {
  return SweepReader(request, report).read();
}

std::vector<OverrideText> sweep_point(const Sweep& sweep,
                                      const std::vector<std::vector<std::string>>& values) {
  std::vector<OverrideText> out;
  size_t fixed = 0;
  for (size_t d = 0; d < sweep.dimensions.size(); ++d) {
    const SweepDimension& dimension = sweep.dimensions[d];
    for (; fixed < dimension.fixed_before; ++fixed) out.push_back(sweep.fixed[fixed]);
    for (size_t a = 0; a < dimension.axes.size(); ++a) {
      OverrideText text = dimension.definition;
      text.text = cat(dimension.axes[a].key, "=", values[d][a]);
      text.exact = false;  // the file contains the whole sweep, not this one value
      out.push_back(std::move(text));
    }
  }
  for (; fixed < sweep.fixed.size(); ++fixed) out.push_back(sweep.fixed[fixed]);
  return out;
}

std::vector<OverrideText> sweep_trial(const Sweep& sweep, uint64_t index) {
  std::vector<std::vector<std::string>> values(sweep.dimensions.size());
  for (size_t d = sweep.dimensions.size(); d-- > 0;) {
    const SweepDimension& dimension = sweep.dimensions[d];
    size_t step = index % dimension.size();
    index /= dimension.size();
    for (const auto& axis : dimension.axes) values[d].push_back(axis.values[step]);
  }
  return sweep_point(sweep, values);
}

std::vector<std::vector<OverrideText>> expand(const Sweep& sweep, Report& report, size_t limit) {
  for (const auto& dimension : sweep.dimensions) {
    if (!dimension.interval) continue;
    report
        .error("sweep", dimension.name, dimension.where, "an interval has no finite list of values")
        .fix("write choice(…) or range(…): sampling from an interval is not built");
    return {};
  }
  auto trials = sweep.trials();
  if (!trials || *trials > limit) {
    report
        .error("sweep", "", {},
               cat("the sweep has ", trials ? std::to_string(*trials) : "too many", " trials"))
        .fix(cat("the limit is ", limit));
    return {};
  }
  std::vector<std::vector<OverrideText>> out;
  for (uint64_t i = 0; i < *trials; ++i) out.push_back(sweep_trial(sweep, i));
  return out;
}

}  // namespace mtrain
