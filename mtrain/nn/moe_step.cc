#include "mtrain/nn/moe_step.h"

#include <algorithm>
#include <numeric>

namespace mtrain {
namespace {

double sum_of(std::span<const double> v) { return std::accumulate(v.begin(), v.end(), 0.0); }

// Counts are integers, which are exact in double, so the order of addition over ranks does not
// matter.
void add_up(std::vector<double>& values, const ParallelContext& p) {
  for (const Axis* axis : {p.expert_group, p.edp})
    if (active_axis(axis) && !values.empty()) axis->comm().all_reduce(values);
}

}  // namespace

std::vector<StepFigure> end_moe_step(std::span<Moe* const> blocks, const ParallelContext& parallel,
                                     bool updated) {
  std::vector<double> all;
  for (Moe* block : blocks) {
    std::vector<double> mine = block->record_values();
    all.insert(all.end(), mine.begin(), mine.end());
  }
  add_up(all, parallel);
  double aux = 0, z = 0, load = 0;
  std::span<const double> rest(all);
  for (Moe* block : blocks) {
    Moe::StepRecord record =
        block->end_step(rest.first(static_cast<size_t>(block->num_record_values())), updated);
    rest = rest.subspan(static_cast<size_t>(block->num_record_values()));
    double tokens = std::max(1.0, record.tokens);
    aux += sum_of(record.terms) / tokens;
    z += record.z / tokens;
    double choices = sum_of(record.choices);
    if (choices > 0)
      load = std::max(load, *std::max_element(record.choices.begin(), record.choices.end()) *
                                static_cast<double>(record.choices.size()) / choices);
  }
  return {{"moe_aux_loss", aux, StepFigure::Join::sum},
          {"moe_z_loss", z, StepFigure::Join::sum},
          {"moe_max_load", load, StepFigure::Join::max}};
}

}  // namespace mtrain
