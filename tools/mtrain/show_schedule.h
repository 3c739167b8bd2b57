// A recipe's step as `mtrain check --schedule` shows it: what each pipeline rank runs, and a
// picture of when. Stateless.
#pragma once
#include <string>
#include <vector>

#include "mtrain/recipe/pipeline_plan.h"

namespace mtrain {

/// The speed of a rank: given values, else those of the GPU type; 0 where neither is known. The
/// type's link counts only where all ranks that share parameters are in one domain.
RankSpeed rank_speed(const Recipe& recipe, const std::string& gpu, const RankSpeed& given);
/// The recipe's plan; `built`: the inner steps of the built model, by pipeline rank, instead of
/// those from the recipe's sizes (MemoryPlan::steps); may be empty.
PipelinePlan shown_plan(const Recipe& recipe, const std::vector<InnerStepRules>& built);
/// The program of each rank, transfers included, and a picture in letters.
std::string schedule_as_text(const PipelinePlan& plan, const RankSpeed& speed);
/// The lists of inner steps of the actions of each rank.
std::string schedule_steps(const PipelinePlan& plan);
/// The picture as SVG.
std::string schedule_as_svg(const PipelinePlan& plan, const RankSpeed& speed);

}  // namespace mtrain
