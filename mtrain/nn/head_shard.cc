#include "mtrain/nn/head_shard.h"

namespace mtrain {
namespace {

HeadShard whole_groups(const HeadLayout& all, int64_t tp, int64_t rank) {
  HeadLayout local{all.heads / tp, all.groups / tp, all.head_dim};
  return {.local = local,
          .qkv = {{.global = rank * local.width(), .local = 0, .size = local.width()}},
          .heads = {{.global = rank * local.heads * all.head_dim,
                     .local = 0,
                     .size = local.heads * all.head_dim}},
          .keys = {{.global = rank * local.groups * all.head_dim,
                    .local = 0,
                    .size = local.groups * all.head_dim}}};
}

HeadShard shared_group(const HeadLayout& all, int64_t tp, int64_t rank) {
  int64_t sharers = tp / all.groups, group = rank / sharers, slot = rank % sharers,
          e = all.head_dim;
  HeadLayout local{all.heads / tp, 1, e};
  int64_t queries = local.heads * e, base = group * all.group_stride(),
          key = base + all.queries_per_group() * e;
  return {.local = local,
          .qkv = {{.global = base + slot * queries, .local = 0, .size = queries},
                  {.global = key, .local = queries, .size = 2 * e, .is_primary = slot == 0}},
          .heads = {{.global = rank * queries, .local = 0, .size = queries}},
          .keys = {{.global = group * e, .local = 0, .size = e, .is_primary = slot == 0}},
          .copied_begin = queries,
          .copied_rows = 2 * e};
}

}  // namespace

HeadLayout layout_of_heads(int64_t hidden_size, int64_t heads, int64_t kv_heads, int64_t head_dim) {
  int64_t groups = kv_heads > 0 ? kv_heads : heads;
  MT_CHECK(heads > 0 && heads % groups == 0 && (head_dim > 0 || hidden_size % heads == 0), heads,
           " heads, ", groups, " key/value heads, hidden_size ", hidden_size);
  return {heads, groups, head_dim > 0 ? head_dim : hidden_size / heads};
}

HeadShard shard_heads(const HeadLayout& all, const Axis* axis) {
  int64_t tp = axis_size(axis), rank = axis_index(axis);
  if (tp == 1) return {.local = all, .qkv = {}, .heads = {}, .keys = {}};
  MT_USER_CHECK(all.heads % tp == 0, ErrorClass::config,
                cat(all.heads, " heads cannot be divided among dist.tp=", tp),
                "choose a dist.tp that divides model.heads");
  MT_USER_CHECK(all.groups % tp == 0 || tp % all.groups == 0, ErrorClass::config,
                cat(all.groups, " key/value heads cannot be divided among dist.tp=", tp),
                "choose a dist.tp that divides model.kv_heads, or is a multiple of it");
  return all.groups % tp == 0 ? whole_groups(all, tp, rank) : shared_group(all, tp, rank);
}

std::vector<LogicalMatrix> qkv_matrices(const HeadLayout& all, int64_t cols) {
  std::vector<LogicalMatrix> matrices = {{"q", {}, cols}, {"k", {}, cols}, {"v", {}, cols}};
  int64_t queries = all.queries_per_group() * all.head_dim;
  for (int64_t g = 0; g < all.groups; ++g) {
    int64_t base = g * all.group_stride();
    matrices[0].rows.push_back({.first = base, .rows = queries});
    matrices[1].rows.push_back({.first = base + queries, .rows = all.head_dim});
    matrices[2].rows.push_back({.first = base + queries + all.head_dim, .rows = all.head_dim});
  }
  return matrices;
}

}  // namespace mtrain
