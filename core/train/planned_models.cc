#include "mtrain/train/planned_models.h"

namespace mtrain {

using enum ResumeClass;

void RouterSettings::bind(Fields& f) {
  f("score", score, "how logits become scores")
      .one_of({"softmax", "sigmoid", "sqrtsoftplus"})
      .resume(impossible)
      .renamed_from({"moe_router_score_function", "scoring_func"});
  f("pre_softmax", pre_softmax, "softmax over all experts before top_k, instead of over the chosen ones")
      .renamed_from({"moe_router_pre_softmax"});
  f("scaling", scaling, "factor of the chosen scores")
      .exclusive_min(0)
      .renamed_from({"moe_router_topk_scaling_factor", "routed_scaling_factor"});
  f("groups", groups, "experts are chosen within some of these groups; 0: among all")
      .min(0)
      .renamed_from({"moe_router_num_groups", "n_group"});
  f("group_top_k", group_top_k, "how many groups")
      .min(0)
      .renamed_from({"moe_router_group_topk", "topk_group"});
  f("balancing", balancing, "what keeps experts equally busy")
      .one_of({"aux_loss", "seq_aux_loss", "global_aux_loss", "sinkhorn", "quantile_balancing", "none"})
      .renamed_from({"moe_router_load_balancing_type"});
  f("aux_loss_coeff", aux_loss_coeff, "weight of each balancing loss")
      .min(0)
      .renamed_from({"moe_aux_loss_coeff"});
  f("z_loss_coeff", z_loss_coeff, "weight of the loss on large logits; 0: none")
      .min(0)
      .renamed_from({"moe_z_loss_coeff"});
  f("bias", bias, "a bias for each expert, moved towards equal load, joins in the choice only")
      .resume(impossible)
      .renamed_from({"moe_router_enable_expert_bias"});
  f("bias_update_rate", bias_update_rate, "how far it moves in one update")
      .min(0)
      .renamed_from({"moe_router_bias_update_rate"});
  f("dtype", dtype, "type of the router's computation")
      .one_of({"bf16", "fp32", "fp64"})
      .renamed_from({"moe_router_dtype"});
  f("jitter", jitter, "the router's input is scaled by 1 - this to 1 + this at random")
      .min(0)
      .exclusive_max(1)
      .renamed_from({"moe_input_jitter_eps", "router_jitter_noise"});
  f("force_balance", force_balance, "tokens go to random experts: for measuring speed")
      .renamed_from({"moe_router_force_load_balancing"});
}

void MoeSettings::bind(Fields& f) {
  f("experts", experts, "experts of a block")
      .min(1)
      .resume(impossible)
      .renamed_from({"num_moe_experts", "num_experts", "num_local_experts", "n_routed_experts"});
  f("top_k", top_k, "experts that see a token")
      .min(1)
      .renamed_from({"moe_router_topk", "num_experts_per_tok"});
  f("ffn_hidden_size", ffn_hidden_size, "width of one expert; 0: model.ffn_hidden_size")
      .min(0)
      .resume(impossible)
      .renamed_from({"moe_ffn_hidden_size", "moe_intermediate_size"});
  f("shared_ffn_hidden_size", shared_ffn_hidden_size, "width of the expert that sees every token; 0: none")
      .min(0)
      .resume(impossible)
      .renamed_from({"moe_shared_expert_intermediate_size"});
  f("shared_gate", shared_gate, "a learnt gate scales the shared expert")
      .resume(impossible)
      .renamed_from({"moe_shared_expert_gate"});
  f("shared_overlap", shared_overlap, "the shared expert works behind the exchange of tokens")
      .resume(safe)
      .renamed_from({"moe_shared_expert_overlap"});
  f("first_dense_layers", first_dense_layers, "blocks at the start with a plain MLP")
      .min(0)
      .resume(impossible)
      .renamed_from({"first_k_dense_replace"});
  f("layer_freq", layer_freq, "behind them, every n-th block has experts")
      .min(1)
      .resume(impossible)
      .renamed_from({"moe_layer_freq", "decoder_sparse_step"});
  f("latent_size", latent_size, "experts work in a narrower stream of this width; 0: they do not")
      .min(0)
      .resume(impossible)
      .renamed_from({"moe_latent_size"});
  f("activation_clamp", activation_clamp, "largest size of the gated MLP's inner values; null: no limit")
      .exclusive_min(0)
      .renamed_from({"activation_func_clamp_value", "swiglu_limit"});
  bind_dispatch(f);
  f.section("router", router);
}

void MoeSettings::bind_dispatch(Fields& f) {
  f("capacity_factor", capacity_factor,
    "an expert takes this times its equal share of tokens; null: all that come")
      .exclusive_min(0)
      .renamed_from({"moe_expert_capacity_factor"});
  f("pad_to_capacity", pad_to_capacity, "and is given exactly that many")
      .renamed_from({"moe_pad_expert_input_to_capacity"});
  f("drop_policy", drop_policy, "which tokens are too many: those of least score, or the last ones")
      .one_of({"probs", "position"})
      .renamed_from({"moe_token_drop_policy"});
  f("rank_capacity_factor", rank_capacity_factor, "the same limit for all experts of a rank; null: none")
      .exclusive_min(0)
      .renamed_from({"moe_expert_rank_capacity_factor"});
  f("dispatcher", dispatcher, "how tokens reach their experts' ranks")
      .one_of({"allgather", "alltoall", "flex"})
      .resume(safe)
      .renamed_from({"moe_token_dispatcher_type"});
  f("dispatcher_backend", dispatcher_backend, "flex: by which library")
      .one_of({"deepep", "hybridep", "ncclep"})
      .resume(safe)
      .renamed_from({"moe_flex_dispatcher_backend"});
  f("dispatch_dtype", dispatch_dtype, "type in which tokens travel").one_of({"bf16", "mxfp8"});
  f("grouped_gemm", grouped_gemm, "one product for all experts of a rank")
      .resume(safe)
      .renamed_from({"moe_grouped_gemm"});
  f("permute_fusion", permute_fusion, "one kernel sorts tokens by expert")
      .resume(safe)
      .renamed_from({"moe_permute_fusion"});
  f("quantization_padding", quantization_padding, "the router fills experts up to what FP8 products ask for")
      .renamed_from({"moe_router_padding_for_quantization"});
}

void MlaSettings::bind(Fields& f) {
  const std::string mla = "multi-head latent attention";
  f("kv_lora_rank", kv_lora_rank, "width of the latent of keys and values; 0: plain heads")
      .min(0)
      .needs(mla)
      .resume(impossible);
  f("q_lora_rank", q_lora_rank, "width of the latent of queries; 0: none")
      .min(0)
      .needs(mla)
      .resume(impossible);
  f("qk_head_dim", qk_head_dim, "width of a head without positions")
      .min(1)
      .needs(mla)
      .resume(impossible)
      .renamed_from({"qk_nope_head_dim"});
  f("rope_head_dim", rope_head_dim, "width of the rotary part of a head")
      .min(1)
      .needs(mla)
      .resume(impossible)
      .renamed_from({"qk_pos_emb_head_dim", "qk_rope_head_dim"});
  f("v_head_dim", v_head_dim, "width of a head's values").min(1).needs(mla).resume(impossible);
  f("cache_latents", cache_latents, "generation keeps latents instead of keys and values")
      .needs(mla)
      .resume(safe)
      .renamed_from({"cache_mla_latents"});
}

void MtpSettings::bind(Fields& f) {
  const std::string mtp = "prediction of several tokens";
  f("layers", layers, "further tokens that are predicted, a block for each")
      .min(0)
      .needs(mtp)
      .resume(impossible)
      .renamed_from({"mtp_num_layers", "num_nextn_predict_layers"});
  f("loss_coeff", loss_coeff, "weight of their loss")
      .min(0)
      .needs(mtp)
      .renamed_from({"mtp_loss_scaling_factor"});
  f("standalone", standalone, "they have a pipeline stage of their own")
      .needs(mtp)
      .resume(safe)
      .renamed_from({"mtp_standalone"});
}

void MoeDecoderSettings::bind(Fields& f) {
  f("layers", layers, "decoder blocks")
      .min(1)
      .resume(impossible)
      .renamed_from({"num_layers", "num_hidden_layers"});
  f("hidden_size", hidden_size, "width of the residual stream").min(1).resume(impossible);
  f("heads", heads, "query heads").min(1).resume(impossible).renamed_from({"num_attention_heads"});
  f("kv_heads", kv_heads, "key/value heads; 0: as many as query heads")
      .min(0)
      .resume(impossible)
      .renamed_from({"num_query_groups", "num_key_value_heads"});
  f("ffn_hidden_size", ffn_hidden_size, "width of the MLP of blocks without experts")
      .min(1)
      .resume(impossible)
      .renamed_from({"intermediate_size"});
  f("head_dim", head_dim, "width of one head; 0: hidden_size / heads")
      .min(0)
      .resume(impossible)
      .renamed_from({"kv_channels"});
  f("norm_eps", norm_eps, "added to the mean square")
      .exclusive_min(0)
      .renamed_from({"rms_norm_eps", "layernorm_epsilon"});
  f("init_std", init_std, "standard deviation of start weights")
      .min(0)
      .renamed_from({"init_method_std", "initializer_range"});
  f("tie_embeddings", tie_embeddings, "the head uses the embedding's matrix")
      .resume(impossible)
      .renamed_from({"tie_word_embeddings"});
  f.section("rope", rope);
  f.section("attention", attention);
  f.section("moe", moe);
  f.section("mla", mla);
  f.section("mtp", mtp);
}

void BertSettings::bind(Fields& f) {
  f("layers", layers, "encoder blocks")
      .min(1)
      .resume(impossible)
      .renamed_from({"num_layers", "num_hidden_layers"});
  f("hidden_size", hidden_size, "width of the residual stream").min(1).resume(impossible);
  f("heads", heads, "attention heads").min(1).resume(impossible).renamed_from({"num_attention_heads"});
  f("ffn_hidden_size", ffn_hidden_size, "width of the MLP")
      .min(1)
      .resume(impossible)
      .renamed_from({"intermediate_size"});
  f("max_positions", max_positions, "rows of the position table")
      .min(1)
      .resume(impossible)
      .renamed_from({"max_position_embeddings"});
  f("segments", segments, "kinds of sentences a token can belong to")
      .min(1)
      .resume(impossible)
      .renamed_from({"type_vocab_size"});
  f("norm_eps", norm_eps, "added to the variance")
      .exclusive_min(0)
      .renamed_from({"layer_norm_eps", "layernorm_epsilon"});
  f("init_std", init_std, "standard deviation of start weights")
      .min(0)
      .renamed_from({"init_method_std", "initializer_range"});
  f("dropout", dropout, "probability of dropping an element")
      .min(0)
      .exclusive_max(1)
      .renamed_from({"hidden_dropout", "hidden_dropout_prob"});
  f("activation", activation, "of the MLP").one_of({"gelu", "gelu_new", "relu"}).renamed_from({"hidden_act"});
  f("pooler", pooler, "a head that tells whether two sentences follow each other")
      .resume(impossible)
      .renamed_from({"bert_binary_head"});
  f("tie_embeddings", tie_embeddings, "the head uses the embedding's matrix")
      .resume(impossible)
      .renamed_from({"tie_word_embeddings"});
}

void T5Settings::bind(Fields& f) {
  f("layers", layers, "decoder blocks")
      .min(1)
      .resume(impossible)
      .renamed_from({"num_decoder_layers", "decoder_num_layers"});
  f("encoder_layers", encoder_layers, "encoder blocks")
      .min(1)
      .resume(impossible)
      .renamed_from({"num_layers", "encoder_num_layers"});
  f("hidden_size", hidden_size, "width of the residual stream")
      .min(1)
      .resume(impossible)
      .renamed_from({"d_model"});
  f("heads", heads, "attention heads")
      .min(1)
      .resume(impossible)
      .renamed_from({"num_heads", "num_attention_heads"});
  f("head_dim", head_dim, "width of one head")
      .min(1)
      .resume(impossible)
      .renamed_from({"d_kv", "kv_channels"});
  f("ffn_hidden_size", ffn_hidden_size, "width of the MLP").min(1).resume(impossible).renamed_from({"d_ff"});
  f("position_buckets", position_buckets, "relative distances that have a bias of their own")
      .min(1)
      .resume(impossible)
      .renamed_from({"relative_attention_num_buckets"});
  f("max_distance", max_distance, "distances beyond this share one")
      .min(1)
      .resume(impossible)
      .renamed_from({"relative_attention_max_distance"});
  f("decoder_seq_length", decoder_seq_length, "tokens of a target").min(1).unit("tokens");
  f("norm_eps", norm_eps, "added to the mean square").exclusive_min(0).renamed_from({"layer_norm_epsilon"});
  f("init_factor", init_factor, "factor of the standard deviations of start weights")
      .min(0)
      .renamed_from({"initializer_factor"});
  f("dropout", dropout, "probability of dropping an element")
      .min(0)
      .exclusive_max(1)
      .renamed_from({"dropout_rate"});
  f("activation", activation, "of the MLP")
      .one_of({"relu", "gated_gelu"})
      .resume(impossible)
      .renamed_from({"feed_forward_proj"});
  f("tie_embeddings", tie_embeddings, "the head uses the embedding's matrix")
      .resume(impossible)
      .renamed_from({"tie_word_embeddings"});
}

}  // namespace mtrain
