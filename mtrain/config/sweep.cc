#include "mtrain/config/sweep.h"

#include <algorithm>
#include <map>
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

std::string without_prefixes(std::string_view key) {
  while (key.starts_with('+') || key.starts_with('~')) key.remove_prefix(1);
  return std::string(key);
}

std::vector<std::string> value_texts(const std::vector<Node>& values) {
  std::vector<std::string> out;
  for (const auto& value : values) out.push_back(override_value_text(value));
  return out;
}

/// A setting, then what contains it: "a.b[0]", "a.b", "a".
std::vector<std::string> levels(const std::string& setting) {
  std::vector<std::string> out = {setting};
  for (size_t at = setting.find_last_of(".[="); at != std::string::npos && at > 0;
       at = setting.find_last_of(".[=", at - 1))
    out.push_back(setting.substr(0, at));
  return out;
}

class SweepReader {
 public:
  SweepReader(const SweepRequest& request, Report& report) : request_(request), report_(report) {}

  std::optional<Sweep> read() {
    size_t errors = report_.errors();
    std::vector<Override> given;
    for (const auto& text : request_.overrides) {
      auto override = parse_override(text, report_, true);
      if (!override) continue;
      if (!charge(*override)) return std::nullopt;
      note_given(*override);
      given.push_back(std::move(*override));
      texts_.push_back(&text);
    }
    recipe();
    for (size_t i = 0; i < given.size(); ++i) take(*texts_[i], given[i]);
    check_fixed();
    check_varied();
    if (report_.errors() > errors) return std::nullopt;
    return std::move(out_);
  }

 private:
  void fault(const Override& override, const std::string& message, const std::string& help) {
    report_.error("sweep", override.key, override.where, message).fix(help);
  }

  /// The settings that `key=value` sets. A whole section without a value removes or sets the whole
  /// section; where it is a config group, only the choice of its option.
  std::vector<std::string> settings_of(const std::string& key, const Node* value) const {
    const bool empty = !value || value->is_null();
    const bool section = key.find_first_of(".[") == std::string::npos;
    if (empty && section && request_.options_of &&
        !request_.options_of(key.substr(0, key.find('@'))).empty())
      return {key + "="};
    return request_.settings_of ? request_.settings_of(key, value) : std::vector<std::string>{key};
  }

  /// The settings that several values of a key set.
  std::vector<std::string> settings_of(const std::string& key, const SweepValue& sweep) const {
    if (sweep.kind == Kind::glob) return {key + "="};
    std::set<std::string> out;
    bool plain = false;  // a value other than a map sets the setting of its path, as any other does
    for (const Node& value : sweep.values) {
      if (plain && !value.is_map()) continue;
      plain = plain || (!value.is_map() && key.find('.') != std::string::npos);
      for (auto& setting : settings_of(key, &value)) out.insert(std::move(setting));
    }
    return {out.begin(), out.end()};
  }

  std::vector<std::string> settings_of(const Override& override) const {
    if (override.sweep) return settings_of(override.key, *override.sweep);
    const bool value = override.value && override.kind != Override::Kind::remove;
    return settings_of(override.key, value ? &*override.value : nullptr);
  }

  /// Remembers what the command line sets, which takes precedence over the recipe's sweep.
  void note_given(const Override& override) {
    if (override.edit) return;  // it changes each value of the sweep
    auto add = [&](std::vector<std::string> settings) {
      for (auto& setting : settings) given_.insert(std::move(setting));
    };
    if (!override.sweep || override.sweep->kind != Kind::zip) return add(settings_of(override));
    given_zips_.insert(override.key);
    for (size_t i = 0; i < override.sweep->keys.size(); ++i)
      add(settings_of(without_prefixes(override.sweep->keys[i]), override.sweep->members[i]));
  }

  /// True when the command line sets all of these settings. The choice of an option that is a
  /// component ("optimizer=") is that of its type.
  bool is_given(const std::vector<std::string>& settings) const {
    auto is_type_too = [&](const std::string& setting) {
      const std::string type = cat(setting.substr(0, setting.size() - 1), ".type");
      return setting.ends_with('=') && std::ranges::find(settings, type) != settings.end();
    };
    return !settings.empty() && std::ranges::all_of(settings, [&](const std::string& setting) {
      if (is_type_too(setting)) return true;
      return std::ranges::any_of(levels(setting),
                                 [&](const std::string& level) { return given_.contains(level); });
    });
  }

  /// Removes from an entry of the recipe's sweep what the command line sets; false when nothing
  /// remains. The other settings of a zip still vary.
  bool drop_given(Override& override) const {
    if (!override.sweep || override.sweep->kind != Kind::zip)
      return !is_given(settings_of(override));
    if (given_zips_.contains(override.key)) return false;
    SweepValue& zip = *override.sweep;
    for (size_t i = zip.keys.size(); i-- > 0;) {
      if (!is_given(settings_of(without_prefixes(zip.keys[i]), zip.members[i]))) continue;
      zip.keys.erase(zip.keys.begin() + static_cast<std::ptrdiff_t>(i));
      zip.members.erase(zip.members.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return !zip.keys.empty();
  }

  void recipe() {
    if (!request_.recipe || request_.recipe->is_null()) return;
    if (!request_.recipe->is_map()) {
      report_
          .error("wrong-type", "sweep", request_.recipe->loc(),
                 "wanted a map of settings to their values")
          .fix("sweep: {optimizer.lr: 'choice(1e-3, 1e-4)'}");
      return;
    }
    for (const auto& entry : request_.recipe->entries()) {
      if (is_given(settings_of(without_prefixes(entry.key), nullptr))) continue;
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
      if (!override || !drop_given(*override)) continue;
      if (!charge(*override)) return;
      take(text, *override);
    }
  }

  void take(const OverrideText& text, const Override& override) {
    if (!override.sweep) {
      out_.fixed.push_back(text);
      out_.fixed_settings.push_back(override.edit ? std::vector<std::string>()
                                                  : settings_of(override));
      fixed_.push_back({override.key, override.where});
      return;
    }
    if (may_be_one_text(override)) return;
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
        dimension.axes.push_back({value.keys[i], value_texts(value.members[i].values),
                                  settings_of(without_prefixes(value.keys[i]), value.members[i])});
    } else {
      dimension.axes.push_back({signed_key(override), {}, settings_of(override)});
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

  /// True, with a fault reported, for dataset.split=90,10,0: it may be one text or three values.
  bool may_be_one_text(const Override& override) {
    const SweepValue& sweep = *override.sweep;
    const bool numbers = std::ranges::all_of(sweep.values, [](const Node& value) {
      return value.is(NodeKind::integer) || value.is(NodeKind::number);
    });
    if (!sweep.simple || !numbers || !request_.is_text || !request_.is_text(override.key))
      return false;
    const std::string values = join(value_texts(sweep.values), ",");
    fault(override, cat("'", visible(values, 60), "' may be one text or several values"),
          cat("for one text, write \"", signed_key(override), "='", values,
              "'\", where the shell removes the outer quotes; for several values, '",
              signed_key(override), "=choice(", values, ")'"));
    return true;
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

  /// Reports that `key` sets what `varies` varies. `also`: how it does that.
  void clash(const std::string& key, const Location& where, const std::string& varies,
             const SweepDimension& dimension, const char* same, const char* also) {
    auto& fault = report_.error(
        "sweep", key, where,
        key == varies ? same : cat("sets the same as ", varies, ", which varies", also));
    if (dimension.where.text() != where.text())
      fault.note(cat(varies, " varies at ", dimension.where.text()));
    fault.fix("keep one of the two");
  }

  /// After a setting varies, no override may set it to one value: the trials would not differ.
  void check_fixed() {
    std::map<std::string, size_t> last;  // the last override that sets each setting
    for (size_t i = 0; i < out_.fixed_settings.size(); ++i)
      for (const auto& setting : out_.fixed_settings[i]) last[setting] = i;
    auto later = [&](const SweepAxis& axis, size_t before) -> const Given* {
      for (const auto& setting : axis.settings)
        for (const auto& level : levels(setting))
          if (auto found = last.find(level); found != last.end() && found->second >= before)
            return &fixed_[found->second];
      return nullptr;
    };
    for (const auto& dimension : out_.dimensions)
      for (const auto& axis : dimension.axes)
        if (const Given* fixed = later(axis, dimension.fixed_before))
          clash(fixed->key, fixed->where, without_prefixes(axis.key), dimension,
                "varies, and is also set to one value", "");
  }

  /// A setting may vary in only one dimension, and no later dimension may replace what contains it.
  void check_varied() {
    struct Varied {
      size_t dimension;
      std::string key;
    };
    std::map<std::string, Varied> varied;
    auto first_of = [&](const SweepAxis& axis, size_t d) -> std::optional<Varied> {
      std::optional<Varied> out;
      for (const auto& setting : axis.settings) {
        auto [known, is_new] = varied.try_emplace(setting, Varied{d, without_prefixes(axis.key)});
        if (!is_new && !out) out = known->second;
      }
      return out;
    };
    auto later = [&](const SweepAxis& axis, size_t d) -> const Varied* {
      for (const auto& setting : axis.settings)
        for (const auto& level : levels(setting))
          if (auto found = varied.find(level);
              level != setting && found != varied.end() && found->second.dimension > d)
            return &found->second;
      return nullptr;
    };
    const auto& all = out_.dimensions;
    for (size_t d = 0; d < all.size(); ++d)
      for (const auto& axis : all[d].axes)
        if (auto other = first_of(axis, d))
          clash(without_prefixes(axis.key), all[d].where, other->key, all[other->dimension],
                "varies twice", ", too");
    for (size_t d = 0; d < all.size(); ++d)
      for (const auto& axis : all[d].axes)
        if (const Varied* other = later(axis, d))
          clash(other->key, all[other->dimension].where, without_prefixes(axis.key), all[d],
                "varies twice", ", too");
  }

  /// An override with one value.
  struct Given {
    std::string key;
    Location where;
  };

  const SweepRequest& request_;
  Report& report_;
  std::vector<const OverrideText*> texts_;
  std::set<std::string> given_, given_zips_;  // settings and zips of the command line
  std::vector<Given> fixed_;                  // those of Sweep::fixed
  size_t values_ = 0;                         // of all dimensions
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

std::vector<std::vector<std::string>> sweep_values(const Sweep& sweep, uint64_t index) {
  std::vector<std::vector<std::string>> values(sweep.dimensions.size());
  for (size_t d = sweep.dimensions.size(); d-- > 0;) {
    const SweepDimension& dimension = sweep.dimensions[d];
    size_t step = index % dimension.size();
    index /= dimension.size();
    for (const auto& axis : dimension.axes) values[d].push_back(axis.values[step]);
  }
  return values;
}

std::vector<OverrideText> sweep_trial(const Sweep& sweep, uint64_t index) {
  return sweep_point(sweep, sweep_values(sweep, index));
}

std::vector<std::vector<OverrideText>> expand(const Sweep& sweep, Report& report, size_t limit) {
  for (const auto& dimension : sweep.dimensions) {
    if (!dimension.interval) continue;
    report
        .error("sweep", dimension.name, dimension.where, "an interval has no finite list of values")
        .fix("write choice(…) or range(…): sampling from an interval is not implemented");
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
