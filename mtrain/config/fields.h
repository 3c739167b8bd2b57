// Fields: describes the settings of a component. The bind() of a config struct defines its schema,
// defaults, documentation and reader:
//
//   struct AdamWConfig {
//     double lr = 3e-4;
//     void bind(Fields& f) { f("lr", lr, "peak learning rate").exclusive_min(0).example("3e-4"); }
//   };
//
// The default is the value of the variable when bind() is called. A Fields holds pointers into the
// struct to which it is bound and must not outlive it. For one thread at a time.
#pragma once
#include <concepts>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "mtrain/base/export.h"
#include "mtrain/config/merge.h"

namespace mtrain {

enum class FieldType : uint8_t {
  boolean,
  integer,
  number,
  string,
  integer_list,
  number_list,
  string_list,
  tree
};  // tree: any YAML
/// The effect of a changed value on a run that resumes.
enum class ResumeClass : uint8_t {
  safe,            // no effect
  start,           // is used only at the start of a run; the new value is ignored
  coming_steps,    // a list of steps: changes of future steps change the result
  changes_result,  // the result changes
  data,            // refused if it changes the samples or their order, by Dataset::identity()
  impossible       // refused
};

/// A size of a model that mtrain uses itself: for pipeline stages, tensor-parallel groups and
/// rules. The setting may have any name; bind() declares it: f("blocks", blocks,
/// "…").fact(Fact::layers). Only for integer settings.
enum class Fact : uint8_t {
  none,
  layers,           // blocks of the decoder or encoder
  hidden_size,      // width of the residual stream
  heads,            // query heads
  kv_heads,         // key/value heads; 0: as many as query heads
  head_dim,         // width of a head; 0: hidden_size / heads
  ffn_hidden_size,  // width of the MLP; 0: the model derives it
  experts,          // experts of a block; 0: none
  mtp_layers        // blocks of multi-token prediction after the last one
};

/// The description of one setting as data, for `check`, the JSON Schema, the docs and completion.
/// Serialisable (schema.h).
struct FieldSpec {
  std::string path;  // dotted, relative to the component: "rope.theta"
  FieldType type = FieldType::string;
  std::string doc, unit, example;
  std::string
      default_value;  // as YAML flow text; empty if the setting is required or has no default
  std::optional<double> min, max;
  bool exclusive_min = false, exclusive_max = false;
  std::vector<std::string> choices;       // allowed texts; empty: any
  std::vector<std::string> renamed_from;  // older or foreign names, accepted with a warning
  std::string derived;                    // an expression: the value is computed and cannot be set
  std::string share_of;     // the setting to which a percentage such as 5% refers: "train.steps"
  std::string alternative;  // an alternative setting of the same section
  MergeRule merge;          // how later files change a list or tree
  std::string plugin_kind;  // the value names a plugin of this kind
  std::string needs;        // the missing feature that the setting needs, in words; usually empty
  std::vector<std::string> needs_values;  // the values that need it; empty: all except the default
  int64_t list_size = -1;                 // exact length of a list; -1: any
  int bits = 64;                          // size of the bound variable: 32 for int and float
  bool required = false, nullable = false, secret = false;
  bool input_path =
      false;  // names files to read; the base of a relative path depends on where it is written
  bool training_only = false;  // of a model: acts while training, so that exports leave it out
  ResumeClass resume = ResumeClass::changes_result;
  Fact fact = Fact::none;  // the size that it publishes
};

/// The settings of one component.
struct Schema {
  std::string name, doc;
  std::vector<FieldSpec> fields;
  std::string
      needs;  // the missing feature without which the component cannot be used; usually empty
  /// The training objective of a model or dataset; see Fields::objective().
  std::string objective = {};
  /// A communicator that exchanges device memory; see Fields::device_memory().
  bool device_memory = false;
  /// A model that uses the results of its norms again; see Fields::reuses_norm_outputs().
  bool reuses_norm_outputs = false;
  /// `needs` is implemented, but was left out when this mtrain was built.
  bool left_out = false;
};

class Node;  // tree.h: a node of a parsed recipe

/// The largest width, length or count of a model or batch: indices of tokens, positions and
/// vocabularies have 32 bits.
inline constexpr double kLargestDimension = 2147483647;
/// The largest number of blocks of a model.
inline constexpr double kMostLayers = 65536;

/// A pointer to the bound variable. An empty optional means null.
using FieldTarget =
    std::variant<bool*, int64_t*, int*, double*, float*, std::string*, std::vector<int64_t>*,
                 std::vector<double>*, std::vector<std::string>*, std::optional<int64_t>*,
                 std::optional<double>*, std::optional<std::string>*, Node*>;

struct MT_API Field {
  FieldSpec spec;
  FieldTarget target;

  Field& min(double value) { return spec.min = value, *this; }
  Field& max(double value) { return spec.max = value, *this; }
  Field& exclusive_min(double value) { return spec.min = value, spec.exclusive_min = true, *this; }
  Field& exclusive_max(double value) { return spec.max = value, spec.exclusive_max = true, *this; }
  Field& one_of(std::vector<std::string> choices) {
    return spec.choices = std::move(choices), *this;
  }
  Field& renamed_from(std::vector<std::string> names) {
    return spec.renamed_from = std::move(names), *this;
  }
  Field& unit(std::string text) { return spec.unit = std::move(text), *this; }
  Field& example(std::string text) { return spec.example = std::move(text), *this; }
  Field& plugin(std::string kind) { return spec.plugin_kind = std::move(kind), *this; }
  /// Known and checked, but not implemented: a recipe that sets it (to one of `values`, or to any
  /// value except the default) is refused; the message names `part`, "mixture-of-experts layers".
  Field& needs(std::string part, std::vector<std::string> values = {}) {
    spec.needs = std::move(part), spec.needs_values = std::move(values);
    return *this;
  }
  /// Computed from other settings, "${data.seq_length}" or "${= 4 * ${.hidden_size}}". A recipe
  /// cannot set it; the error names the first of these settings.
  Field& derived(std::string expression) { return spec.derived = std::move(expression), *this; }
  /// For an integer: also accepts a percentage of another setting, given by its full path: "5%" of
  /// "train.steps".
  Field& or_share_of(std::string path) { return spec.share_of = std::move(path), *this; }
  /// Declares an alternative in the same section. A recipe sets one of the two; if merged files set
  /// both, the later one wins, and the other one has no value. Both must name each other.
  Field& alternative(std::string path) { return spec.alternative = std::move(path), *this; }
  /// A later file's list is appended to the earlier one's.
  Field& merge_append() { return spec.merge = {MergeKind::append, ""}, *this; }
  /// Items of a later file's list are merged into the earlier items with the same `key`.
  Field& merge_by(std::string key) {
    return spec.merge = {MergeKind::by_key, std::move(key)}, *this;
  }
  /// A later file's map replaces the earlier one's.
  Field& merge_replace() { return spec.merge = {MergeKind::replace, ""}, *this; }
  Field& size(int64_t count) { return spec.list_size = count, *this; }
  /// Has no default: the recipe must set it.
  Field& required() { return spec.required = true, spec.default_value.clear(), *this; }
  /// For a setting with an alternative: it has no value unless it is set.
  Field& no_default() { return spec.default_value.clear(), *this; }
  Field& secret() { return spec.secret = true, *this; }
  /// One or several paths of files to read; see mtrain/recipe/input_paths.h.
  Field& input_path() { return spec.input_path = true, *this; }
  /// Of a model: the setting acts while training and not on what trained weights compute, so that
  /// exported folders do without it.
  Field& training_only() { return spec.training_only = true, *this; }
  Field& resume(ResumeClass value) { return spec.resume = value, *this; }
  /// Publishes the value as a size of the model.
  Field& fact(Fact value) { return spec.fact = value, *this; }
};

class MT_API Fields {
 public:
  /// Declares a setting bound to `value`.
  template <class T>
  Field& operator()(std::string_view name, T& value, std::string_view doc) {
    return declare(name, FieldTarget(&value), doc);
  }
  /// Declares a nested section whose struct has its own bind().
  template <class S>
  void section(std::string_view name, S& nested) {
    std::string before = prefix_;
    prefix_ += std::string(name) + ".";
    nested.bind(*this);
    prefix_ = std::move(before);
  }

  /// The training objective of a model or dataset, such as "masked token". Model and dataset of a
  /// recipe must have the same one, which is checked before anything is built. Default: the next
  /// token. kAnyObjective matches every objective.
  void objective(std::string_view text) { objective_ = text; }
  const std::string& objective() const { return objective_; }
  static constexpr std::string_view kAnyObjective = "any";

  /// Declares a communicator that exchanges device memory. It is created on top of one for host
  /// memory (CommContext::host).
  void device_memory() { device_memory_ = true; }
  bool has_device_memory() const { return device_memory_; }

  /// Declares a model that adds the results of its norms to the residual stream. They are then not
  /// recomputed: recipes with model.recompute_modules=[layernorm] are refused.
  void reuses_norm_outputs() { reuses_norm_outputs_ = true; }
  bool has_reused_norm_outputs() const { return reuses_norm_outputs_; }

  /// The default class of the settings that are declared after this call.
  void resume(ResumeClass value) { resume_ = value; }

  std::deque<Field>& fields() { return fields_; }
  const std::deque<Field>& fields() const { return fields_; }

 private:
  Field& declare(std::string_view name, FieldTarget target, std::string_view doc);
  std::string prefix_, objective_;
  bool device_memory_ = false, reuses_norm_outputs_ = false;
  ResumeClass resume_ = ResumeClass::changes_result;
  std::deque<Field> fields_;  // a deque: references stay valid while more are declared
};

template <class C>
concept Bindable = requires(C c, Fields& f) {
  c.bind(f);
};

/// The schema of a config struct with its defaults.
template <Bindable C>
Schema schema_of(std::string name, std::string doc) {
  C config{};
  Fields fields;
  config.bind(fields);
  Schema schema{std::move(name),
                std::move(doc),
                {},
                {},
                fields.objective(),
                fields.has_device_memory(),
                fields.has_reused_norm_outputs()};
  for (auto& field : fields.fields()) schema.fields.push_back(field.spec);
  return schema;
}

/// Fills the bound variables from a section. Throws Error(config) that lists all faults with their
/// locations.
MT_API void read_fields(const Node& section, Fields& fields);

template <Bindable C>
C read_config(const Node& section) {
  C config{};
  Fields fields;
  config.bind(fields);
  read_fields(section, fields);
  return config;
}

}  // namespace mtrain
