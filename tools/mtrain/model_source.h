// The models that eval and generate work with: a run's checkpoint, or a Hugging Face folder.
// Stateless.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/saved_run.h"
#include "mtrain/train/peft_adapter.h"
#include "mtrain/train/session.h"

namespace mtrain {

/// A recipe for a session, and the checkpoint with the weights.
struct ModelSource {
  SavedRun run;
  bool hugging_face = false;  // the session loads the weights; there is no checkpoint
};

/// Whether a folder is a Hugging Face model's.
bool is_hugging_face(const fs::path& folder);
/// model_type in the text of a config.json; empty: it says none.
std::string model_type_of(const std::string& config);
/// A recipe that takes the folder's weights and ends before the first step.
Recipe recipe_of_folder(const fs::path& folder, const std::vector<OverrideText>& overrides,
                        PluginHost& plugins);
/// `from`: a run's folder, one of its checkpoints, or a Hugging Face folder, whose architecture
/// decides the model plugin. Throws Error(checkpoint) or Error(config).
ModelSource open_model(const fs::path& from, const std::vector<OverrideText>& overrides,
                       PluginHost& plugins);
/// Its session, with all weights loaded. `source` must outlive it. `adapter`: a folder of peft
/// whose adapters are added to the weights; empty: none.
std::unique_ptr<Session> open_session(const ModelSource& source, PluginHost& plugins,
                                      const std::string& adapter = {});
/// "step 500 of runs/a", or the folder.
std::string describe(const ModelSource& source);
/// The type in which it is computed, "bf16", and for a folder where it comes from.
std::string computing_type(const ModelSource& source);

}  // namespace mtrain
