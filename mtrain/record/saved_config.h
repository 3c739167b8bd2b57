// SavedConfig: the configuration of a run and the identity of the program, as text; saved in the
// run's folder and in each checkpoint. Contains no secrets and no environment variables. A value;
// stateless functions are safe from any thread.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mtrain/base/file.h"

namespace mtrain {

struct MT_API SavedConfig {
  std::string raw;  // the recipe as it was written
  std::vector<std::pair<std::string, std::string>>
      files;  // the other files of the composition: "model/llama3_8b", text
  std::vector<std::string> overrides;
  std::string resolved;     // YAML
  std::string provenance;   // JSON, see provenance.h
  std::string environment;  // JSON: {"mtrain", "host", …, "name", "directory", "run",
                            // "checkpoints", "exports", "invocation", "binaries", "plugins",
                            // "data", "tokenizer", "arithmetic", "chat_template",
                            // "source_config", "weights"}
};

/// One JSON object, without the texts that a checkpoint stores separately.
MT_API std::string to_json(const SavedConfig& config);
/// Throws Error(checkpoint) that names `where` for an invalid text.
MT_API SavedConfig saved_config_from_json(const std::string& text, const std::string& where);

/// Writes its texts into the folder, as files that only their owner can read. Error(io) when they
/// cannot be written.
MT_API void write_saved_config(const SavedConfig& config, const fs::path& folder);
/// Reads these files. Error(io) when there are none.
MT_API SavedConfig read_config_folder(const fs::path& folder);
/// Reads the SavedConfig of a run's folder (the newest record whose steps count), of a folder of
/// checkpoints (the newest valid one) or of one step-N folder. Error(checkpoint) when there is
/// none.
MT_API SavedConfig read_saved_config(const fs::path& path);

/// The identity of a saved run.
struct SavedIdentity {
  std::string name, directory, data, tokenizer;
  std::string run, checkpoints;  // absolute folders; empty for an older version, which wrote
                                 // checkpoints into the run's folder or did not record them
  std::string arithmetic;  // "cpu, level v4", or the device; with the same text, the same steps
                           // give the same bits; empty: unknown
  std::string invocation;  // unique to the invocation that wrote it: the same in its record and in
                           // its checkpoints; empty for an older version
  std::string exports;  // checkpoint.hf as an absolute folder; empty: not set, or not recorded by
                        // an older version
  std::string chat_template;  // with which conversations were formatted; empty: none, or not
                              // recorded by an older version
  std::string source_config;  // config.json of the folder of model.init_from; likewise
  /// Digests of the weights that the run read at its start, by setting ("model.init_from"); empty:
  /// none, or not recorded by an older version.
  std::map<std::string, std::string> weights = {};
};
MT_API SavedIdentity identity_of(const SavedConfig& config);
/// Records `weights` as those of the configuration.
MT_API void set_weights(SavedConfig& config, const std::map<std::string, std::string>& weights);
/// Where each value was set, from the provenance: {"optimizer.lr", "recipes/x.yaml:3:5"}.
MT_API std::map<std::string, std::string> origins_of(const SavedConfig& config);
/// The programs that differ now: "a different build of the plugin model llama".
MT_API std::vector<std::string> changed_programs(const SavedConfig& before, const SavedConfig& now);
/// The changes of program, library, plugins and arithmetic, one line each.
MT_API std::vector<std::string> changed_since(const SavedConfig& before, const SavedConfig& now);
/// The same for the training data and the tokenizer: "data: files[0].bin_bytes: 812 -> 900",
/// "tokenizer: … -> …". Empty when `before` does not record them.
MT_API std::vector<std::string> changed_data(const SavedConfig& before, const SavedConfig& now);
/// The settings whose weights differ. Empty when `before` does not record them.
MT_API std::vector<std::string> changed_weights(const SavedConfig& before, const SavedConfig& now);

}  // namespace mtrain
