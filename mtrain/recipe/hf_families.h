// Families of Hugging Face models, as data: what each key of config.json means for a model plugin,
// and which tensors hold which parameters. A family is a file
// <plugin folder>/model_<plugin>.families/<model_type>.yaml next to the plugin's .so; plugin code
// is not needed to read it. docs/hugging-face.md describes the format. Import, export, check
// and `mtrain families` work from it. Values, immutable once read; safe from any thread.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mtrain/base/export.h"
#include "mtrain/base/file.h"
#include "mtrain/config/report.h"
#include "mtrain/config/schema.h"
#include "mtrain/config/tree.h"

namespace mtrain {

/// How a key of config.json is treated. A null value counts as absent.
enum class HfKeyRule : uint8_t {
  setting,     // is a setting of the model
  harmless,    // does not change the model's function: any value is accepted
  only,        // changes the function: only the values in `accepted` are supported
  dropout,     // a dropout: `setting` if the plugin has it, else a warning unless it is 0 or equals
               // the key `same_as`
  window,      // an attention window: `setting` if it is implemented, else accepted if no sequence
               // is longer
  layer_types  // the kind of attention of each block, a list of names: `blocks` if it differs
};

/// How a setting follows from the number in config.json.
enum class HfForm : uint8_t { same, inverse, inverse_root };

/// A constant, or computed from the value of another key: factor * `key` / `over` + plus, where
/// `over` is a third key or empty.
struct HfValue {
  Node value;
  std::string key, over = {};  // not empty: the value of this key
  int64_t factor = 1, plus = 0;
};

/// The rule for a key of config.json. In the comments, "theirs" is the value in config.json and
/// "ours" the value of mtrain's setting; "setting:" and so on name the HfKeyRule to which a member
/// applies.
struct HfKey {
  std::string name;               // "rms_norm_eps"; "rope.factor" in an object (HfObject)
  std::vector<std::string> also;  // further names under which it is read
  HfKeyRule rule = HfKeyRule::harmless;
  std::string setting;    // below model: "norm_eps"
  bool training = false;  // setting: used only in training, so the recipe's own value takes
                          // precedence
  /// setting: pairs of their value and ours that mean the same. If all of theirs are true or false,
  /// there are no others.
  std::vector<std::pair<Node, Node>> values;
  /// setting: theirs is a list for the blocks, the first word as often as ours says, then the
  /// second.
  std::vector<std::string> leading;
  bool closed = false;         // setting: there are no other values than these
  int64_t plus = 0;            // setting: theirs is ours plus this
  HfForm form = HfForm::same;  // setting: 1 / theirs, 1 / sqrt(theirs)
  bool whole = false;          // setting: theirs is a whole number
  std::string times;           // setting: theirs is ours times this expression of settings
  /// The key counts only if this other key, or its default, has this value.
  std::optional<std::pair<std::string, Node>> with;
  std::vector<Node> accepted;           // only
  std::optional<HfValue> accepted_too;  // only: a value that depends on another key
  std::string same_as;                  // dropout: a key
  std::string reason;                   // harmless: why; only: what the plugin supports, in words
  /// The value if config.json lacks the key: the default of transformers' config class. Absent: no
  /// default. layer_types: a number n means that every n-th block has no window, -n that the first
  /// of every n blocks has none.
  std::optional<HfValue> omitted;
  std::optional<HfValue> null;  // the value that a JSON null stands for; absent: as if omitted
  /// The key counts only if this setting has one of these values: then export writes it, and import
  /// uses its default or, without one, demands it.
  std::optional<std::pair<std::string, std::vector<Node>>> required;
  /// setting: theirs is a list with one value for each block. Export repeats the setting's list to
  /// that length; if the setting is empty, it writes this value for each block.
  std::optional<Node> each_block;
  std::string blocks;  // window, layer_types: the setting that says which blocks have the window
  std::string enabled_by;  // window: the key that must be true, or there is no window
  std::string from_block;  // window: the key with the number of leading blocks without a window;
                           // used only if config.json has no layer_types
  std::string
      interval;  // layer_types: the setting that becomes n if every n-th block has no window
  std::string positions;  // layer_types: the setting that lists the blocks with rotary positions:
                          // those with a window, or all if the key `positions_without` is null
  std::string positions_without;
  /// layer_types, each_block: export also reads this setting: every n-th block has no window, or a
  /// 0, where the setting for blocks is empty.
  std::string exported_interval;

  // The value that export writes.
  std::optional<Node> write;           // harmless, only: this value
  bool write_nothing = false;          // never written
  bool keep = false;                   // harmless: the value in the folder of model.init_from
  std::string write_setting;           // harmless: the value of this setting
  std::optional<Node> omit;            // not written if the setting has this value
  bool zero_omitted = false;           // not written if the setting is 0
  bool zero_null = false;              // null if the setting is 0
  bool zero_refused = false;           // theirs is never 0
  std::string zero_key, zero_setting;  // if the setting is 0: the value of this key or setting
  Location where;
};

/// Keys of an object of config.json. They are keys of the family by the name NAME.KEY.
struct HfObject {
  std::string name;                                    // "rope"
  std::vector<std::string> read;                       // "rope_parameters", "rope_scaling"
  std::string write;                                   // under which name export writes it
  std::optional<std::pair<std::string, Node>> unless;  // not written if this setting has this value
};

/// Settings and the values that they must have.
using HfConditions = std::vector<std::pair<std::string, Node>>;

/// Tensors by a pattern, in which {i} is a block and other letters are further numbers.
struct HfTensorRule {
  enum class Part : uint8_t { whole, queries, keys, values, all };  // all: of queries, keys, values
  std::string tensor;
  std::vector<std::string> parameters;  // ours; several: their rows one after the other
  Part part = Part::whole;
  bool transpose = false;   // the file stores [in, out]
  bool interleave = false;  // of several parameters: row 0 of each, then row 1 of each …
  bool stacked = false;     // of experts: one tensor with all of them, [experts, rows, columns]
  bool flat = false;        // stacked: the tensor has two dimensions, [experts * rows, columns]
  bool vocabulary = false;  // a row for each id: export leaves out padding
  bool buffer = false;      // state without a gradient (nn/state_buffer.h), always written as fp32
  bool vector = false;      // of one row: the file's tensor has one dimension
  bool matrix = false;      // of one dimension: the file's tensor has two, and one row
  bool keys_last = false;   // Part::all: queries, then values, then keys
  int64_t groups = 1;       // Part::all: the layout repeats for this many groups of heads
  HfConditions when;
  std::string blocks;  // the name of a set of blocks; empty: all
  bool not_in_blocks = false;
  Location where;
};

/// A tensor that some files contain as a copy of another one, which must be equal.
struct HfCopy {
  std::string tensor, of;
  HfConditions when;
};

/// Every `every`-th block after the first `from` ones; both are settings.
struct HfBlocks {
  std::string name, from, every;
};

struct HfFamily {
  std::string model_type;
  std::vector<std::string> architectures;
  /// The architecture of the same model with a head of scores (nn/score_head.h), whose tensor is
  /// score.weight in place of those of the head; empty: there is none.
  std::string classification;
  /// The same with scores of each token, and the name of its head in place of "score"; empty: there
  /// is none.
  std::string token_classification, token_head;
  std::string plugin;        // the model plugin
  std::string needs;         // set if the family is only a placeholder: the missing feature
  std::string compared;      // with which other implementation its results were compared, and where
  bool last_choice = false;  // export chooses it, unless it is named, only if no other fits
  HfConditions settings;     // settings that all models of the family have
  /// What a setting of 0 stands for, as an expression of settings: {"head_dim", "hidden_size //
  /// heads"}. A recipe may write the number instead.
  std::vector<std::pair<std::string, std::string>> zeros;
  std::vector<HfObject> objects;
  std::vector<HfKey> keys;
  std::map<std::string, std::string> indices;  // letter of a tensor's pattern to the setting that
                                               // says how many
  std::vector<HfBlocks> blocks;
  std::vector<std::string> training_settings;  // without effect on what the weights compute
  /// Settings that the folder cannot hold although the run computes with them, and a reason: export
  /// warns.
  std::vector<std::pair<std::string, std::string>> lost_settings;
  std::vector<HfTensorRule> tensors;
  std::vector<HfCopy> copies;
  std::vector<std::pair<std::string, std::string>> unused;          // pattern and reason
  std::vector<std::pair<std::string, std::string>> former_endings;  // of names: now and formerly
  fs::path file;

  /// The key of a name or of one of its further names; null: none.
  const HfKey* key(std::string_view name) const;
};

/// The feature without which the plugin cannot compute the family's models; empty: none. `schema`:
/// the plugin's settings; null: unknown, so the answer is that the plugin is missing.
MT_API std::string lacking_part(const HfFamily& family, const Schema* schema);

/// True for a setting that only training uses, so that a recipe may set it for any folder of the
/// family, and export need not write it.
MT_API bool is_training_setting(const HfFamily& family, const FieldSpec& spec);

class MT_API HfFamilies {
 public:
  /// The families in these folders of plugins. A file in an earlier folder replaces one of the same
  /// name. If a folder has the .so of a plugin, that plugin's files in later folders are not used.
  /// A file with faults is left out; find() of its family throws them, and faults() has all.
  static HfFamilies read(const std::vector<fs::path>& plugin_folders);

  const std::vector<HfFamily>& all() const { return families_; }
  /// Null for an unknown family. `architecture`: that of a head over the vocabulary or of one of
  /// scores. An empty text is not compared. Throws Error(plugin) if the family's file has faults.
  const HfFamily* find(std::string_view model_type, std::string_view architecture) const;
  /// The rule for a key: that of `family` (may be null), or else that of all families. Null if
  /// there is none.
  const HfKey* key(const HfFamily* family, std::string_view name) const;
  /// The keys of all families.
  const std::vector<HfKey>& common() const { return common_; }
  /// The families of a plugin, the one with its name first.
  std::vector<const HfFamily*> of_plugin(std::string_view plugin) const;
  const Report& faults() const { return faults_; }

 private:
  std::vector<HfFamily> families_;
  std::vector<HfKey> common_;
  std::map<std::string, Report> faulty_;  // by model_type, which is the name of the file
  Report faults_;
};

/// Reads one file. Faults go to `report`; returns nothing if there are any. `base`: finds the
/// family that `like` names. A file of common keys has only keys.
MT_API std::optional<HfFamily> read_hf_family(
    const fs::path& file, const std::string& plugin, Report& report,
    const std::function<const HfFamily*(const std::string& model_type)>& base = {});

}  // namespace mtrain
