// Runs of adapters, for merge, export and the commands that compare adapters. The adapters have the
// names of a Hugging Face folder: that of model.init_from, or one that is written for the time of
// the command if model.init_from is a run. For the main thread.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli.h"
#include "mtrain/base/dtype.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/saved_run.h"
#include "mtrain/train/peft_adapter.h"

namespace mtrain {

/// The adapters of a run, and the folder of the weights on which they were trained.
class AdapterRun {
 public:
  struct Request {
    std::string from;  // a run, or one of its checkpoints
    std::string base;  // the folder of its weights; empty: that of model.init_from. It may also be
                       // an export of the run of model.init_from
    fs::path near;     // a path next to which a temporary folder can be written
    std::vector<OverrideText> overrides = {};
  };
  /// Throws Error(config) or Error(checkpoint) if the run has no adapters, or if the weights are
  /// not those on which they were trained.
  AdapterRun(const Request& request, PluginHost& plugins);
  AdapterRun(const AdapterRun&) = delete;
  AdapterRun& operator=(const AdapterRun&) = delete;

  const SavedRun& run() const { return *run_; }
  const PeftAdapter& adapter() const { return adapter_; }
  /// The folder of the weights; of an exported run, it exists as long as this object.
  const fs::path& folder() const { return folder_; }
  /// Where the weights come from, for messages: the folder, or the run of model.init_from.
  const std::string& base_name() const { return base_name_; }
  /// The dtype of a folder of the merged weights; absent: each tensor keeps that of folder().
  std::optional<DType> dtype() const { return dtype_; }

 private:
  /// A folder that is removed.
  struct Temporary {
    ~Temporary();
    fs::path path;
  };
  void open_with_folder(const Request& request, PluginHost& plugins);
  /// Writes the weights of the run of model.init_from to a temporary folder, in fp32.
  void export_base(const SavedRun& own, const fs::path& near, PluginHost& plugins);
  void require_export_of(const SavedRun& own, const std::string& base, const fs::path& near,
                         PluginHost& plugins);

  std::optional<SavedRun> run_;
  PeftAdapter adapter_;
  fs::path folder_;
  Temporary temporary_;
  std::string base_name_;
  std::optional<DType> dtype_;
};

/// Whether a run trained adapters, so that its checkpoints lack the model's weights.
bool has_adapters(const std::string& run);

/// The run or checkpoint of model.init_from; empty if that is a folder, or is gone.
fs::path base_run(const std::string& run);

/// Error(config) that says what to do if model.init_from is a run: adapters alone have the names of
/// a folder.
void require_base_folder(const std::string& from);

/// Overrides of a run whose folder of model.init_from is at `base` now, also for the files of the
/// tokenizer and the chat template in it. None if `base` is empty.
std::vector<OverrideText> overrides_for_base(const fs::path& run, const std::string& base);

/// Adds the arguments KEY=VALUE of a command that takes settings of a run's tokenizer.
void add_tokenizer_overrides(CLI::App& command, std::vector<std::string>& words);
/// Their overrides. Error(usage) for other settings.
std::vector<OverrideText> tokenizer_overrides(const Cli& cli,
                                              const std::vector<std::string>& words);

}  // namespace mtrain
