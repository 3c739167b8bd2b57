#include "mtrain/nn/moe.h"

#include <algorithm>

namespace mtrain {

Moe::Moe(const Scope& s, Dim embed, const MoeOptions& options)
    : options_(options),
      ranks_{.experts = options.experts},
      router_(s.param("router.weight", {{"router", options.experts}, embed}, Init::normal(options.init_std), true)),
      gate_(s.param("experts.gate.weight", {{"experts", options.experts}, {"mlp", options.ffn}, embed},
                    Init::normal(options.init_std), true)),
      up_(s.param("experts.up.weight", {{"experts", options.experts}, {"mlp", options.ffn}, embed},
                  Init::normal(options.init_std), true)),
      down_(s.param("experts.down.weight", {{"experts", options.experts}, embed, {"mlp", options.ffn}},
                    Init::normal(options.out_init_std), true)),
      record_(std::make_unique<RouterRecord>()) {
  if (options.shared_ffn > 0)
    shared_.emplace(s / "shared", embed, Dim{"mlp", options.shared_ffn}, options.init_std, options.out_init_std);
}

Tensor Moe::operator()(const Tensor& x, const ModelInput& input, const Tensor& residual) const {
  std::vector<int32_t> sequence_of;
  Routed routed = route(router_logits(x, router_.use()), options_.rule, balance(input, sequence_of), record_.get());
  ExpertDispatch way(x.run(), ranks_, routed.experts, x.size(0));
  Tensor beside = shared_ ? (*shared_)(x, residual) : residual;
  return way.combine(experts(way.dispatch(x), way.rows()), routed.weights_TK, beside);
}

Tensor Moe::experts(const Tensor& x, const RowCounts& rows) const {
  return grouped_linear(silu_mul(grouped_linear(x, gate_.use(), rows), grouped_linear(x, up_.use(), rows)), down_.use(), rows);
}

RouterBalance Moe::balance(const ModelInput& input, std::vector<int32_t>& sequence_of) const {
  RouterBalance out{.terms = options_.terms, .z_coefficient = options_.z_coefficient, .token_weight = input.loss_weight};
  bool by_sequence = std::any_of(out.terms.begin(), out.terms.end(),
                                 [](const BalanceTerm& t) { return t.over == BalanceTerm::Over::sequence; });
  if (!by_sequence) return out;
  const std::vector<int32_t>& bounds = *input.bounds;
  for (size_t s = 0; s + 1 < bounds.size(); ++s)
    sequence_of.insert(sequence_of.end(), static_cast<size_t>(bounds[s + 1] - bounds[s]), static_cast<int32_t>(s));
  out.sequence_of = sequence_of;
  out.sequences = static_cast<int64_t>(bounds.size()) - 1;
  return out;
}

}  // namespace mtrain
