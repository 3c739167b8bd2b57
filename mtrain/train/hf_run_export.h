// Exports a checkpoint of a run as a Hugging Face folder: the weights (hf_export.h), config.json
// and the tokenizer's files. For `mtrain export` and checkpoint.hf. Stateless; for the rank's
// thread.
#pragma once
#include <optional>
#include <string>

#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"
#include "mtrain/train/gguf_export.h"
#include "mtrain/train/hf_export.h"

namespace mtrain {

struct HfRunOptions {
  std::optional<DType> dtype;  // absent: that of the folder of model.init_from, else the run's
  std::string family;          // model_type; empty: that of model.init_from, else the first that
                               // can express the settings
  uint64_t shard_bytes = kHfShardBytes;
  /// The chat template of the folder; empty: the tokenizer's own, if any. For folders.
  std::string chat_template = {};
  /// The folder from which the run started; empty: that of model.init_from.
  fs::path source = {};
  /// Its config.json, if the folder is gone; empty: unknown.
  std::string source_config = {};
  /// The identity of the tokenizer that the run was trained with: another one is an Error. Empty:
  /// any will do.
  std::string tokenizer = {};
};

struct HfRunExported {
  HfExported weights;
  std::string family;
  DType dtype = DType::f32;
  bool tokenizer = false;  // the tokenizer's files are in the folder
};

/// Writes the folder `to`, which must not exist. Collective over the team, whose ranks share the
/// shards; all throw the same Error.
MT_API HfRunExported export_hf_run(const Recipe& recipe, PluginHost& plugins,
                                   const CheckpointStore& store, int64_t step, const fs::path& to,
                                   const HfRunOptions& options, const HfTeam& team = {});

/// The dtype of such a folder unless HfRunOptions gives one: that of the folder of
/// model.init_from (`source_config`: its config.json, or empty), else the run's.
MT_API DType hf_run_dtype(const Recipe& recipe, const std::string& source_config);

/// The names of the run's classes, dataset.labels; empty: they have none.
MT_API std::vector<std::string> class_names(const Recipe& recipe);

/// Copies the files of the run's tokenizer, generation_config.json of the folder of model.init_from
/// and the chat template to a folder with this config.json. Of the options, chat_template and
/// tokenizer count. Returns whether there is a tokenizer.
MT_API bool copy_run_files(const Recipe& recipe, PluginHost& plugins, const std::string& config,
                           const HfRunOptions& options, HfFolderWriter& out);

/// The same without generation_config.json, for a folder of adapters: as trainers of transformers
/// save it, so that AutoTokenizer reads the folder.
MT_API bool copy_tokenizer_files(const Recipe& recipe, PluginHost& plugins,
                                 const std::string& config, const HfRunOptions& options,
                                 HfFolderWriter& out);
/// The padding token of the run's tokenizer, if it has one and its files are there.
MT_API std::optional<int32_t> padding_of_run(const Recipe& recipe, PluginHost& plugins);

/// Writes the checkpoint as a GGUF file, which must not exist (gguf_export.h). `type`: of matrices;
/// absent: that of `options` or its default. Throws Error.
MT_API HfRunExported export_gguf_run(const Recipe& recipe, PluginHost& plugins,
                                     const CheckpointStore& store, int64_t step, const fs::path& to,
                                     std::optional<GgmlType> type, const HfRunOptions& options);

/// The GGUF type that corresponds to the dtype of a folder.
MT_API GgmlType ggml_type_of(DType dtype);

}  // namespace mtrain
