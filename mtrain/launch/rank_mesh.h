// RankMesh: the ranks of a job as the recipe's `dist` section cuts them, seen from one of them: the
// axes that modules are cut over, and the groups over which gradients, norms and checkpoints go.
// Making one is collective over the job; refers to the job's communicator. For the rank's own
// thread; outlives whatever was built with its axes.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "mtrain/comm/communicator.h"
#include "mtrain/nn/parallel.h"
#include "mtrain/optim/param_buckets.h"
#include "mtrain/recipe/pipeline_plan.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

class MT_API RankMesh {
 public:
  /// Throws Error(config) when the job's ranks cannot be cut so.
  RankMesh(const Recipe& recipe, Communicator& world);
  RankMesh(const RankMesh&) = delete;
  RankMesh& operator=(const RankMesh&) = delete;

  Communicator& world() const { return world_; }
  /// This rank's place among those of its machine, and how many they are.
  struct Neighbours {
    int place = 0, ranks = 1;
  };
  Neighbours neighbours() const { return neighbours_; }
  bool first() const { return world_.rank() == 0; }
  /// The dense axes: tp, cp, dp, pp; and the experts': etp, ep, edp, pp.
  const Mesh& dense() const { return dense_; }
  const Mesh& expert() const { return expert_; }
  const ParallelContext& parallel() const { return parallel_; }
  /// Models built from here on have tensors that say what the ranks of tp hold of them. A debug
  /// build always does.
  void type_tensors() { parallel_.typed = true; }

  /// How the model is cut along pp, and which of its stages this rank has.
  const PipelinePlan& pipeline() const { return pipeline_; }
  int64_t pipeline_rank() const { return dense_["pp"].index(); }
  /// The ranks of this pipeline; null where it has one.
  Communicator* pipeline_ranks() const {
    return pipeline_.ranks() > 1 ? &dense_["pp"].comm() : nullptr;
  }
  /// The rank of a job of `world_size` that is the first to have place `pipeline_rank` in its
  /// pipeline.
  static int64_t first_of_stage(const Recipe& recipe, int64_t world_size, int64_t pipeline_rank);

  /// Ranks that take samples of their own.
  const Axis& data() const { return dense_["dp"]; }
  /// Ranks with other tokens and the same parameters: dp x cp, and edp for experts. Losses and
  /// gradients are summed over them.
  Communicator& replicas() const { return replicas_->comm(); }
  Communicator& expert_replicas() const { return expert_["edp"].comm(); }
  /// The same as groups that share parameters out: with dist.hsdp, dense ones within a copy.
  ReplicaGroup dense_group() const;
  ReplicaGroup expert_group() const { return {.all = &expert_replicas()}; }
  /// Ranks that hold one copy of the dense parameters together: tp x pp; and of the experts: etp x
  /// ep x pp.
  Communicator& copy() const { return copy_->comm(); }
  Communicator& expert_copy() const { return expert_copy_->comm(); }
  /// Ranks that write checkpoints together; null on one that has nothing to write.
  Communicator* savers() const { return savers_; }
  /// Names temporary files: the same on all ranks, and no other job's.
  const std::string& token() const { return token_; }
  /// "rank 5 (pp 1, dp 0, tp 1)": the axes that are cut.
  std::string place() const;

 private:
  RankMesh(const Recipe& recipe, Communicator& world, struct ParallelLayout layout);
  void share_heads(const Recipe& recipe);
  void cut_replicas(const DistSection& dist);
  void share_context(const DistSection& dist);
  void choose_savers(const DistSection& dist);
  void join_ends();

  Communicator& world_;
  Mesh dense_, expert_;
  const Axis* replicas_;
  const Axis* copy_;
  const Axis* expert_copy_;
  std::unique_ptr<Axis> kv_copies_, cp_near_, embedding_group_;
  std::unique_ptr<Axis> shards_, copies_;  // of dist.hsdp
  PipelinePlan pipeline_;
  ParallelContext parallel_;
  Communicator* savers_ = nullptr;
  std::string token_;
  Neighbours neighbours_;
};

/// How this rank's parameters are shared out.
MT_API ShardingOptions sharding_options(const Settings& settings, const RankMesh& mesh);

}  // namespace mtrain
