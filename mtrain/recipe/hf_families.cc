#include "mtrain/recipe/hf_families.h"

#include <algorithm>
#include <iterator>

namespace mtrain {
namespace {

using enum HfKeyRule;

constexpr std::string_view kGeneration = "options of generation",
                           kOutputs = "options of the output of a call",
                           kTokens = "the tokenizer's files have it",
                           kHeads = "heads for other tasks",
                           kIdentity = "selects the plugin that reads the folder",
                           kNotes = "a note of the program that wrote the file";

// Keys of all families.
constexpr HfKey kCommon[] = {
    {"architectures", harmless, "", kIdentity},
    {"model_type", harmless, "", kIdentity},
    {"transformers_version", harmless, "", kNotes},
    {"_name_or_path", harmless, "", kNotes},
    {"unsloth_fixed", harmless, "", kNotes},
    {"unsloth_version", harmless, "", kNotes},
    {"transformers.js_config", harmless, "", "for another program"},
    {"dtype", harmless, "",
     "tensors have their own types; mixed_precision.dtype is the type of training"},
    {"torch_dtype", harmless, "",
     "tensors have their own types; mixed_precision.dtype is the type of training"},
    {"use_bfloat16", harmless, "",
     "tensors have their own types; mixed_precision.dtype is the type of training"},
    {"_attn_implementation", harmless, "", "selects the attention kernel, not its result"},
    {"attn_implementation", harmless, "", "selects the attention kernel, not its result"},
    {"_attn_implementation_autoset", harmless, "", "selects the attention kernel, not its result"},
    {"chunk_size_feed_forward", harmless, "", "the same sums in chunks"},
    {"gradient_checkpointing", harmless, "", "model.recompute decides"},
    {"torchscript", harmless, "", "for another program"},
    {"tf_legacy_loss", harmless, "", "for another program"},
    {"use_cache", harmless, "", kOutputs},
    {"output_attentions", harmless, "", kOutputs},
    {"output_hidden_states", harmless, "", kOutputs},
    {"output_scores", harmless, "", kOutputs},
    {"return_dict", harmless, "", kOutputs},
    {"return_dict_in_generate", harmless, "", kOutputs},
    {"bos_token_id", harmless, "", kTokens},
    {"eos_token_id", harmless, "", kTokens},
    {"pad_token_id", harmless, "", kTokens},
    {"sep_token_id", harmless, "", kTokens},
    {"cls_token_id", harmless, "", kTokens},
    {"mask_token_id", harmless, "", kTokens},
    {"unk_token_id", harmless, "", kTokens},
    {"decoder_start_token_id", harmless, "", kTokens},
    {"tokenizer_class", harmless, "", kTokens},
    {"prefix", harmless, "", kGeneration},
    {"id2label", harmless, "", kHeads},
    {"label2id", harmless, "", kHeads},
    {"num_labels", harmless, "", kHeads},
    {"problem_type", harmless, "", kHeads},
    {"finetuning_task", harmless, "", kHeads},
    {"task_specific_params", harmless, "", kHeads},
    {"classifier_dropout", harmless, "", kHeads},
    {"max_length", harmless, "", kGeneration},
    {"max_new_tokens", harmless, "", kGeneration},
    {"min_length", harmless, "", kGeneration},
    {"do_sample", harmless, "", kGeneration},
    {"early_stopping", harmless, "", kGeneration},
    {"num_beams", harmless, "", kGeneration},
    {"num_beam_groups", harmless, "", kGeneration},
    {"diversity_penalty", harmless, "", kGeneration},
    {"temperature", harmless, "", kGeneration},
    {"top_k", harmless, "", kGeneration},
    {"top_p", harmless, "", kGeneration},
    {"typical_p", harmless, "", kGeneration},
    {"repetition_penalty", harmless, "", kGeneration},
    {"length_penalty", harmless, "", kGeneration},
    {"no_repeat_ngram_size", harmless, "", kGeneration},
    {"encoder_no_repeat_ngram_size", harmless, "", kGeneration},
    {"bad_words_ids", harmless, "", kGeneration},
    {"num_return_sequences", harmless, "", kGeneration},
    {"forced_bos_token_id", harmless, "", kGeneration},
    {"forced_eos_token_id", harmless, "", kGeneration},
    {"remove_invalid_values", harmless, "", kGeneration},
    {"exponential_decay_length_penalty", harmless, "", kGeneration},
    {"suppress_tokens", harmless, "", kGeneration},
    {"begin_suppress_tokens", harmless, "", kGeneration},
    {"is_encoder_decoder", only, "false", "one stack of blocks"},
    {"is_decoder", only, "false", "no attention to an encoder"},
    {"add_cross_attention", only, "false", "no attention to an encoder"},
    {"tie_encoder_decoder", only, "false", "one stack of blocks"},
    {"pruned_heads", only, "{}", "all heads"},
    {"initializer_range", training, "", ""},
};

constexpr HfKey kLlama[] = {
    {"hidden_act", only, "\"silu\"|\"swish\"", "a gated MLP with silu"},
    {"mlp_bias", only, "false", "an MLP without biases"},
    {"attention_dropout", dropout, "", ""},
    {"sliding_window", window, "", ""},
    {"layer_types", window, "", ""},
    {"max_position_embeddings", harmless, "",
     "rotary positions have no table; model.seq_length decides"},
    {"pretraining_tp", harmless, "", "the same sums in another order"},
    {"max_sequence_length", harmless, "",
     "rotary positions have no table; model.seq_length decides"},
    {"is_llama_config", harmless, "", kNotes},
    {"rope_interleaved", only, "false", "rotary pairs of a head's first and second half"},
    {"partial_rotary_factor", only, "1|1.0", "rotary positions over whole heads"},
    {"rope.partial_rotary_factor", only, "1|1.0", "rotary positions over whole heads"},
};

constexpr HfKey kMixtral[] = {
    {"hidden_act", only, "\"silu\"|\"swish\"", "experts with silu"},
    {"attention_dropout", dropout, "", ""},
    {"sliding_window", window, "", ""},
    {"layer_types", window, "", ""},
    {"max_position_embeddings", harmless, "",
     "rotary positions have no table; model.seq_length decides"},
    {"output_router_logits", harmless, "", kOutputs},
    {"router_aux_loss_coef", training, "", ""},
    {"router_jitter_noise", training, "", ""},
    {"moe_layer_freq", only, "1", "experts in every block"},
    {"rope.partial_rotary_factor", only, "1|1.0", "rotary positions over whole heads"},
};

constexpr HfKey kGpt2[] = {
    {"resid_pdrop", training, "", ""},
    {"embd_pdrop", dropout, "resid_pdrop", ""},
    {"attn_pdrop", dropout, "", ""},
    {"scale_attn_weights", only, "true",
     "attention logits divided by the square root of the head's width"},
    {"scale_attn_by_inverse_layer_idx", only, "false",
     "attention logits that do not depend on the block"},
    {"reorder_and_upcast_attn", harmless, "", "the same products in another order"},
    {"n_ctx", harmless, "", "n_positions has the same value"},
    {"summary_activation", harmless, "", kHeads},
    {"summary_first_dropout", harmless, "", kHeads},
    {"summary_proj_to_labels", harmless, "", kHeads},
    {"summary_type", harmless, "", kHeads},
    {"summary_use_proj", harmless, "", kHeads},
};

constexpr HfKey kBert[] = {
    {"hidden_dropout_prob", training, "", ""},
    {"attention_probs_dropout_prob", dropout, "", ""},
    {"position_embedding_type", only, "\"absolute\"", "a table of positions"},
    {"directionality", harmless, "", kNotes},
    {"pooler_fc_size", harmless, "", kHeads},
    {"pooler_num_attention_heads", harmless, "", kHeads},
    {"pooler_num_fc_layers", harmless, "", kHeads},
    {"pooler_size_per_head", harmless, "", kHeads},
    {"pooler_type", harmless, "", kHeads},
};

// Defaults of the config classes of transformers 5.23. head_dim and n_inner are absent:
// transformers computes them from other keys, as the defaults of the model plugin do.
constexpr HfDefault kLlamaDefaults[] = {
    {"vocab_size", "32000", ""},          {"hidden_size", "4096", ""},
    {"intermediate_size", "11008", ""},   {"num_hidden_layers", "32", ""},
    {"num_attention_heads", "32", ""},    {"num_key_value_heads", "=num_attention_heads", ""},
    {"rms_norm_eps", "1e-06", ""},        {"initializer_range", "0.02", ""},
    {"tie_word_embeddings", "false", ""}, {"attention_bias", "false", ""},
    {"rope_theta", "10000.0", ""},        {"rope.scaling", "\"default\"", ""},
};

constexpr HfDefault kMistralDefaults[] = {
    {"vocab_size", "32000", ""},          {"hidden_size", "4096", ""},
    {"intermediate_size", "14336", ""},   {"num_hidden_layers", "32", ""},
    {"num_attention_heads", "32", ""},    {"num_key_value_heads", "8", "=num_attention_heads"},
    {"rms_norm_eps", "1e-06", ""},        {"initializer_range", "0.02", ""},
    {"tie_word_embeddings", "false", ""}, {"rope_theta", "10000.0", ""},
    {"rope.scaling", "\"default\"", ""},  {"sliding_window", "4096", "null"},
};

constexpr HfDefault kMixtralDefaults[] = {
    {"vocab_size", "32000", ""},           {"hidden_size", "4096", ""},
    {"intermediate_size", "14336", ""},    {"num_hidden_layers", "32", ""},
    {"num_attention_heads", "32", ""},     {"num_key_value_heads", "8", "=num_attention_heads"},
    {"num_local_experts", "8", ""},        {"num_experts_per_tok", "2", ""},
    {"router_aux_loss_coef", "0.001", ""}, {"router_jitter_noise", "0.0", ""},
    {"rms_norm_eps", "1e-05", ""},         {"initializer_range", "0.02", ""},
    {"tie_word_embeddings", "false", ""},  {"rope_theta", "1000000.0", ""},
    {"rope.scaling", "\"default\"", ""},
};

constexpr HfDefault kGpt2Defaults[] = {
    {"vocab_size", "50257", ""},
    {"n_positions", "1024", ""},
    {"n_embd", "768", ""},
    {"n_layer", "12", ""},
    {"n_head", "12", ""},
    {"activation_function", "\"gelu_new\"", ""},
    {"layer_norm_epsilon", "1e-05", ""},
    {"initializer_range", "0.02", ""},
    {"resid_pdrop", "0.1", ""},
    {"embd_pdrop", "0.1", ""},
    {"attn_pdrop", "0.1", ""},
    {"tie_word_embeddings", "true", ""},
};

constexpr HfDefault kBertDefaults[] = {
    {"vocab_size", "30522", ""},
    {"hidden_size", "768", ""},
    {"num_hidden_layers", "12", ""},
    {"num_attention_heads", "12", ""},
    {"intermediate_size", "3072", ""},
    {"hidden_act", "\"gelu\"", ""},
    {"max_position_embeddings", "512", ""},
    {"type_vocab_size", "2", ""},
    {"layer_norm_eps", "1e-12", ""},
    {"initializer_range", "0.02", ""},
    {"hidden_dropout_prob", "0.1", ""},
    {"attention_probs_dropout_prob", "0.1", ""},
    {"tie_word_embeddings", "true", ""},
};

}  // namespace

const std::vector<HfFamily>& hf_families() {
  static const std::vector<HfFamily> kFamilies = {
      {"llama", {"LlamaForCausalLM"}, "llama", "", kLlama, kLlamaDefaults},
      {"mistral", {"MistralForCausalLM"}, "llama", "", kLlama, kMistralDefaults},
      {"mixtral", {"MixtralForCausalLM"}, "moe", "", kMixtral, kMixtralDefaults},
      {"gpt2", {"GPT2LMHeadModel", "GPT2Model"}, "gpt2", "", kGpt2, kGpt2Defaults},
      {"bert", {"BertForMaskedLM", "BertForPreTraining"}, "bert", "", kBert, kBertDefaults},
      {"qwen2", {"Qwen2ForCausalLM"}, "", "biases of queries, keys and values", {}},
      {"qwen3", {"Qwen3ForCausalLM"}, "", "norms of queries and keys", {}},
      {"qwen2_moe", {"Qwen2MoeForCausalLM"}, "", "biases of queries, keys and values", {}},
      {"qwen3_moe", {"Qwen3MoeForCausalLM"}, "", "norms of queries and keys", {}},
      {"deepseek_v2", {"DeepseekV2ForCausalLM"}, "", "multi-head latent attention", {}},
      {"deepseek_v3", {"DeepseekV3ForCausalLM"}, "", "multi-head latent attention", {}},
      {"gemma", {"GemmaForCausalLM"}, "", "its norms and MLP", {}},
      {"gemma2", {"Gemma2ForCausalLM"}, "", "soft caps of logits", {}},
      {"gemma3_text", {"Gemma3ForCausalLM"}, "", "norms of queries and keys", {}},
      {"phi3", {"Phi3ForCausalLM"}, "", "its rotary positions", {}},
      {"gpt_neox", {"GPTNeoXForCausalLM"}, "", "parallel attention and MLP", {}},
      {"t5", {"T5ForConditionalGeneration"}, "", "an encoder and a decoder", {}},
      {"gpt_oss", {"GptOssForCausalLM"}, "", "attention sinks", {}},
  };
  return kFamilies;
}

const HfFamily* find_hf_family(std::string_view model_type, std::string_view architecture) {
  for (const auto& family : hf_families()) {
    const bool named = std::find(family.architectures.begin(), family.architectures.end(),
                                 architecture) != family.architectures.end();
    if (model_type.empty() ? named
                           : family.model_type == model_type && (architecture.empty() || named))
      return &family;
  }
  return nullptr;
}

const HfKey* find_hf_key(const HfFamily* family, std::string_view key) {
  auto in = [&](std::span<const HfKey> keys) -> const HfKey* {
    auto found =
        std::find_if(keys.begin(), keys.end(), [&](const HfKey& k) { return k.name == key; });
    return found == keys.end() ? nullptr : &*found;
  };
  if (const HfKey* own = family ? in(family->keys) : nullptr) return own;
  return in(kCommon);
}

std::vector<std::string> hf_architectures(std::string_view plugin) {
  std::vector<std::string> out;
  for (const auto& family : hf_families())
    if (family.plugin == plugin)
      out.insert(out.end(), family.architectures.begin(), family.architectures.end());
  return out;
}

}  // namespace mtrain
