// SavedConfig: everything that says what a run was told and by which program, as text; kept in the
// run's folder and in each of its checkpoints. Holds no secret and no environment variable. A
// value.
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
      files;  // the others it is composed of: "model/llama3_8b", text
  std::vector<std::string> overrides;
  std::string resolved;    // YAML
  std::string provenance;  // JSON, see provenance.h
  std::string
      environment;  // JSON: {"mtrain", "host", …, "name", "directory", "run", "checkpoints",
                    // "binaries", "plugins", "data", "tokenizer", "arithmetic"}
};

/// One JSON object; nothing for the texts that have places of their own in a checkpoint.
MT_API std::string to_json(const SavedConfig& config);
/// Throws Error(checkpoint) naming `where` for any other text.
MT_API SavedConfig saved_config_from_json(const std::string& text, const std::string& where);

/// Writes its texts into the folder, as files that their owner alone can read. Error(io) when they
/// cannot be written.
MT_API void write_saved_config(const SavedConfig& config, const fs::path& folder);
/// Reads them back. Error(io) when there are none.
MT_API SavedConfig read_config_folder(const fs::path& folder);
/// Reads what a run's folder (the newest record of its history whose steps count), a folder of
/// checkpoints (the newest valid one) or one step-N folder keeps. Error(checkpoint) when it keeps
/// nothing of the kind.
MT_API SavedConfig read_saved_config(const fs::path& path);

/// What a saved run says about itself.
struct SavedIdentity {
  std::string name, directory, data, tokenizer;
  std::string run, checkpoints;  // their folders, absolute; empty: an older version, which wrote
                                 // checkpoints into the run's folder or did not say
  std::string arithmetic;  // "cpu, level v4", or the device: the same steps give the same bits
                           // where it is the same; empty: unknown
};
MT_API SavedIdentity identity_of(const SavedConfig& config);
/// Who set each value, as provenance says: {"optimizer.lr", "recipes/x.yaml:3:5"}.
MT_API std::map<std::string, std::string> origins_of(const SavedConfig& config);
/// What runs now and is not what ran then: "another build of the plugin model llama".
MT_API std::vector<std::string> changed_programs(const SavedConfig& before, const SavedConfig& now);
/// What is not the same any more, one line each: program, library, plugins, arithmetic.
MT_API std::vector<std::string> changed_since(const SavedConfig& before, const SavedConfig& now);
/// The same for what is trained on: "data: files[0].bin_bytes: 812 -> 900", "tokenizer: … -> …".
/// Empty where `before` does not say.
MT_API std::vector<std::string> changed_data(const SavedConfig& before, const SavedConfig& now);

}  // namespace mtrain
