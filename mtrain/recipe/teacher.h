// The teacher of objective.type=distillation: its settings, and the recipe from which its model is
// built. Stateless functions; safe from any thread.
#pragma once
#include <optional>

#include "mtrain/recipe/recipe.h"
#include "mtrain/recipe/settings/distillation.h"

namespace mtrain {

/// The settings of the objective; absent if the recipe has another one.
MT_API std::optional<DistillationSettings> distillation_of(const Recipe& student);

/// The folder of the teacher's most likely ids (objective.top_k); absent if the teacher runs in
/// each step: with objective.top_k=0, and for a teacher of random values, which is for trials.
MT_API std::optional<fs::path> teacher_store_folder(const Recipe& student);

/// The recipe of the teacher's model: the model of objective.teacher in the student's layout, with
/// its tokenizer, sequence length and compute dtype. Without a teacher, a model of the student's
/// own settings with random values (dataset.type=mock). Throws Error(config) or Error(checkpoint)
/// that names objective.teacher. REQUIRES: the recipe has such an objective.
MT_API Recipe teacher_recipe(const Recipe& student, const PluginHost& plugins);

/// Reports an error if there is no such teacher, or its model cannot be built in the layout.
void check_teacher(Recipe& student, const PluginHost& plugins);

}  // namespace mtrain
