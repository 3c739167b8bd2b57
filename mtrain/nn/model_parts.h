// The parts of a stage's model: what comes before its blocks, each block, and what comes after
// them. ZeRO 3 gathers the parameters of one part at a time, and the list of a stage's inner steps
// (mtrain/pipeline/stage_steps.h) names parts. Values and pure functions; thread-safe.
#pragma once
#include <compare>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/nn/parameter.h"

namespace mtrain {

/// The index of a part in its stage.
struct PartId {
  int16_t stage = 0, index = 0;
  auto operator<=>(const PartId&) const = default;
};

/// A part of a model as the model declares it (Model::parts): a block, or what comes before,
/// between or after blocks.
struct ComputedPart {
  std::string scope;  // its path, "layers.3": the parameters below it are read by this part; it is
                      // a block if the path has a number
  /// Further parameters that the part reads: paths of parameters, or of scopes for all parameters
  /// below them.
  std::vector<std::string> reads = {};
  bool auxiliary = false;  // an additional block for a training-only loss: it is recomputed
                           // separately, and does not run without backward
};

struct ModelPart {
  std::string name;                     // "embed", the number of a block, "head"
  bool block = false;                   // it can be recomputed in backward
  bool computes = true;                 // false: only other parts read these parameters
  bool owns = true;                     // false: all parameters that it reads are of other parts
  bool exchanges = false;               // contains experts that are sharded over ranks
  std::vector<PartId> also_reads = {};  // parts with further parameters that it reads: the table
                                        // of a tied head, what blocks share
  bool auxiliary = false;               // as in ComputedPart
  bool operator==(const ModelPart&) const = default;
};
/// The parts of one stage. Those that compute are in the order of forward.
using StageParts = std::vector<ModelPart>;

/// "layers.3" of "layers.3.attn.qkv.weight"; "" for a parameter outside of numbered blocks.
MT_API std::string_view block_of(std::string_view parameter);
/// The part of each parameter: the declared one, otherwise consecutive parameters of a stage with
/// the same block_of().
MT_API std::vector<PartId> parts_of(const std::deque<Parameter>& parameters);
/// The parts of a stage of this rank, from its parameters. `embedding`, `head`: the stage has the
/// embedding, the head. A head without a matrix of its own (ParamRole::head) reads the table of the
/// stage's embedding or, where the stage has none, of stage 0. `expert_ranks`: the ranks that share
/// the experts.
MT_API StageParts stage_parts(const std::deque<Parameter>& parameters, int64_t stage,
                              bool embedding, bool head, int64_t expert_ranks);
/// The parts of a stage whose model declares them, in the order of forward; sets Parameter::part.
/// Parameters that several parts read are further parts, which do not compute and come first: one
/// for each set of readers; so are parameters that no part reads. A part may be declared several
/// times, once for each time that it computes. Throws Error(plugin) if a part or path has no
/// parameters.
MT_API StageParts declared_parts(std::deque<Parameter>& parameters, int64_t stage,
                                 const std::vector<ComputedPart>& declared, int64_t expert_ranks);

}  // namespace mtrain
