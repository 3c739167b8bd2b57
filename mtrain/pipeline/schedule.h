// A training step as data: which stage runs forward or backward of which micro-batch, in what
// order. Schedules are plain, printable lists that pure functions create (one file each); the
// interpreter runs them, and the simulator predicts their cost. Value types and stateless
// functions; thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"
#include "mtrain/pipeline/stage_map.h"

namespace mtrain {

/// The kind of an action.
enum class ActionKind : uint8_t {
  forward,
  backward,       // gradients of the inputs; also of the weights if the schedule has no weight_grad
  weight_grad,    // gradients of the weights, any time after the stage's backward
  recv_forward,   // activations, from the stage before
  send_forward,   // activations, to the stage after
  recv_backward,  // gradients of activations, from the stage after
  send_backward,  // gradients of activations, to the stage before
  reduce,  // R, once per step: completes the reduction of the stage's gradients over its replicas
  reduce_scatter,  // ZeRO 2 and 3: adds a micro-batch's gradients to the shards of the replicas
  gather_params,   // ZeRO 3: all-gather of the stage's parameters
  release_params   // ZeRO 3: frees the gathered parameters
};
inline constexpr size_t kNumActionKinds = 11;

/// Its name in a schedule's text: F, B, W, RecvX, SendX, RecvG, SendG, R, Scatter, Gather, Release,
/// in the order above.
MT_API const char* name(ActionKind what);
/// F and B read the stage's parameters; W needs only what B has kept.
inline bool uses_params(ActionKind what) { return what <= ActionKind::backward; }
/// False for an action of the stage as a whole: R, Gather and Release.
inline bool has_micro_batch(ActionKind what) {
  return what < ActionKind::reduce || what == ActionKind::reduce_scatter;
}

struct Action {
  ActionKind what;
  int16_t stage;
  int32_t micro;            // 0 where the kind has none
  bool overlapped = false;  // of a forward: it runs together with the backward that follows, so
                            // that the transfers of one overlap with the compute of the other
  bool operator==(const Action&) const = default;
};
using Program = std::vector<Action>;    // of one rank
using Schedule = std::vector<Program>;  // by rank

/// The size of a scheduling problem.
struct Plan {
  int64_t stages = 1;  // of the whole model: ranks times virtual_stages
  int64_t micro_batches = 1;
  int64_t virtual_stages = 1;  // per rank
  int64_t group_size =
      0;  // interleaved: micro-batches that a virtual stage runs in a row; 0: the number of ranks
  int64_t ranks() const { return stages / virtual_stages; }
};

// Generators: compute and R only; with_sharding_actions() adds what ZeRO needs, lower() the
// transfers. What a generator cannot plan is Error(config).

/// All forwards, then all backwards (Huang et al. 2019, arXiv:1811.06965). Keeps the activations of
/// every micro-batch.
MT_API Schedule gpipe(const Plan& plan);
/// One forward, one backward in the steady state (Narayanan et al. 2021, arXiv:2104.04473): stage s
/// warms up with stages-1-s forwards. With one stage this is plain gradient accumulation: F0 B0 F1
/// B1 … R.
MT_API Schedule one_f_one_b(const Plan& plan);
/// 1F1B over several stages per rank (same paper), in Megatron-LM's order. With several ranks, it
/// requires ranks <= group_size <= micro_batches, and a last group that is not smaller than the
/// number of ranks.
MT_API Schedule interleaved(const Plan& plan);
/// ZB-H1 (Qi et al. 2023, arXiv:2401.10241): 1F1B with separate weight gradients. Rank r defers
/// them by r micro-batches, so that they fill its idle time at the end, and no rank keeps more
/// activations than the first one.
MT_API Schedule zb_h1(const Plan& plan);
/// ZB-V (same paper): two stages per rank in a V (StageMap::v_shape), with the memory of 1F1B.
MT_API Schedule zb_v(const Plan& plan);

/// Forward of one micro-batch overlapped with backward of another, in the order of `interleaved`
/// with one more forward before the first backward, so that the two never depend on each other
/// (combined 1F1B of Megatron-LM, which hides the all-to-all of experts). For any number of virtual
/// stages, also on one rank.
MT_API Schedule combined(const Plan& plan);
/// The schedule with W directly after the B of every micro-batch, so that the result of B is sent
/// before W runs. A schedule that has W already is returned unchanged.
MT_API Schedule with_weight_actions(Schedule schedule);

/// The schedule of a name in `dist.schedule` (gpipe, 1f1b, interleaved, zb_h1, zb_v), or
/// "combined".
MT_API Schedule make_schedule(std::string_view name, const Plan& plan);
/// The stage map that make_schedule() of that name requires.
MT_API StageMap stage_map(std::string_view name, const Plan& plan);
/// Inserts R after the last B, W or Scatter of each stage that has none.
MT_API void add_reduces(Schedule& schedule);

/// "0F3" = stage 0, forward, micro-batch 3; "0F3+" when it overlaps with the next one; "1SendG0",
/// "2R", "2Gather".
MT_API std::string to_text(const Action& action);
MT_API std::string to_text(const Program& program);
/// One line per rank; parse_schedule() reads it back.
MT_API std::string to_text(const Schedule& schedule);

}  // namespace mtrain
