// What may differ between a checkpoint and the recipe that continues it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/recipe/recipe.h"
#include "mtrain/record/train_state.h"

namespace mtrain {

/// How SavedIdentity::arithmetic begins on the CPU; the name of the level follows.
inline constexpr std::string_view kCpuArithmetic = "cpu, level ";

/// Compares the recipe of a checkpoint with the present one, setting by setting, by the schema's
/// resume classes, each with who set it: throws Error(checkpoint) listing the impossible changes, a
/// changed dataset or tokenizer, and what else would change the result; logs the latter when they
/// are all; passes over the rest. Another arithmetic changes the result, too, and is refused where
/// run.deterministic is set. `quiet`, for every rank but the first: logs nothing, and leaves the
/// arithmetic, which is the first's, to that one.
MT_API void check_resume(const Recipe& recipe, const PluginHost& plugins,
                         const CheckpointMeta& before, const CheckpointMeta& now,
                         const std::string& checkpoint, bool quiet = false);

/// How the run that `recipe` would continue differs from it: settings that change the result or
/// that are in one of `exact`, a setting or a section of them; one line each, with both values and
/// who set them. Empty where there is no checkpoint, or it is of the same configuration. REQUIRES:
/// what training settles first, epochs and the compute type, is settled. Throws Error(checkpoint)
/// where a checkpoint does not say how its run was configured.
MT_API std::vector<std::string> changes_of_run(const Recipe& recipe, const PluginHost& plugins,
                                               const std::vector<std::string>& exact);
/// Whether there is a checkpoint that `recipe` would continue.
MT_API bool continues_run(const Recipe& recipe);

}  // namespace mtrain
