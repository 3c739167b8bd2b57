// Fields: how a component describes its settings. One bind() per config struct is its schema, its
// defaults, its documentation and its reader:
//
//   struct AdamWConfig {
//     double lr = 3e-4;
//     void bind(Fields& f) { f("lr", lr, "peak learning rate").exclusive_min(0).example("3e-4"); }
//   };
//
// The current value of the variable at bind time is the default. A Fields holds pointers into the
// struct it was bound to and must not outlive it. For one thread at a time.
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
/// What a changed value means for a run that resumes.
enum class ResumeClass : uint8_t {
  safe,            // nothing
  start,           // it counted when the run began, and is passed over
  coming_steps,    // of a list of steps, those that are still to come change the result
  changes_result,  // the result changes
  data,       // refused where the samples or their order change by it: Dataset::identity() says so
  impossible  // refused
};

/// A size of a model that mtrain itself computes with: the split into pipeline stages, groups of
/// tensor-parallel ranks, rules. The setting that holds it may have any name; bind() says which one
/// it is: f("blocks", blocks, "…").fact(Fact::layers). Only integer settings.
enum class Fact : uint8_t {
  none,
  layers,           // blocks of the decoder or encoder
  hidden_size,      // width of the residual stream
  heads,            // query heads
  kv_heads,         // key/value heads; 0: as many as query heads
  head_dim,         // width of a head; 0: hidden_size / heads
  ffn_hidden_size,  // width of the MLP; 0: the model derives it
  experts,          // experts of a block; 0: none
  mtp_layers        // blocks of multi-token prediction behind the last one
};

/// One setting, as data: what `check`, the JSON Schema, the docs and completion read. Serialisable
/// (schema.h).
struct FieldSpec {
  std::string path;  // dotted, relative to the component: "rope.theta"
  FieldType type = FieldType::string;
  std::string doc, unit, example;
  std::string default_value;  // as YAML flow text; empty when required, or where there is none
  std::optional<double> min, max;
  bool exclusive_min = false, exclusive_max = false;
  std::vector<std::string> choices;       // allowed texts; empty: any
  std::vector<std::string> renamed_from;  // older or foreign names, accepted with a warning
  std::string derived;                    // an expression: the value is computed and cannot be set
  std::string share_of;     // the setting of which a text such as 5% is a part: "train.steps"
  std::string alternative;  // the setting of the same section that says the same in another way
  MergeRule merge;          // how later files change a list or tree
  std::string plugin_kind;  // the value names a plugin of this kind
  std::string needs;        // the part of the program that is not built, in words; usually empty
  std::vector<std::string>
      needs_values;        // the texts that need it; empty: every value but the default
  int64_t list_size = -1;  // exact length of a list; -1: any
  int bits = 64;           // of the bound variable: 32 for int and float
  bool required = false, nullable = false, secret = false;
  bool input_path =
      false;  // names files to read: where a relative one starts depends on where it is written
  ResumeClass resume = ResumeClass::changes_result;
  Fact fact = Fact::none;  // that its value is
};

/// The settings of one component.
struct Schema {
  std::string name, doc;
  std::vector<FieldSpec> fields;
  std::string needs;  // the part without which the component cannot be used, when it is not built
  /// What a model learns, or the samples of a dataset are made for; see Fields::objective().
  std::string objective = {};
  /// Of a communicator: it exchanges device memory; see Fields::device_memory().
  bool device_memory = false;
};

class Node;  // tree.h: one place of a parsed recipe

/// The largest width, length or count of a model or batch: indices of tokens, positions and
/// vocabularies have 32 bits.
inline constexpr double kLargestDimension = 2147483647;
/// The most blocks of a model.
inline constexpr double kMostLayers = 65536;

/// Points at the bound variable. An optional is null when absent.
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
  /// Known and checked, but not built: a recipe that sets it (to one of `values`, or to anything
  /// but the default) is refused with the words of `part`, "mixture-of-experts layers".
  Field& needs(std::string part, std::vector<std::string> values = {}) {
    spec.needs = std::move(part), spec.needs_values = std::move(values);
    return *this;
  }
  /// Computed from other settings, "${data.seq_length}" or "${= 4 * ${.hidden_size}}": setting it
  /// is an error that names the first of them.
  Field& derived(std::string expression) { return spec.derived = std::move(expression), *this; }
  /// Of an integer: may also be said as a share of another setting, given as a whole path: "5%" of
  /// "train.steps".
  Field& or_share_of(std::string path) { return spec.share_of = std::move(path), *this; }
  /// This setting and another one of the section say the same in two ways: a recipe says one of
  /// them (of two that are laid over one another, the later counts), and the other one is not
  /// there. Both have to name each other.
  Field& alternative(std::string path) { return spec.alternative = std::move(path), *this; }
  /// A later file's list goes behind the earlier one's.
  Field& merge_append() { return spec.merge = {MergeKind::append, ""}, *this; }
  /// Items of a later file's list change those that agree in `key`.
  Field& merge_by(std::string key) {
    return spec.merge = {MergeKind::by_key, std::move(key)}, *this;
  }
  /// A later file's map takes the place of the earlier one's.
  Field& merge_replace() { return spec.merge = {MergeKind::replace, ""}, *this; }
  Field& size(int64_t count) { return spec.list_size = count, *this; }
  /// Has no default: the recipe must say it.
  Field& required() { return spec.required = true, spec.default_value.clear(), *this; }
  /// Of a setting with an alternative: where nobody says it there is no value.
  Field& no_default() { return spec.default_value.clear(), *this; }
  Field& secret() { return spec.secret = true, *this; }
  /// A path, or a list of them, of files to read; see mtrain/recipe/input_paths.h.
  Field& input_path() { return spec.input_path = true, *this; }
  Field& resume(ResumeClass value) { return spec.resume = value, *this; }
  /// Publishes the value as a size that mtrain computes with.
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

  /// Of a model or a dataset: what is learned, "masked token". A recipe's two must agree before
  /// anything is built. Not said: the next token; kAnyObjective: whatever the other is made for.
  void objective(std::string_view text) { objective_ = text; }
  const std::string& objective() const { return objective_; }
  static constexpr std::string_view kAnyObjective = "any";

  /// Of a communicator: it exchanges the memory of devices, and is made on top of one that
  /// exchanges the host's (CommContext::host).
  void device_memory() { device_memory_ = true; }
  bool has_device_memory() const { return device_memory_; }

  /// The class of the settings declared from here on that do not say their own.
  void resume(ResumeClass value) { resume_ = value; }

  std::deque<Field>& fields() { return fields_; }
  const std::deque<Field>& fields() const { return fields_; }

 private:
  Field& declare(std::string_view name, FieldTarget target, std::string_view doc);
  std::string prefix_, objective_;
  bool device_memory_ = false;
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
  Schema schema{std::move(name),           std::move(doc), {}, {}, fields.objective(),
                fields.has_device_memory()};
  for (auto& field : fields.fields()) schema.fields.push_back(field.spec);
  return schema;
}

/// Fills the bound variables from a section. Throws Error(config) that lists every fault, each with
/// its place.
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
