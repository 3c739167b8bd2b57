// The recipes whose layouts are compared. They are shrunk before they run, so their sizes only say
// what is in them: shared key/value heads, norms of queries and keys, limits, an output gate,
// blocks without rotary positions, tied embeddings, biases, dropout, attention to both sides and a
// bias of the head, an encoder with a decoder, experts.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "built_plugins.h"
#include "mtrain/base/error.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain::testing {

struct Subject {
  const char* name;
  const char* model;
};

inline const std::vector<Subject>& subjects() {
  static const std::vector<Subject> all = {
      {"llama",
       "{type: llama, layers: 8, hidden_size: 64, heads: 8, kv_heads: 4, ffn_hidden_size: 128}"},
      {"attention parts",
       "{type: llama, layers: 8, hidden_size: 64, heads: 8, kv_heads: 4, head_dim: 16, "
       "ffn_hidden_size: 128, attention: {bias: true, qk_norm: true, qk_norm_kind: layer, "
       "clip_qkv: 1, output_gate: true, rope_pattern: [1, 0]}}"},
      {"norms of all heads",
       "{type: moe, layers: 8, hidden_size: 64, heads: 8, kv_heads: 4, ffn_hidden_size: 128, "
       "attention: {qkv_bias: true, qk_norm: true, qk_norm_scope: all_heads}, moe: {experts: 8, "
       "top_k: 2, ffn_hidden_size: 64}}"},
      {"gpt2",
       "{type: gpt2, layers: 8, hidden_size: 64, heads: 8, dropout: 0.1, tie_embeddings: true, "
       "embedding_noise: 0.5}"},
      {"bert",
       "{type: bert, layers: 8, hidden_size: 64, heads: 8, ffn_hidden_size: 128, dropout: 0.1}"},
      {"t5",
       "{type: t5, layers: 8, encoder_layers: 2, hidden_size: 64, heads: 8, head_dim: 8, "
       "ffn_hidden_size: 128, decoder_seq_length: 8, activation: gated_gelu, dropout: 0.1}"},
      {"mixtral",
       "{type: moe, layers: 8, hidden_size: 64, heads: 8, kv_heads: 4, ffn_hidden_size: 128, moe: "
       "{experts: 8, top_k: "
       "2, "
       "ffn_hidden_size: 64, router: {balancing: [aux_loss], aux_loss_coeff: [0.02]}}}"},
  };
  return all;
}

/// Decoders whose blocks, heads or rotary positions differ from Llama's, each with the parts of a
/// known family.
inline const std::vector<Subject>& variants() {
  static const std::vector<Subject> all = {
      {"gemma2",
       "{type: llama, layers: 8, hidden_size: 64, heads: 8, kv_heads: 4, ffn_hidden_size: 128, "
       "norm_position: sandwich, norm_zero_centered: true, activation: gelu_new, "
       "embedding_multiplier: 0, embedding_noise: 0.5, logit_cap: 30, tie_embeddings: true}"},
      {"neox",
       "{type: llama, layers: 8, hidden_size: 64, heads: 8, ffn_hidden_size: 256, norm: layer, "
       "parallel: two_norms, mlp_gated: false, activation: gelu, mlp_bias: true, rope: {percent: "
       "0.25}}"},
      {"phi",
       "{type: llama, layers: 8, hidden_size: 64, heads: 8, ffn_hidden_size: 256, norm: layer, "
       "parallel: one_norm, mlp_gated: false, activation: gelu_new, mlp_bias: true, head_bias: "
       "true, rope: {percent: 0.4, scaling: longrope, original_max_positions: 8, short_factor: [1, "
       "2], long_factor: [1, 4]}}"},
      {"cohere",
       "{type: llama, layers: 8, hidden_size: 64, heads: 8, kv_heads: 4, ffn_hidden_size: 128, "
       "norm: layer, norm_bias: false, parallel: one_norm, logit_scale: 0.0625, tie_embeddings: "
       "true, rope: {interleaved: true}}"},
      {"olmo2",
       "{type: llama, layers: 8, hidden_size: 64, heads: 8, ffn_hidden_size: 128, norm_position: "
       "post}"},
      {"granite",
       "{type: llama, layers: 8, hidden_size: 64, heads: 8, kv_heads: 4, ffn_hidden_size: 128, "
       "embedding_multiplier: 12, residual_multiplier: 0.22, logit_scale: 0.125, head_bias: true, "
       "tie_embeddings: true}"},
      {"nemotron",
       "{type: llama, layers: 8, hidden_size: 64, heads: 8, kv_heads: 4, ffn_hidden_size: 256, "
       "norm: layer, norm_zero_centered: true, mlp_gated: false, activation: squared_relu, rope: "
       "{percent: 0.5, scaling: yarn, original_max_positions: 8}}"},
      {"olmo",
       "{type: llama, layers: 8, hidden_size: 64, heads: 8, ffn_hidden_size: 128, norm: layer, "
       "norm_weight: false}"},
      {"sandwiched experts",
       "{type: moe, layers: 8, hidden_size: 64, heads: 8, kv_heads: 4, ffn_hidden_size: 128, "
       "norm_position: sandwich, activation: gelu_new, residual_multiplier: 0.5, moe: {experts: 8, "
       "top_k: 2, ffn_hidden_size: 64}}"},
      {"latent experts",
       "{type: moe, layers: 8, hidden_size: 64, heads: 8, kv_heads: 4, ffn_hidden_size: 128, moe: "
       "{experts: 8, top_k: 2, ffn_hidden_size: 64, latent_size: 32, shared_ffn_hidden_size: 64, "
       "router: {jitter: 0.1, dtype: fp64}}}"},
      {"sinkhorn balancing, tokens by all-gather",
       "{type: moe, layers: 8, hidden_size: 64, heads: 8, kv_heads: 4, ffn_hidden_size: 128, moe: "
       "{experts: 8, top_k: 2, ffn_hidden_size: 64, dispatcher: allgather, router: {pre_softmax: "
       "true, balancing: [sinkhorn]}}}"},
      {"experts padded to their capacity",
       "{type: moe, layers: 8, hidden_size: 64, heads: 8, kv_heads: 4, ffn_hidden_size: 128, moe: "
       "{experts: 8, top_k: 2, ffn_hidden_size: 64, capacity_factor: 1, pad_to_capacity: true}}"},
      {"further tokens",
       "{type: llama, layers: 8, hidden_size: 64, heads: 8, kv_heads: 4, ffn_hidden_size: 128, "
       "mtp: {layers: 2, loss_coeff: 0.5}}"},
      {"a further token, experts and a tied table",
       "{type: moe, layers: 8, hidden_size: 64, heads: 8, kv_heads: 4, ffn_hidden_size: 128, "
       "tie_embeddings: true, moe: {experts: 8, top_k: 2, ffn_hidden_size: 64}, mtp: {layers: 1, "
       "loss_coeff: 0.5}}"},
      {"experts in parallel with attention",
       "{type: moe, layers: 8, hidden_size: 64, heads: 8, kv_heads: 4, ffn_hidden_size: 128, "
       "parallel: one_norm, moe: {experts: 8, top_k: 2, ffn_hidden_size: 64}}"},
  };
  return all;
}

/// Models that together have every part whose ranks exchange something of its own: windows of some
/// blocks, sinks, latent attention, biases of experts, norms after layers, heads that are rotated
/// in part, tables of positions with unused rows.
inline const std::vector<Subject>& parts() {
  static const std::vector<Subject> all = {
      {"gpt-oss",
       "{type: moe, layers: 8, hidden_size: 64, heads: 8, kv_heads: 4, ffn_hidden_size: 128, "
       "attention: {bias: true, window: 128, window_blocks: [1, 0, 1, 0, 1, 0, 1, 0], softmax: "
       "learnable}, moe: {experts: 8, top_k: 2, ffn_hidden_size: 64, expert_bias: true, "
       "activation_clamp: 0.5, swish_factor: 1.702, glu_offset: 1, router: {logit_bias: true}}}"},
      {"gemma3",
       "{type: llama, layers: 12, hidden_size: 64, heads: 8, kv_heads: 4, ffn_hidden_size: 128, "
       "norm_position: sandwich, norm_zero_centered: true, activation: gelu_new, "
       "embedding_multiplier: 0, tie_embeddings: true, rope: {local_theta: 100}, attention: "
       "{window: 512, global_interval: 6, qk_norm: true}}"},
      {"olmo3",
       "{type: llama, layers: 8, hidden_size: 64, heads: 8, ffn_hidden_size: 128, norm_position: "
       "post, attention: {window: 4096, window_blocks: [1, 1, 1, 0, 1, 1, 1, 0], qk_norm: true, "
       "qk_norm_scope: all_heads}}"},
      {"rotated in part, with windows and sinks",
       "{type: llama, layers: 8, hidden_size: 64, heads: 8, kv_heads: 2, ffn_hidden_size: 128, "
       "norm_position: sandwich, rope: {percent: 0.5}, attention: {window: 64, softmax: "
       "learnable, logit_cap: 20, dropout: 0.1}}"},
      {"deepseek",
       "{type: moe, layers: 8, hidden_size: 64, heads: 8, ffn_hidden_size: 128, rope: "
       "{interleaved: true, scaling: yarn, factor: 4, original_max_positions: 8, mscale: 1, "
       "mscale_all_dim: 1}, mla: {q_lora_rank: 64, kv_lora_rank: 32, qk_head_dim: 16, "
       "rope_head_dim: 8, v_head_dim: 12}, moe: {experts: 8, top_k: 2, ffn_hidden_size: 64, "
       "shared_experts: 1, first_dense_layers: 1, router: {score: sigmoid, normalize: always, "
       "scaling: 2.5, groups: 4, group_top_k: 2, group_best: 2, bias: true, balancing: "
       "[seq_aux_loss], aux_loss_coeff: [0.01]}}}"},
      {"latent attention with windows and sinks",
       "{type: moe, layers: 8, hidden_size: 64, heads: 8, ffn_hidden_size: 128, norm_position: "
       "post, attention: {window: 64, global_interval: 3, softmax: off_by_one}, mla: "
       "{kv_lora_rank: 32, qk_head_dim: 16, rope_head_dim: 8, v_head_dim: 24}, moe: {experts: 8, "
       "top_k: 2, ffn_hidden_size: 64, expert_bias: true}}"},
      {"gpt2 with shared keys and values",
       "{type: gpt2, layers: 8, hidden_size: 64, heads: 8, kv_heads: 2, position_offset: 2, "
       "dropout: 0.1}"},
      {"roberta",
       "{type: bert, layers: 8, hidden_size: 64, heads: 8, ffn_hidden_size: 128, "
       "position_offset: 2, segments: 1, dropout: 0.1}"},
  };
  return all;
}

/// True if every case is wanted, not a selection (tools/test.sh --all).
inline bool whole_set() {
  const char* wanted = std::getenv("MTRAIN_PARITY");
  return wanted && std::string_view(wanted) == "all";
}

/// True for a model whose layouts are tested in depth: one that is dense and one with experts. The
/// others take the shorter tests, unless every case is wanted.
inline bool in_depth(const Subject& subject) {
  const std::string_view name = subject.name;
  return whole_set() || name == "llama" || name == "mixtral";
}

/// REQUIRES: there is one of that name.
inline const Subject& subject_named(std::string_view name) {
  auto found = std::find_if(subjects().begin(), subjects().end(),
                            [&](const Subject& s) { return s.name == name; });
  MT_CHECK(found != subjects().end(), "no subject ", name);
  return *found;
}

inline PluginHost& plugins() {
  static PluginHost host = built_plugins();
  return host;
}

/// As it is written, faults and all.
inline Recipe recipe_of(const Subject& subject, const std::string& more = "") {
  std::string text = cat("model: ", subject.model, "\ndataset: mock\ntrain: {steps: 1}\n", more);
  return read_recipe({.recipe = subject.name,
                      .text = text,
                      .directory = fs::current_path(),
                      .overrides = {},
                      .cluster = {}},
                     plugins());
}

/// True when this build has the subject's model.
inline bool built(const Subject& subject) {
  Recipe recipe = recipe_of(subject);
  for (const auto& d : recipe.report.diagnostics())
    if (d.code == "not-built") return false;
  return true;
}

}  // namespace mtrain::testing
