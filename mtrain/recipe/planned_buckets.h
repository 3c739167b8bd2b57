// The buckets of gradients that a recipe leads to, estimated from the model's sizes like
// StepTraffic: without norms, and with blocks of equal size. Those of the built model replace them
// in a run. A pure function; thread-safe.
#pragma once
#include <vector>

#include "mtrain/recipe/pipeline_plan.h"

namespace mtrain {

/// Of all pipeline ranks, in the order of GradReducer::buckets(). `stages`: InnerStepRules::stages.
std::vector<GradientBucket> planned_buckets(const Recipe& recipe, const PipelinePlan& plan,
                                            const std::vector<StageParts>& stages);

}  // namespace mtrain
