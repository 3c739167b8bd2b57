// Estimates the gradient buckets of a recipe from the model's sizes like StepTraffic: without
// norms, and with blocks of equal size. In a run, the buckets of the built model are used instead.
// A pure function; thread-safe.
#pragma once
#include <vector>

#include "mtrain/recipe/pipeline_plan.h"

namespace mtrain {

/// The buckets of all pipeline ranks, in the order of GradReducer::buckets(). `stages`:
/// InnerStepRules::stages.
std::vector<GradientBucket> planned_buckets(const Recipe& recipe, const PipelinePlan& plan,
                                            const std::vector<StageParts>& stages);

}  // namespace mtrain
