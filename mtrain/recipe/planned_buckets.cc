#include "mtrain/recipe/planned_buckets.h"

#include <algorithm>
#include <cmath>

#include "mtrain/optim/bucket_plan.h"
#include "mtrain/recipe/block_sizes.h"

namespace mtrain {
namespace {

/// Numbers of elements.
struct Sizes {
  double block = 0, experts = 0, table = 0;
};

Sizes sizes_of(const Recipe& recipe) {
  const DistSection& d = recipe.settings.dist;
  auto setting = [&](const char* path) {
    const Node* node = recipe.config.root().find(path);
    return node && node->kind() == NodeKind::integer ? static_cast<double>(node->as_int()) : 0.0;
  };
  const BlockSizes sizes = block_sizes(recipe);
  Sizes out{.block = sizes.attention,
            .table = setting("model.vocab_size") * sizes.hidden / static_cast<double>(d.tp)};
  if (sizes.experts > 0)
    out.experts = sizes.experts * sizes.mlp / static_cast<double>(d.ep * d.etp);
  else
    out.block += sizes.mlp;
  return out;
}

class Planner {
 public:
  Planner(const Recipe& recipe, const PipelinePlan& plan, const std::vector<StageParts>& stages)
      : s_(recipe.settings), plan_(plan), stages_(stages), sizes_(sizes_of(recipe)) {}

  std::vector<GradientBucket> all() {
    for (int64_t rank = 0; rank < plan_.map.ranks(); ++rank) {
      std::vector<GradientBucket> own, late;
      if (sizes_.experts > 0) add(rank, true, own, late);  // first, as in GradReducer
      add(rank, false, own, late);
      std::stable_sort(own.begin(), own.end(),
                       [](const GradientBucket& a, const GradientBucket& b) {
                         return a.parts.front() > b.parts.front();
                       });
      out_.insert(out_.end(), own.begin(), own.end());
      out_.insert(out_.end(), late.begin(), late.end());
    }
    return std::move(out_);
  }

 private:
  int64_t replicas(bool expert) const {
    const DistSection& d = s_.dist;
    const int64_t dense = s_.data_parallel() * d.cp;
    return std::max<int64_t>(1, expert ? dense * d.tp / (d.ep * d.etp) : dense);
  }
  /// A copy of a tied table on another rank has a bucket of its own, because its gradients are
  /// summed with those of the other copy first.
  bool is_tied_copy(PartId id) const {
    const bool copied = std::any_of(stages_.begin(), stages_.end(), [](const StageParts& parts) {
      return !parts.empty() && !parts.front().computes;
    });
    return copied && id.index == 0 && (id.stage == 0 || !part(id).computes);
  }
  const ModelPart& part(PartId id) const {
    return stages_[static_cast<size_t>(id.stage)][static_cast<size_t>(id.index)];
  }
  double elements(PartId id, bool expert) const {
    const ModelPart& p = part(id);
    if (p.block) return expert ? sizes_.experts : sizes_.block;
    const bool tied_head = !p.also_reads.empty();
    return expert || tied_head ? 0 : sizes_.table;
  }

  void add(int64_t rank, bool expert, std::vector<GradientBucket>& own,
           std::vector<GradientBucket>& late) {
    const int64_t n = replicas(expert) / (expert || s_.dist.outer_zero > 0 ? 1 : s_.dist.hsdp),
                  most = s_.ddp.bucket_size > 0 ? s_.ddp.bucket_size
                                                : default_bucket_size(static_cast<int>(n));
    double filled = 0;  // elements of the last of `own`
    bool open = false, full = false;
    auto close = [&] {
      if (open) set_bytes(own.back(), filled);
      open = false;
    };
    for (int64_t stage : plan_.map.stages_of(rank))
      for (size_t i = 0; i < stages_[static_cast<size_t>(stage)].size(); ++i) {
        PartId id{static_cast<int16_t>(stage), static_cast<int16_t>(i)};
        if (expert && !part(id).block) continue;
        if (is_tied_copy(id)) {
          late.push_back(bucket(id, false, true));
          set_bytes(late.back(), elements(id, false));
          continue;
        }
        if (!open || full || s_.dist.zero >= 2) {
          close();
          own.push_back(bucket(id, expert, false));
          open = true, filled = 0;
        }
        if (own.back().parts.back() != id) own.back().parts.push_back(id);
        filled += elements(id, expert);
        full = std::max(1.0, filled) >= static_cast<double>(most);  // a part is never empty
      }
    close();
  }

  GradientBucket bucket(PartId first, bool expert, bool late) const {
    GradientBucket out{.parts = {first},
                       .blocking = s_.ddp.in_order || !s_.ddp.overlap_grad_reduce,
                       .expert = expert};
    if (s_.dist.zero >= 2 && !late)
      out.when = ReduceWhen::every_backward;
    else if (s_.ddp.overlap_grad_reduce && !s_.ddp.in_order && !late)
      out.when = ReduceWhen::last_backward;
    out.collective = s_.ddp.in_order    ? "sum in the order of ranks"
                     : s_.dist.zero > 0 ? "reduce-scatter"
                                        : "all-reduce";
    out.ranks = replicas(expert);
    const bool hybrid = s_.dist.hsdp > 1 && s_.dist.zero > 0 && !s_.ddp.in_order;
    out.axis = expert ? "edp" : hybrid ? "shard-cp and copy" : "dp-cp";
    return out;
  }

  void set_bytes(GradientBucket& b, double elements) const {
    const double bytes = std::round(elements) * (s_.ddp.grads_dtype == "bf16" ? 2.0 : 4.0);
    auto others = [](int64_t ranks) { return 1 - 1 / static_cast<double>(ranks); };
    double sent = 2 * bytes * others(b.ranks);
    if (s_.ddp.in_order) {
      sent = bytes;
    } else if (s_.dist.zero > 0) {
      const int64_t copies = b.expert ? 1 : s_.dist.hsdp,
                    shards = std::max<int64_t>(1, b.ranks / copies);
      sent = bytes * others(shards) + (s_.dist.outer_zero > 0 ? 1 : 2) * bytes /
                                          static_cast<double>(shards) * others(copies);
    }
    // A model that no memory can hold is planned, too: its bytes may exceed int64_t.
    constexpr double kMost = 0x1p62;
    b.bytes = static_cast<int64_t>(std::min(bytes, kMost));
    b.sent = static_cast<int64_t>(std::min(sent, kMost));
  }

  const Settings& s_;
  const PipelinePlan& plan_;
  const std::vector<StageParts>& stages_;
  const Sizes sizes_;
  std::vector<GradientBucket> out_;
};

}  // namespace

std::vector<GradientBucket> planned_buckets(const Recipe& recipe, const PipelinePlan& plan,
                                            const std::vector<StageParts>& stages) {
  return Planner(recipe, plan, stages).all();
}

}  // namespace mtrain
