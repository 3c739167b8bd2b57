// Checks the differences between a checkpoint and the recipe that continues it. Stateless functions
// that read checkpoints and log; safe from any thread.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/recipe/recipe.h"
#include "mtrain/record/train_state.h"

namespace mtrain {

/// The prefix of SavedIdentity::arithmetic on the CPU; the name of the instruction-set level
/// follows.
inline constexpr std::string_view kCpuArithmetic = "cpu, level ";

/// The setting with the names of the classes; their order says which class a score belongs to.
inline constexpr const char* kClassNames = "dataset.labels";

/// Compares the recipe of a checkpoint with the current one, setting by setting, by the resume
/// classes of the schema. Throws Error(checkpoint) for changes that are not allowed, including a
/// changed dataset or tokenizer; the message lists all changes that matter, with their locations.
/// If there are only changes that affect the result, logs them. Ignores all other changes.
/// Where 0 stands for a number of other settings (derived_zero.h), the numbers are compared.
/// Different arithmetic also changes the result, and is refused with run.deterministic.
/// `tokenizer_ids`: how many ids the tokenizer of `now` has. `quiet`, for ranks other than rank 0:
/// logs nothing and does not compare the arithmetic, which is that of rank 0.
MT_API void check_resume(const Recipe& recipe, const PluginHost& plugins,
                         const CheckpointMeta& before, const CheckpointMeta& now,
                         const std::string& checkpoint, int64_t tokenizer_ids, bool quiet = false);

/// Refuses settings of the command line that have no effect where weights are used without training
/// (eval, generate): those that only training reads, and those that are used only when a run
/// begins. `from`: the checkpoint or, with `hugging_face`, the folder with the weights; for the
/// latter, model.init_ignore has an effect. Throws Error(checkpoint) that lists them.
MT_API void check_used_settings(const Recipe& recipe, const PluginHost& plugins,
                                const std::string& from, bool hugging_face);

/// Refuses settings of the command line that have no effect on generation and that
/// check_used_settings() accepts: batches, data (except for the chat template), validation and the
/// run's seed. Throws Error(checkpoint) that lists them.
MT_API void check_generation_settings(const Recipe& recipe, const std::string& from);

/// Calls check_used_settings(). Then compares the model settings of a recipe that uses the weights
/// of a checkpoint without training (eval, generate) with those of the checkpoint, by the resume
/// classes. Throws Error(checkpoint) for settings that are fixed for a run; warns of those that
/// change what the model computes. Settings of other sections and the sequence length may differ.
MT_API void check_used_model(const Recipe& recipe, const PluginHost& plugins,
                             const CheckpointMeta& before, const std::string& checkpoint);

/// The differences between `recipe` and the run that it would continue: settings that change the
/// result, or that are listed in `exact` (settings or sections). One line each, with both values
/// and their locations. Empty if there is no checkpoint or no difference. REQUIRES: epochs and the
/// compute dtype are resolved. Throws Error(checkpoint) if a checkpoint has no readable
/// configuration.
MT_API std::vector<std::string> changes_of_run(const Recipe& recipe, const PluginHost& plugins,
                                               const std::vector<std::string>& exact);
/// True if there is a checkpoint that `recipe` would continue.
MT_API bool continues_run(const Recipe& recipe);

}  // namespace mtrain
