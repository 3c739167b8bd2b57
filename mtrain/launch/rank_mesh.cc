#include "mtrain/launch/rank_mesh.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "mtrain/comm/dry_run.h"
#include "mtrain/dist/parallel_layout.h"

namespace mtrain {
namespace {

ParallelLayout layout_of(const DistSection& d, int64_t world_size) {
  return parallel_layout({.world_size = world_size,
                          .tp = d.tp,
                          .pp = d.pp,
                          .cp = d.cp,
                          .ep = d.ep,
                          .etp = d.etp,
                          .order = d.order});
}

#ifdef NDEBUG
constexpr bool kDebugBuild = false;
#else
constexpr bool kDebugBuild = true;
#endif

/// Rank 0 chooses the token and broadcasts it.
std::string common_token(Communicator& world) {
  int64_t word = static_cast<int64_t>(std::chrono::system_clock::now().time_since_epoch().count()) ^
                 (static_cast<int64_t>(::getpid()) << 40);
  world.broadcast(std::span(&word, 1), 0);
  return cat(static_cast<uint64_t>(word));
}

/// Ranks with the same host name are on the same machine.
int local_rank_of(Communicator& world) {
  if (world.size() == 1 || world.kind() == "planned") return 0;
  if (world.kind() == "thread") return world.rank();
  constexpr size_t kBytes = 64;
  std::vector<char> mine(kBytes, '\0'), all(kBytes * static_cast<size_t>(world.size()));
  gethostname(mine.data(), kBytes - 1);
  auto bytes = [](std::vector<char>& v) {
    return Buffer(v.data(), static_cast<int64_t>(v.size()), DType::u8);
  };
  world.all_gather(bytes(mine), bytes(all));
  int local_rank = 0;
  for (int r = 0; r < world.rank(); ++r)
    if (std::equal(mine.begin(), mine.end(), all.begin() + static_cast<ptrdiff_t>(kBytes) * r))
      ++local_rank;
  return local_rank;
}

}  // namespace

RankMesh::RankMesh(const Recipe& recipe, Communicator& world)
    : RankMesh(recipe, world, layout_of(recipe.settings.dist, world.size())) {}

RankMesh::RankMesh(const Recipe& recipe, Communicator& world, ParallelLayout layout)
    : world_(world),
      dense_(world, layout.dense),
      expert_(world, layout.expert),
      replicas_(&dense_.joint({"dp", "cp"})),
      copy_(&dense_.joint({"tp", "pp"})),
      expert_copy_(&expert_.joint({"etp", "ep", "pp"})),
      pipeline_(pipeline_plan(recipe)),
      token_(common_token(world)),
      local_rank_(local_rank_of(world)) {
  const DistSection& dist = recipe.settings.dist;
  parallel_ = {.tp = &dense_["tp"],
               .cp = &dense_["cp"],
               .ep = &expert_["ep"],
               .etp = &expert_["etp"],
               .edp = &expert_["edp"],
               .expert_group = &expert_.joint({"ep", "etp"}),
               .sequence_parallel = dist.sp,
               .overlap_tp = recipe.settings.comm_overlap.tp,
               .overlap_wgrad = recipe.settings.comm_overlap.dispatch_wgrad,
               .tracks_placements = kDebugBuild};
  if (recipe.settings.comm_overlap.moe)
    parallel_.during_token_exchange = std::make_shared<std::function<void()>>();
  if (active_axis(parallel_.expert_group))
    parallel_.exchange_watch = std::make_shared<ExchangeWatch>();
  share_heads(recipe);
  split_replicas(dist);
  group_embedding_stages();
  share_context(dist);
  choose_savers(dist);
}

// If there are fewer key/value heads than tp ranks, consecutive tp ranks hold copies of the same
// head (shard_heads).
void RankMesh::share_heads(const Recipe& recipe) {
  int64_t tp = recipe.settings.dist.tp, heads = recipe.config.fact(Fact::kv_heads).value_or(0);
  if (heads == 0) heads = recipe.config.fact(Fact::heads).value_or(0);
  if (heads == 0 || tp <= heads || tp % heads != 0) return;
  MeshLayout shared = dense_.layout().split("tp", {{"kv_head", heads}, {"kv_copy", tp / heads}});
  kv_copies_ = dense_.axis_of(shared, "kv_copy", "kv_copy");
  parallel_.kv_copies = kv_copies_.get();
}

// Hybrid sharding. The ranks of a shard group are adjacent, since they communicate in every block;
// the copies are further apart.
void RankMesh::split_replicas(const DistSection& dist) {
  if (dist.hsdp == 1) return;
  int64_t dp = dense_["dp"].size();
  MT_USER_CHECK(dp % dist.hsdp == 0, ErrorClass::config,
                cat("dist.hsdp (", dist.hsdp, ") does not divide the ", dp, " data-parallel ranks"),
                "choose a divisor, or dist.hsdp=1");
  MeshLayout split = dense_.layout().split("dp", {{"copy", dist.hsdp}, {"shard", dp / dist.hsdp}});
  shards_ = dense_.axis_of(split, {"shard", "cp"}, "shard-cp");
  copies_ = dense_.axis_of(split, "copy", "copy");
}

ReplicaGroup RankMesh::dense_group() const {
  return {.all = &replicas(),
          .shards = shards_ ? &shards_->comm() : nullptr,
          .outer = copies_ ? &copies_->comm() : nullptr};
}

// Groups the ranks that may hold a copy of the embedding matrix.
void RankMesh::group_embedding_stages() {
  const Axis& pp = dense_["pp"];
  const std::vector<int64_t> holders = pipeline_.table_ranks();
  if (holders.size() < 2) return;
  const auto found = std::find(holders.begin(), holders.end(), int64_t{pp.index()});
  const bool is_end = found != holders.end();
  const int place = static_cast<int>(found - holders.begin());
  std::string name = pp.comm().name() + " ends";
  std::unique_ptr<Communicator> comm;
  if (auto* planned = dynamic_cast<const DryRunCommunicator*>(&pp.comm()))
    comm = is_end ? planned->group(place, static_cast<int>(holders.size()), name) : nullptr;
  else
    comm = pp.comm().split(is_end ? 0 : -1, place, name);
  if (!comm) return;
  embedding_group_ = std::make_unique<Axis>("pp ends", std::move(comm));
  parallel_.embedding_group = embedding_group_.get();
}

int64_t RankMesh::first_of_stage(const Recipe& recipe, int64_t world_size, int64_t pipeline_rank) {
  return layout_of(recipe.settings.dist, world_size).dense.stride("pp") * pipeline_rank;
}

// For a2a+p2p: adjacent ranks (the first level) exchange heads by all-to-all and need a group; the
// ring over the other levels needs none.
void RankMesh::share_context(const DistSection& dist) {
  parallel_.cp_comm.clear();
  for (const std::string& kind : dist.cp_comm)
    parallel_.cp_comm.push_back(parse_context_kind(kind));
  if (dist.dynamic_cp) parallel_.max_tokens_per_cp_rank = dist.max_tokens_per_cp_rank;
  if (dist.cp_hierarchy.empty() || dist.cp == 1) return;
  int64_t near = dist.cp_hierarchy[0];
  MeshLayout levels =
      dense_.layout().split("cp", {{"cp_far", dist.cp / near}, {"cp_a2a_group", near}});
  cp_near_ = dense_.axis_of(levels, "cp_a2a_group", "cp_a2a_group");
  parallel_.cp_a2a_group = cp_near_.get();
}

void RankMesh::choose_savers(const DistSection& dist) {
  bool everyone = dist.zero > 0 || dist.ep * dist.etp > 1;
  if (everyone)
    savers_ = &world_;
  else if (replicas_->index() == 0)
    savers_ = &copy_->comm();
}

std::string RankMesh::place() const {
  std::vector<std::string> axes;
  for (const AxisSpec& axis : dense_.layout().axes())
    if (axis.size > 1) axes.push_back(cat(axis.name, " ", dense_[axis.name].index()));
  return cat("rank ", world_.rank(), axes.empty() ? "" : cat(" (", join(axes, ", "), ")"));
}

ShardingOptions sharding_options(const Settings& s, const RankMesh& mesh) {
  return {.dense = mesh.dense_group(),
          .expert = mesh.expert_group(),
          .zero_stage = static_cast<int>(s.dist.zero),
          .outer_zero = s.dist.outer_zero > 0,
          .bucket_size = s.ddp.bucket_size,
          .pad_buckets = s.ddp.pad_buckets,
          .overlap_gather = s.ddp.overlap_param_gather,
          .registered = s.ddp.registered_buffers,
          .codes = s.mixed_precision.fp8_params};
}

}  // namespace mtrain
