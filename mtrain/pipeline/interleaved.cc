#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/pipeline/plan_check.h"

namespace mtrain {
namespace {

struct Turn {
  int64_t chunk, micro;  // index among the rank's stages in ascending order
};

/// The order of a rank's forwards: groups of micro-batches, each through one chunk after the other.
std::vector<Turn> turns(const Plan& plan, int64_t group) {
  std::vector<Turn> out;
  for (int64_t first = 0; first < plan.micro_batches; first += group)
    for (int64_t chunk = 0; chunk < plan.virtual_stages; ++chunk)
      for (int64_t m = first; m < std::min(first + group, plan.micro_batches); ++m)
        out.push_back({chunk, m});
  return out;
}

void check_group(const Plan& plan, int64_t group) {
  int64_t ranks = plan.ranks(), micro = plan.micro_batches;
  if (ranks == 1) return;
  MT_USER_CHECK(ranks <= group && group <= micro, ErrorClass::config,
                cat("groups of ", group, " must lie between the ", ranks,
                    " ranks of the pipeline and the ", micro, " micro-batches of a step"),
                "choose dist.microbatch_group_size or train.global_batch_size so that they do");
  MT_USER_CHECK(micro % group == 0 || micro % group >= ranks, ErrorClass::config,
                cat(micro, " micro-batches leave ", micro % group, " behind groups of ", group,
                    ", fewer than the ", ranks, " ranks of the pipeline"),
                "choose dist.microbatch_group_size or train.global_batch_size so that none or "
                "enough are left");
}

/// `overlapped`: each backward overlaps with the forward before it.
Schedule in_turns(const Plan& plan, bool overlapped) {
  const int64_t ranks = plan.ranks(), chunks = plan.virtual_stages,
                group = plan.group_size > 0 ? plan.group_size : ranks;
  check_group(plan, group);
  const std::vector<Turn> order = turns(plan, group);
  Schedule schedule(static_cast<size_t>(ranks));
  for (int64_t r = 0; r < ranks; ++r) {
    Program& program = schedule[static_cast<size_t>(r)];
    // The gradient for a rank's last chunk arrives after the last rank has passed a group through
    // all chunks but one, and a micro-batch has passed from here to there and back.
    auto warmup =
        static_cast<size_t>((chunks - 1) * group + 2 * (ranks - 1 - r) + (overlapped ? 1 : 0));
    size_t forward = 0;
    auto forward_next = [&](bool with_backward) {
      if (forward == order.size()) return;
      program.push_back(
          action(ActionKind::forward, order[forward].chunk * ranks + r, order[forward].micro));
      program.back().overlapped = with_backward;
      ++forward;
    };
    while (forward < std::min(warmup, order.size())) forward_next(false);
    for (const Turn& turn : order) {  // backward visits the chunks in reverse order
      forward_next(overlapped);
      program.push_back(
          action(ActionKind::backward, (chunks - 1 - turn.chunk) * ranks + r, turn.micro));
    }
  }
  add_reduces(schedule);
  return schedule;
}

}  // namespace

Schedule interleaved(const Plan& plan) {
  check_plan(plan, "interleaved", 0);
  return in_turns(plan, false);
}

Schedule combined(const Plan& plan) {
  check_plan(plan, "combined", 0);
  return in_turns(plan, true);
}

}  // namespace mtrain
