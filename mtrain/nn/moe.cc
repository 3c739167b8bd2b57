#include "mtrain/nn/moe.h"

#include <algorithm>
#include <numeric>

#include "mtrain/base/rng.h"
#include "mtrain/nn/moe_sinkhorn.h"

namespace mtrain {

namespace {

ExpertRanks expert_ranks(const ParallelContext& p, const MoeOptions& options) {
  MT_USER_CHECK(!active_axis(p.tp) || p.sequence_parallel, ErrorClass::config,
                cat("experts with dist.tp=", axis_size(p.tp),
                    " need dist.sp=true: without it, all these ranks hold the same tokens"),
                "set dist.sp=true, or dist.tp=1");
  MT_USER_CHECK(options.experts % axis_size(p.ep) == 0, ErrorClass::config,
                cat(options.experts, " experts cannot be divided among dist.ep=", axis_size(p.ep)),
                "choose a dist.ep that divides model.moe.experts");
  MT_CHECK(
      axis_size(p.expert_group) == axis_size(p.ep) * axis_size(p.etp) &&
          axis_index(p.expert_group) == axis_index(p.ep) * axis_size(p.etp) + axis_index(p.etp),
      "rank ", axis_index(p.expert_group), " of ", axis_size(p.expert_group),
      " in the group of ep and etp");
  return {.group = active_axis(p.expert_group),
          .copies = axis_size(p.etp),
          .experts = options.experts,
          .during_token_exchange = p.during_token_exchange,
          .exchange_watch = p.exchange_watch,
          .overlap_wgrad = p.overlap_wgrad,
          .overlap_send = options.shared_overlap && options.shared_ffn > 0,
          .gather_tokens = options.gather_tokens};
}

/// What the experts read and write.
Dim expert_space(const Dim& embed, const MoeOptions& options) {
  return options.latent > 0 ? Dim{"latent", options.latent} : embed;
}

/// The experts' matrices as one parameter [experts, out, in].
Parameter& expert_matrices(const Scope& s, const MoeOptions& options, Dim out, Dim in, float std) {
  return s.param("weight", {{"experts", options.experts}, std::move(out), std::move(in)},
                 Init::normal(std), true, ParamRole::expert_matrix);
}

Tensor used(Parameter* p) { return p ? p->use() : Tensor(); }

}  // namespace

Moe::Moe(const Scope& s, Dim embed, const MoeOptions& options)
    : options_(options),
      parallel_(&s.parallel()),
      plan_(&s.blocks()),
      ranks_(expert_ranks(s.parallel(), options)),
      router_(s.param("router.weight", {{"router", options.experts}, embed},
                      Init::normal(options.init_std), true, ParamRole::router)),
      gate_(expert_matrices(s / "experts" / "gate", options, {"expert_mlp", options.ffn},
                            expert_space(embed, options), options.init_std)),
      up_(expert_matrices(s / "experts" / "up", options, {"expert_mlp", options.ffn},
                          expert_space(embed, options), options.init_std)),
      down_(expert_matrices(s / "experts" / "down", options, expert_space(embed, options),
                            {"expert_mlp", options.ffn}, options.out_init_std)),
      quantized_gate_((s / "experts" / "gate").quantized_products(gate_)),
      quantized_up_((s / "experts" / "up").quantized_products(up_)),
      quantized_down_((s / "experts" / "down").quantized_products(down_)),
      record_(std::make_unique<RouterRecord>()) {
  add_biases(s, expert_space(embed, options));
  gate_adapter_ = ExpertAdapter::of(s / "experts" / "gate", gate_);
  up_adapter_ = ExpertAdapter::of(s / "experts" / "up", up_);
  down_adapter_ = ExpertAdapter::of(s / "experts" / "down", down_);
  if (options.latent > 0) {
    const Dim latent = expert_space(embed, options);
    latent_in_.emplace(s / "latent_in", latent, embed, LinearOptions{options.init_std});
    latent_out_.emplace(s / "latent_out", embed, latent, LinearOptions{options.out_init_std});
  }
  jitter_key_ = name_key((s / "router" / "jitter").path());
  if (options.shared_ffn > 0)
    shared_.emplace(s / "shared", embed, Dim{"mlp", options.shared_ffn},
                    MlpOptions{.init_std = options.init_std,
                               .out_init_std = options.out_init_std,
                               .activation = options.activation});
  if (options.shared_gate)
    shared_gate_ = &s.param("shared.scale.weight", {{"router", 1}, embed},
                            Init::normal(options.init_std), true, ParamRole::router);
  if (options.bias) bias_ = &s.buffer("router.bias", options.experts, 0);
  if (s.adapters()) options_.bias_update_rate = 0;  // the model is frozen
  if (has_terms(BalanceTerm::Over::given)) load_ = &s.buffer("router.load", options.experts, 1);
  MT_USER_CHECK(!has_terms(BalanceTerm::Over::sequence) || parallel_->max_tokens_per_cp_rank == 0,
                ErrorClass::config,
                "seq_aux_loss cannot be combined with dist.dynamic_cp, where a sequence is split "
                "over changing ranks",
                "choose aux_loss, or dist.dynamic_cp=false");
}

void Moe::add_biases(const Scope& s, const Dim& space) {
  if (options_.logit_bias)
    router_bias_ = &s.param("router.logit_bias", {{"router", options_.experts}}, Init::zeros(),
                            false, ParamRole::bias);
  if (!options_.expert_bias) return;
  auto add = [&](const char* name, Dim out) {
    Parameter& p = (s / "experts" / name)
                       .param("bias", {{"experts", options_.experts}, std::move(out)},
                              Init::zeros(), false, ParamRole::bias);
    p.matrices.clear();  // a table of vectors
    return &p;
  };
  gate_bias_ = add("gate", {"expert_mlp", options_.ffn});
  up_bias_ = add("up", {"expert_mlp", options_.ffn});
  down_bias_ = add("down", space);
  // The ranks' results are partial sums: one rank adds the bias and has its gradient.
  if (const Axis* shards = active_axis(parallel_->etp))
    down_bias_->partial.push_back({shards, 0, down_bias_->numel()});
}

bool Moe::has_terms(BalanceTerm::Over over) const {
  return std::any_of(options_.terms.begin(), options_.terms.end(),
                     [&](const BalanceTerm& t) { return t.over == over; });
}

Tensor Moe::operator()(const Tensor& x, const ModelInput& input, const Tensor& residual) const {
  auto mixture = [this, input](const Tensor& a, const Tensor& b) { return run(a, input, b); };
  return plan_->run(RecomputePart::moe, mixture, x, residual);
}

Tensor Moe::run(const Tensor& x, const ModelInput& input, const Tensor& residual) const {
  std::vector<int32_t> sequence_of;
  RouterBalance balanced = balance(input, x.size(0), sequence_of);
  Tensor logits = logits_of(x);
  ExecutionContext& ctx = x.context();
  std::vector<double> assignment;
  if (options_.sinkhorn && ctx.training && ctx.backend().computes()) {
    assignment = sinkhorn_assignment(logits, balanced.padding, *parallel_);
    balanced.selection_scores = assignment;
  }
  Routed routed = route(logits, options_.rule, balanced, record_.get());
  const int64_t padded = drop(routed, ctx);
  ExpertDispatch dispatch(ctx, ranks_, routed.experts, x.size(0), padded);
  Tensor sent = dispatch.send(latent_in_ ? (*latent_in_)(x) : x);
  Tensor addend = add_shared_expert(x, residual);  // with shared_overlap, during the exchange
  Tensor rows = experts(dispatch.arrive(sent), dispatch);
  if (latent_out_) return (*latent_out_)(dispatch.combine(rows, routed.weights_TK), addend);
  return dispatch.combine(rows, routed.weights_TK, addend);
}

Tensor Moe::logits_of(const Tensor& x) const {
  return router_logits(options_.jitter > 0 ? jitter(x, options_.jitter, jitter_key_) : x,
                       router_.use(), used(router_bias_), options_.router_dtype);
}

/// Returns the number of rows to which experts are padded; 0: they are not.
int64_t Moe::drop(Routed& routed, ExecutionContext& ctx) const {
  if (!options_.capacity.factor) return 0;
  std::vector<float> weights(static_cast<size_t>(routed.weights_TK.numel()));
  ctx.download(routed.weights_TK, weights.data());
  const int64_t most = drop_beyond_capacity(options_.capacity, ctx, *parallel_, options_.experts,
                                            weights, routed.weights_TK.size(0), routed.experts);
  return options_.capacity.pad ? padded_rows(ctx, *parallel_, most) : 0;
}

Tensor Moe::add_shared_expert(const Tensor& x, const Tensor& residual) const {
  if (!shared_) return residual;
  auto expert = [this](const Tensor& a, const Tensor& b) { return shared(a, b); };
  return plan_->run(RecomputePart::shared_experts, expert, x, residual);
}

// The gate is implemented as a router with one expert that every token selects, and the scaled sum
// has this expert as its only term.
Tensor Moe::shared(const Tensor& x, const Tensor& residual) const {
  if (!shared_gate_) return (*shared_)(x, residual);
  Tensor weights = route(router_logits(x, shared_gate_->use()),
                         {.score = RouterRule::Score::sigmoid, .top_k = 1}, {}, nullptr)
                       .weights_TK;
  std::vector<int32_t> each(static_cast<size_t>(x.size(0)));
  std::iota(each.begin(), each.end(), 0);
  Tensor ids = x.context().from_host<int32_t>(each, {x.size(0)});
  return combine_rows((*shared_)(x), weights, {{ids, ids.view({x.size(0), 1})}, ids, 1}, residual);
}

Tensor Moe::experts(const Tensor& x, const ExpertDispatch& dispatch) const {
  const RowCounts& rows = dispatch.rows();
  const auto& later = dispatch.deferred_gradients();
  Tensor open = grouped_linear(x, gate_.use(), rows, later, quantized_gate_, used(gate_bias_)),
         up = grouped_linear(x, up_.use(), rows, later, quantized_up_, used(up_bias_));
  if (gate_adapter_) open = gate_adapter_->add_to(open, x, rows);
  if (up_adapter_) up = up_adapter_->add_to(up, x, rows);
  auto act = [kind = options_.activation, swish = options_.swish](const Tensor& a,
                                                                  const Tensor& b) {
    return swish == SwishGate() ? gate(kind, a, b) : swish_gate(a, b, swish);
  };
  Tensor inner = plan_->run(RecomputePart::moe_act, act, open, up);
  const bool adds_bias = axis_index(parallel_->etp) == 0;
  Tensor out = grouped_linear(inner, down_.use(), rows, later, quantized_down_,
                              adds_bias ? used(down_bias_) : Tensor());
  return down_adapter_ ? down_adapter_->add_to(out, inner, rows) : out;
}

// The tokens of a micro-batch are sharded over cp, and with sequence parallelism also over tp.
RouterBalance Moe::balance(const ModelInput& input, int64_t tokens,
                           std::vector<int32_t>& sequence_of) const {
  RouterBalance out{.terms = options_.terms,
                    .z_coefficient = options_.z_coefficient,
                    .token_weight = input.loss_weight};
  out.all_reduce_sum = [p = parallel_](std::span<int64_t> counts) {
    for (const Axis* axis : {p->sequence_parallel ? p->tp : nullptr, p->cp})
      if (active_axis(axis)) axis->comm().all_reduce(counts);
  };
  if (bias_) out.bias = bias_->values;
  const int64_t first = parallel_->sequence_parallel ? axis_index(parallel_->tp) * tokens : 0;
  if (input.padding) {
    MT_CHECK(static_cast<int64_t>(input.padding->size()) >= first + tokens, "tokens from ", first,
             " to ", first + tokens, " of ", input.padding->size());
    out.padding =
        std::span(*input.padding).subspan(static_cast<size_t>(first), static_cast<size_t>(tokens));
  }
  for (BalanceTerm& term : out.terms)
    if (term.over == BalanceTerm::Over::given) term.load = load_->values;
  if (!has_terms(BalanceTerm::Over::sequence)) return out;
  const std::vector<int32_t>& bounds = *input.bounds;
  out.sequences = static_cast<int64_t>(bounds.size()) - 1;
  MT_CHECK(bounds.back() >= first + tokens, "tokens from ", first, " to ", first + tokens, " of ",
           bounds.back());
  for (int64_t t = first, s = 0; t < first + tokens; ++t) {
    while (bounds[static_cast<size_t>(s) + 1] <= t) ++s;
    sequence_of.push_back(static_cast<int32_t>(s));
  }
  out.sequence_of = sequence_of;
  return out;
}

std::vector<double> Moe::record_values() const {
  std::vector<double> out(static_cast<size_t>(num_record_values()));
  std::copy(record_->choices.begin(), record_->choices.end(), out.begin());
  std::copy(record_->terms.begin(), record_->terms.end(), out.begin() + options_.experts);
  out[out.size() - 2] = record_->z;
  out[out.size() - 1] = static_cast<double>(record_->tokens);
  return out;
}

Moe::StepRecord Moe::end_step(std::span<const double> sums, bool updated) {
  *record_ = {};
  auto experts = static_cast<size_t>(options_.experts), terms = options_.terms.size();
  StepRecord all{.choices = {sums.begin(), sums.begin() + options_.experts},
                 .terms = {sums.begin() + options_.experts,
                           sums.begin() + options_.experts + static_cast<ptrdiff_t>(terms)},
                 .z = sums[experts + terms],
                 .tokens = sums[experts + terms + 1]};
  double share =
      std::accumulate(all.choices.begin(), all.choices.end(), 0.0) / static_cast<double>(experts);
  if (!updated || share == 0) return all;
  for (size_t e = 0; e < experts; ++e) {
    double missing = share - all.choices[e];
    if (bias_)
      bias_->values[e] += static_cast<float>(missing > 0   ? options_.bias_update_rate
                                             : missing < 0 ? -options_.bias_update_rate
                                                           : 0);
    if (load_) load_->values[e] = static_cast<float>(all.choices[e] / share);
  }
  return all;
}

}  // namespace mtrain
