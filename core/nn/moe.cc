#include "mtrain/nn/moe.h"

#include <algorithm>

namespace mtrain {

namespace {

ExpertRanks expert_ranks(const ParallelContext& p, const MoeOptions& options) {
  MT_USER_CHECK(!cutting(p.tp) || p.sequence, ErrorClass::config,
                cat("experts on dist.tp=", axis_size(p.tp), " ranks that all hold the same tokens"),
                "set dist.sp=true, or dist.tp=1");
  MT_USER_CHECK(options.experts % axis_size(p.ep) == 0, ErrorClass::config,
                cat(options.experts, " experts cannot be shared out over dist.ep=", axis_size(p.ep)),
                "choose a dist.ep that divides model.moe.experts");
  MT_CHECK(axis_size(p.expert_group) == axis_size(p.ep) * axis_size(p.etp) &&
               axis_index(p.expert_group) == axis_index(p.ep) * axis_size(p.etp) + axis_index(p.etp),
           "rank ", axis_index(p.expert_group), " of ", axis_size(p.expert_group), " in the group of ep and etp");
  return {.group = cutting(p.expert_group), .copies = axis_size(p.etp), .experts = options.experts};
}

/// The experts' matrices as one parameter [experts, out, in].
Parameter& expert_matrices(const Scope& s, const MoeOptions& options, Dim out, Dim in, float std) {
  return s.param("weight", {{"experts", options.experts}, std::move(out), std::move(in)}, Init::normal(std), true);
}

}  // namespace

Moe::Moe(const Scope& s, Dim embed, const MoeOptions& options)
    : options_(options),
      parallel_(&s.parallel()),
      ranks_(expert_ranks(s.parallel(), options)),
      router_(s.param("router.weight", {{"router", options.experts}, embed}, Init::normal(options.init_std), true)),
      gate_(expert_matrices(s / "experts" / "gate", options, {"expert_mlp", options.ffn}, embed, options.init_std)),
      up_(expert_matrices(s / "experts" / "up", options, {"expert_mlp", options.ffn}, embed, options.init_std)),
      down_(expert_matrices(s / "experts" / "down", options, embed, {"expert_mlp", options.ffn}, options.out_init_std)),
      record_(std::make_unique<RouterRecord>()) {
  if (options.shared_ffn > 0)
    shared_.emplace(s / "shared", embed, Dim{"mlp", options.shared_ffn}, options.init_std, options.out_init_std);
}

Tensor Moe::operator()(const Tensor& x, const ModelInput& input, const Tensor& residual) const {
  std::vector<int32_t> sequence_of;
  Routed routed = route(router_logits(x, router_.use()), options_.rule, balance(input, x.size(0), sequence_of), record_.get());
  ExpertDispatch way(x.run(), ranks_, routed.experts, x.size(0));
  Tensor beside = shared_ ? (*shared_)(x, residual) : residual;
  return way.combine(experts(way.dispatch(x), way.rows()), routed.weights_TK, beside);
}

Tensor Moe::experts(const Tensor& x, const RowCounts& rows) const {
  return grouped_linear(silu_mul(grouped_linear(x, gate_.use(), rows), grouped_linear(x, up_.use(), rows)), down_.use(), rows);
}

// The tokens of a micro-batch lie on the ranks of cp, and with sequence parallelism on those of tp.
RouterBalance Moe::balance(const ModelInput& input, int64_t tokens, std::vector<int32_t>& sequence_of) const {
  RouterBalance out{.terms = options_.terms, .z_coefficient = options_.z_coefficient, .token_weight = input.loss_weight};
  out.add_up = [p = parallel_](std::span<int64_t> counts) {
    for (const Axis* axis : {p->sequence ? p->tp : nullptr, p->cp})
      if (cutting(axis)) axis->comm().all_reduce(counts);
  };
  bool by_sequence = std::any_of(out.terms.begin(), out.terms.end(),
                                 [](const BalanceTerm& t) { return t.over == BalanceTerm::Over::sequence; });
  if (!by_sequence) return out;
  const std::vector<int32_t>& bounds = *input.bounds;
  int64_t first = parallel_->sequence ? axis_index(parallel_->tp) * tokens : 0;
  out.sequences = static_cast<int64_t>(bounds.size()) - 1;
  MT_CHECK(bounds.back() >= first + tokens, "tokens from ", first, " to ", first + tokens, " of ", bounds.back());
  for (int64_t t = first, s = 0; t < first + tokens; ++t) {
    while (bounds[static_cast<size_t>(s) + 1] <= t) ++s;
    sequence_of.push_back(static_cast<int32_t>(s));
  }
  out.sequence_of = sequence_of;
  return out;
}

}  // namespace mtrain
