#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/pipeline/plan_check.h"

namespace mtrain {
namespace {

struct Slot {
  int64_t chunk, micro;  // chunk: index among the rank's stages in ascending order
};

/// The order of a rank's forwards: microbatch group size micro-batches, each through one chunk
/// after the other.
std::vector<Slot> forward_order(const Plan& plan, int64_t group) {
  std::vector<Slot> out;
  for (int64_t first = 0; first < plan.micro_batches; first += group)
    for (int64_t chunk = 0; chunk < plan.virtual_stages; ++chunk)
      for (int64_t m = first; m < std::min(first + group, plan.micro_batches); ++m)
        out.push_back({chunk, m});
  return out;
}

void check_group(const Plan& plan, int64_t group) {
  int64_t ranks = plan.ranks(), micro = plan.micro_batches;
  if (ranks == 1) return;
  MT_USER_CHECK(
      ranks <= group && group <= micro, ErrorClass::config,
      cat("microbatch group size ", group, " must be between the number of pipeline ranks (", ranks,
          ") and the number of micro-batches per step (", micro, ")"),
      "change dist.microbatch_group_size or train.global_batch_size");
  MT_USER_CHECK(
      micro % group == 0 || micro % group >= ranks, ErrorClass::config,
      cat(micro, " micro-batches in groups of ", group, " leave a last group of ", micro % group,
          ", which is smaller than the ", ranks, " pipeline ranks"),
      "change dist.microbatch_group_size or train.global_batch_size so that the last group is full "
      "or has at least as many micro-batches as there are pipeline ranks");
}

/// `overlapped`: each backward overlaps with the forward before it.
Schedule interleave(const Plan& plan, bool overlapped) {
  const int64_t ranks = plan.ranks(), chunks = plan.virtual_stages,
                group = plan.group_size > 0 ? plan.group_size : ranks;
  check_group(plan, group);
  const std::vector<Slot> order = forward_order(plan, group);
  Schedule schedule(static_cast<size_t>(ranks));
  for (int64_t r = 0; r < ranks; ++r) {
    Program& program = schedule[static_cast<size_t>(r)];
    // Number of forwards before the first backward. The gradient for a rank's last chunk arrives
    // after the last rank has run a group through all chunks but one and a micro-batch has gone
    // from this rank to the last one and back.
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
    for (const Slot& slot : order) {  // backward visits the chunks in reverse order
      forward_next(overlapped);
      program.push_back(
          action(ActionKind::backward, (chunks - 1 - slot.chunk) * ranks + r, slot.micro));
    }
  }
  add_reduces(schedule);
  return schedule;
}

}  // namespace

Schedule interleaved(const Plan& plan) {
  check_plan(plan, "interleaved", 0);
  return interleave(plan, false);
}

Schedule combined(const Plan& plan) {
  check_plan(plan, "combined", 0);
  return interleave(plan, true);
}

}  // namespace mtrain
