#include "mtrain/nn/moe_settings.h"

#include <algorithm>

namespace mtrain {

using enum ResumeClass;

void RouterSettings::bind(Fields& f) {
  f("score", score, "function that turns router logits into scores")
      .one_of({"softmax", "sigmoid", "sqrtsoftplus"})
      .resume(impossible)
      .renamed_from({"moe_router_score_function", "scoring_func"});
  f("pre_softmax", pre_softmax,
    "apply softmax over all experts before top_k, instead of over the selected experts after it")
      .renamed_from({"moe_router_pre_softmax"});
  f("normalize", normalize,
    "divide the scores of the selected experts by their sum; auto: not with pre_softmax, and not "
    "for a single expert that another score than softmax selected")
      .one_of({"auto", "always", "never"});
  f("scaling", scaling, "factor of the selected scores")
      .exclusive_min(0)
      .renamed_from({"moe_router_topk_scaling_factor", "routed_scaling_factor"});
  f("groups", groups,
    "number of expert groups; experts are selected within group_top_k of them; 0: no groups")
      .min(0)
      .max(kLargestDimension)
      .renamed_from({"moe_router_num_groups", "n_group"});
  f("group_top_k", group_top_k, "number of groups to select")
      .min(0)
      .max(kLargestDimension)
      .renamed_from({"moe_router_group_topk", "topk_group"});
  f("group_best", group_best,
    "a group's rank is the sum of its highest scores, this many of them; 0: top_k / group_top_k, "
    "at least 1")
      .min(0)
      .max(kLargestDimension);
  f("logit_bias", logit_bias, "the router's projection adds a learned bias (gpt-oss)")
      .resume(impossible);
  bind_balance(f);
}

void RouterSettings::bind_balance(Fields& f) {
  f("balancing", balancing,
    "load-balancing methods; sinkhorn: in training, experts are selected by Sinkhorn's algorithm, "
    "which gives each expert about the same share of a micro-batch's tokens, instead of by the "
    "highest scores")
      .one_of({"aux_loss", "seq_aux_loss", "global_aux_loss", "sinkhorn", "none"})
      .training_only()
      .renamed_from({"moe_router_load_balancing_type"});
  f("aux_loss_coeff", aux_loss_coeff, "coefficient of each balancing loss")
      .min(0)
      .training_only()
      .renamed_from({"moe_aux_loss_coeff", "router_aux_loss_coef"});
  f("z_loss_coeff", z_loss_coeff,
    "coefficient of the z-loss, which penalizes large router logits; 0: none")
      .min(0)
      .training_only()
      .renamed_from({"moe_z_loss_coeff"});
  f("bias", bias,
    "add a bias per expert to the scores for selection only, and update it toward equal load")
      .resume(impossible)
      .renamed_from({"moe_router_enable_expert_bias"});
  f("bias_update_rate", bias_update_rate, "step size of the bias per update")
      .min(0)
      .training_only()
      .renamed_from({"moe_router_bias_update_rate"});
  f("dtype", dtype, "data type of the product that gives the router's logits")
      .one_of({"bf16", "fp32", "fp64"})
      .renamed_from({"moe_router_dtype"});
  f("jitter", jitter,
    "while training, multiply the router's input by random factors from 1 - jitter to 1 + jitter")
      .min(0)
      .training_only()
      .exclusive_max(1)
      .renamed_from({"moe_input_jitter_eps", "router_jitter_noise"});
}

void MoeSettings::bind(Fields& f) {
  f("experts", experts, "number of experts per block")
      .min(1)
      .max(kLargestDimension)
      .resume(impossible)
      .fact(Fact::experts)
      .renamed_from({"num_moe_experts", "num_experts", "num_local_experts", "n_routed_experts"});
  f("top_k", top_k, "number of experts per token")
      .min(1)
      .max(kLargestDimension)
      .renamed_from({"moe_router_topk", "num_experts_per_tok"});
  f("ffn_hidden_size", ffn_hidden_size, "MLP width of one expert; 0: model.ffn_hidden_size")
      .min(0)
      .max(kLargestDimension)
      .resume(impossible)
      .renamed_from({"moe_ffn_hidden_size", "moe_intermediate_size"});
  f("shared_ffn_hidden_size", shared_ffn_hidden_size,
    "MLP width of the shared expert, which processes every token; 0: no shared expert")
      .min(0)
      .max(kLargestDimension)
      .resume(impossible)
      .renamed_from({"moe_shared_expert_intermediate_size"});
  f("shared_experts", shared_experts,
    "number of shared experts, each as wide as a routed one; they are computed as one MLP; 0: "
    "shared_ffn_hidden_size gives the width")
      .min(0)
      .max(kLargestDimension)
      .resume(impossible)
      .renamed_from({"n_shared_experts", "moe_num_shared_experts"});
  f("expert_bias", expert_bias, "the projections of the experts add biases (gpt-oss)")
      .resume(impossible);
  f("shared_gate", shared_gate, "a learned gate scales the shared expert's output")
      .resume(impossible)
      .renamed_from({"moe_shared_expert_gate"});
  f("shared_overlap", shared_overlap, "overlap the shared expert with the all-to-all of tokens")
      .resume(safe)
      .renamed_from({"moe_shared_expert_overlap"});
  f("first_dense_layers", first_dense_layers,
    "number of blocks at the start of the model that have a dense MLP")
      .min(0)
      .max(kLargestDimension)
      .resume(impossible)
      .renamed_from({"first_k_dense_replace"});
  f("layer_freq", layer_freq, "after the first dense blocks, every n-th block has experts")
      .min(1)
      .max(kLargestDimension)
      .resume(impossible)
      .renamed_from({"decoder_sparse_step"});
  f("latent_size", latent_size,
    "project tokens to this width before they are sent to the experts, and the sum over a token's "
    "experts back after it; 0: no projection")
      .min(0)
      .max(kLargestDimension)
      .resume(impossible)
      .renamed_from({"moe_latent_size"});
  bind_activation(f);
  bind_dispatch(f);
  f.section("router", router);
}

void MoeSettings::bind_activation(Fields& f) {
  f("activation_clamp", activation_clamp,
    "limit what enters the experts' activation: gate(x) to at most this value, up(x) to this "
    "absolute value; null: no limit")
      .exclusive_min(0)
      .renamed_from({"activation_func_clamp_value", "swiglu_limit"});
  f("swish_factor", swish_factor,
    "factor f of the experts' activation, z * sigmoid(f * z); 1: silu, 1.702: the approximation of "
    "gelu in gpt-oss")
      .exclusive_min(0)
      .resume(impossible)
      .renamed_from({"swiglu_alpha"});
  f("glu_offset", glu_offset,
    "added to up(x) of the experts before the product with the activation (gpt-oss: 1)")
      .resume(impossible)
      .renamed_from({"glu_linear_offset"});
}

void MoeSettings::bind_dispatch(Fields& f) {
  f("capacity_factor", capacity_factor,
    "maximum tokens of an expert, as a multiple of its equal share; null: no limit")
      .exclusive_min(0)
      .renamed_from({"moe_expert_capacity_factor"});
  f("pad_to_capacity", pad_to_capacity,
    "pad the rows of every expert to its capacity, so that all experts are one batched product")
      .resume(safe)
      .renamed_from({"moe_pad_expert_input_to_capacity"});
  f("drop_policy", drop_policy,
    "tokens to drop above the capacity; probs: those with the lowest scores, position: the last "
    "ones")
      .one_of({"probs", "position"})
      .renamed_from({"moe_token_drop_policy"});
  f("dispatcher", dispatcher,
    "how tokens are sent to the ranks of their experts; alltoall: each to those of its own "
    "experts, "
    "allgather: each to all ranks of dist.ep")
      .one_of({"allgather", "alltoall"})
      .resume(safe)
      .renamed_from({"moe_token_dispatcher_type"});
}

namespace {

RouterRule::Score score(const std::string& name) {
  if (name == "sigmoid") return RouterRule::Score::sigmoid;
  return name == "softmax" ? RouterRule::Score::softmax : RouterRule::Score::sqrt_softplus;
}

std::vector<BalanceTerm> balance_terms(const RouterSettings& s) {
  std::vector<BalanceTerm> out;
  for (size_t i = 0; i < s.balancing.size(); ++i) {
    double coefficient =
        s.aux_loss_coeff.empty() ? 0 : s.aux_loss_coeff[std::min(i, s.aux_loss_coeff.size() - 1)];
    if (coefficient == 0 || s.balancing[i] == "none" || s.balancing[i] == "sinkhorn") continue;
    out.push_back({s.balancing[i] == "seq_aux_loss"      ? BalanceTerm::Over::sequence
                   : s.balancing[i] == "global_aux_loss" ? BalanceTerm::Over::given
                                                         : BalanceTerm::Over::micro_batch,
                   coefficient,
                   {}});
  }
  return out;
}

}  // namespace

bool RouterSettings::sinkhorn() const {
  return std::find(balancing.begin(), balancing.end(), "sinkhorn") != balancing.end();
}

RouterRule RouterSettings::rule(int64_t top_k) const {
  RouterRule out{.score = mtrain::score(score),
                 .top_k = top_k,
                 .pre_softmax = pre_softmax,
                 .scaling = scaling,
                 .groups = groups,
                 .group_top_k = group_top_k,
                 .group_best = group_best};
  if (normalize != "auto") out.normalize = normalize == "always";
  return out;
}

int64_t MoeSettings::shared_width(int64_t ffn) const {
  return shared_experts > 0 ? shared_experts * (ffn_hidden_size > 0 ? ffn_hidden_size : ffn)
                            : shared_ffn_hidden_size;
}

void MoeSettings::check() const {
  const std::string place = "model.moe";
  MT_USER_CHECK(top_k <= experts, ErrorClass::config,
                cat(place, ".top_k is ", top_k, " of ", experts, " experts"),
                "choose at most the number of experts");
  MT_USER_CHECK(router.groups == 0 || experts % router.groups == 0, ErrorClass::config,
                cat(place, ".experts (", experts, ") is not a multiple of ", place,
                    ".router.groups (", router.groups, ")"),
                "all groups must have the same number of experts");
  MT_USER_CHECK(
      router.group_top_k <= router.groups, ErrorClass::config,
      cat(place, ".router.group_top_k is ", router.group_top_k, " of ", router.groups, " groups"),
      "choose at most the number of groups");
  int64_t open = router.group_top_k > 0 ? experts / router.groups * router.group_top_k : experts;
  MT_USER_CHECK(
      top_k <= open, ErrorClass::config,
      cat(place, ".top_k is ", top_k, ", but the chosen groups have only ", open, " experts"),
      cat("raise ", place, ".router.group_top_k"));
  MT_USER_CHECK(
      router.normalize != "never" || router.score != "softmax" || router.pre_softmax,
      ErrorClass::config,
      cat(place,
          ".router.normalize=never cannot be combined with softmax over the selected experts"),
      cat("their sum is 1 in any case: set ", place, ".router.pre_softmax=true"));
  MT_USER_CHECK(shared_experts == 0 || shared_ffn_hidden_size == 0, ErrorClass::config,
                cat(place, ".shared_experts and ", place,
                    ".shared_ffn_hidden_size both give the width of the shared expert"),
                "leave one of them out");
  MT_USER_CHECK(
      (swish_factor == 1 && glu_offset == 0 && !activation_clamp) ||
          (shared_experts == 0 && shared_ffn_hidden_size == 0),
      ErrorClass::config,
      cat(place,
          ".activation_clamp, swish_factor and glu_offset cannot be combined with a shared expert"),
      "the shared expert has none of them: leave them out, or the shared expert");
}

MoeOptions MoeSettings::options(int64_t ffn) const {
  check();
  return {.experts = experts,
          .ffn = ffn_hidden_size > 0 ? ffn_hidden_size : ffn,
          .latent = latent_size,
          .shared_ffn = shared_width(ffn),
          .shared_overlap = shared_overlap,
          .shared_gate = shared_gate,
          .rule = router.rule(top_k),
          .terms = balance_terms(router),
          .z_coefficient = router.z_loss_coeff,
          .capacity = {.keep = drop_policy == "probs" ? ExpertCapacity::Keep::best
                                                      : ExpertCapacity::Keep::first,
                       .factor = capacity_factor,
                       .pad = pad_to_capacity},
          .bias = router.bias,
          .bias_update_rate = router.bias_update_rate,
          .swish = {.factor = static_cast<float>(swish_factor),
                    .offset = static_cast<float>(glu_offset),
                    .limit = static_cast<float>(activation_clamp.value_or(0))},
          .expert_bias = expert_bias,
          .logit_bias = router.logit_bias,
          .sinkhorn = router.sinkhorn(),
          .jitter = static_cast<float>(router.jitter),
          .router_dtype = *dtype_from_name(router.dtype),
          .gather_tokens = dispatcher == "allgather"};
}

}  // namespace mtrain
