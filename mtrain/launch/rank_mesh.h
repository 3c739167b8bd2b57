// RankMesh: the device mesh of a job, as the recipe's `dist` section defines it, as seen by one
// rank: the axes over which modules are sharded, and the groups for gradients, norms and
// checkpoints. The constructor is collective over the job. Refers to the job's communicator and
// owns the communicators of its axes; must outlive all objects that use its axes. For the rank's
// own thread.
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
  /// Throws Error(config) when the job's ranks do not fit the layout.
  RankMesh(const Recipe& recipe, Communicator& world);
  RankMesh(const RankMesh&) = delete;
  RankMesh& operator=(const RankMesh&) = delete;

  Communicator& world() const { return world_; }
  /// The index of this rank among the job's ranks on this machine.
  int local_rank() const { return local_rank_; }
  bool first() const { return world_.rank() == 0; }
  /// The dense axes: tp, cp, dp, pp; and the experts': etp, ep, edp, pp.
  const Mesh& dense() const { return dense_; }
  const Mesh& expert() const { return expert_; }
  const ParallelContext& parallel() const { return parallel_; }
  /// Models that are built afterwards have tensors with placements on tp. Always on in a debug
  /// build.
  void track_placements() { parallel_.tracks_placements = true; }

  /// How the model is split into stages along pp, and the pipeline rank of this rank.
  const PipelinePlan& pipeline() const { return pipeline_; }
  int64_t pipeline_rank() const { return dense_["pp"].index(); }
  /// The ranks of this pipeline; null when it has only one rank.
  Communicator* pipeline_ranks() const {
    return pipeline_.ranks() > 1 ? &dense_["pp"].comm() : nullptr;
  }
  /// The first rank of a job of `world_size` ranks whose pipeline rank is `pipeline_rank`.
  static int64_t first_of_stage(const Recipe& recipe, int64_t world_size, int64_t pipeline_rank);

  /// The data-parallel axis: ranks with different samples.
  const Axis& data() const { return dense_["dp"]; }
  /// Ranks with the same parameters and different tokens: dp x cp, and edp for experts. Losses and
  /// gradients are summed over them.
  Communicator& replicas() const { return replicas_->comm(); }
  Communicator& expert_replicas() const { return expert_["edp"].comm(); }
  /// The same groups for sharding parameters; with dist.hsdp, dense parameters are sharded within
  /// each copy.
  ReplicaGroup dense_group() const;
  ReplicaGroup expert_group() const { return {.all = &expert_replicas()}; }
  /// Ranks that together hold one copy of the dense parameters: tp x pp; and of the experts: etp x
  /// ep x pp.
  Communicator& copy() const { return copy_->comm(); }
  Communicator& expert_copy() const { return expert_copy_->comm(); }
  /// Ranks that write checkpoints together; null on a rank that writes nothing.
  Communicator* savers() const { return savers_; }
  /// A name for temporary files: equal on all ranks and unique to the job.
  const std::string& token() const { return token_; }
  /// "rank 5 (pp 1, dp 0, tp 1)": the axes with more than one rank.
  std::string place() const;

 private:
  RankMesh(const Recipe& recipe, Communicator& world, struct ParallelLayout layout);
  void share_heads(const Recipe& recipe);
  void split_replicas(const DistSection& dist);
  void share_context(const DistSection& dist);
  void choose_savers(const DistSection& dist);
  void group_embedding_stages();

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
  int local_rank_ = 0;
};

/// How the parameters are sharded over data-parallel ranks.
MT_API ShardingOptions sharding_options(const Settings& settings, const RankMesh& mesh);

}  // namespace mtrain
