// The parts of a stage's model: what comes before its blocks, each block, and what comes after
// them. ZeRO 3 gathers the parameters of one part at a time, and the list of a stage's inner steps
// (mtrain/pipeline/stage_steps.h) names parts. Values and pure functions; thread-safe.
#pragma once
#include <compare>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/nn/parameter.h"

namespace mtrain {

/// The index of a part in its stage, in the order of the stage's parameters.
struct PartId {
  int16_t stage = 0, index = 0;
  auto operator<=>(const PartId&) const = default;
};

struct ModelPart {
  std::string name;                       // "embed", the number of a block, "head"
  bool block = false;                     // it can be recomputed in backward
  bool computes = true;                   // false: only another part reads these parameters
  bool exchanges = false;                 // contains experts that are sharded over ranks
  std::optional<PartId> also_reads = {};  // the part that has the table of a tied head
  bool operator==(const ModelPart&) const = default;
};
/// Of one stage, in the order in which forward computes them.
using StageParts = std::vector<ModelPart>;

/// "layers.3" of "layers.3.attn.qkv.weight"; "" for a parameter outside of numbered blocks.
MT_API std::string_view block_of(std::string_view parameter);
/// The part of each parameter: consecutive parameters of a stage with the same block_of().
MT_API std::vector<PartId> parts_of(const std::deque<Parameter>& parameters);
/// The parts of a stage of this rank, from its parameters. `embedding`, `head`: the stage has the
/// embedding, the head. A head without a matrix of its own (ParamRole::head) reads the table of the
/// stage's embedding or, where the stage has none, of stage 0. `expert_ranks`: the ranks that share
/// the experts.
MT_API StageParts stage_parts(const std::deque<Parameter>& parameters, int64_t stage,
                              bool embedding, bool head, int64_t expert_ranks);

}  // namespace mtrain
