// The names of fine-tuning: adapters, quantized weights, preferences. The rows stay on one line
// each.
#include "mtrain/recipe/foreign_names.h"

namespace mtrain {
namespace {

// clang-format off
constexpr ForeignName kTuningNames[] = {
    // adapters and quantized weights
    {"adapter", "axolotl", "peft.type", "lora; for qlora also peft.base=nf4, or the group peft=qlora"},
    {"use_peft", "TRL", "peft.type", "lora"},
    {"finetuning_type", "LLaMA-Factory", "peft.type", "full is none"},
    {"use_dora", "PEFT", "peft.type", "true is dora"},
    {"peft_use_dora", "axolotl", "peft.type", "true is dora"},
    {"bias", "PEFT", "peft.train", "none is []; all is ['*.bias']; lora_only is a list of patterns such as ['*attn.qkv.bias']"},
    {"layers_to_transform", "PEFT", "peft.targets", "patterns with the blocks, such as ['layers.0.*', 'layers.1.attn.*']"},
    {"peft_layers_to_transform", "axolotl", "peft.targets", "patterns with the blocks, such as ['layers.0.*', 'layers.1.attn.*']"},
    {"layers_pattern", "PEFT", "peft.targets", "patterns with the blocks, such as ['layers.0.*', 'layers.1.attn.*']"},
    {"rank_pattern", "PEFT", "peft.ranks", "a list, such as ['q_proj:16', 'mlp.*:4']"},
    {"alpha_pattern", "PEFT", "peft.alphas", "a list, such as ['q_proj:32']"},
    {"lora_modules_to_save", "axolotl", "peft.train", "patterns of mtrain's names, such as [embed.weight, head.weight]"},
    {"additional_target", "LLaMA-Factory", "peft.train", "patterns of mtrain's names, such as [embed.weight, head.weight]"},
    {"lora_target", "LLaMA-Factory", "peft.targets", "all is the default, []; other names as a list"},
    {"init_lora_weights", "PEFT", "peft.init", "true is kaiming; gaussian and pissa have the same names; pissa_niter_N, olora and loftq are not implemented"},
    {"lora_model_dir", "axolotl", "peft.init_from", "a folder with adapter_config.json"},
    {"lora_r", "axolotl, TRL", "peft.rank", ""},
    {"lora_rank", "torchtune, LLaMA-Factory", "peft.rank", ""},
    {"lora_alpha", "axolotl, torchtune, PEFT", "peft.alpha", ""},
    {"lora_dropout", "axolotl, torchtune, PEFT", "peft.dropout", ""},
    {"lora_target_modules", "axolotl, TRL", "peft.targets", "the same names as a list, e.g. [q_proj, v_proj]"},
    {"lora_attn_modules", "torchtune", "peft.targets", "mtrain's names of the weights, e.g. [attn.qkv]"},
    {"lora_target_linear", "axolotl", "peft.targets", "true is the default, []"},
    {"load_in_8bit", "transformers, axolotl", "peft.base", "true is int8"},
    {"load_in_4bit", "transformers, axolotl", "peft.base", "true is nf4"},
    {"bnb_4bit_quant_type", "transformers, TRL", "peft.base", "nf4; bitsandbytes' fp4 is not implemented"},
    {"bnb_4bit_use_double_quant", "transformers", "peft.double_quant", ""},
    {"bnb_4bit_compute_dtype", "transformers", "mixed_precision.dtype", ""},
    {"quantize_base", "torchtune", "peft.base", "true is nf4"},
    {"quantization_bit", "LLaMA-Factory", "peft.base", "4 is nf4, 8 is int8"},
    {"double_quantization", "LLaMA-Factory", "peft.double_quant", ""},
    {"rl", "axolotl", "objective.type", "dpo, simpo, orpo, cpo or kto, with dataset.type=preference; ipo is dpo with objective.loss=ipo"},
    {"dpo_beta", "LLaMA-Factory, axolotl", "objective.beta", ""},
    {"pref_beta", "LLaMA-Factory", "objective.beta", ""},
    {"pref_loss", "LLaMA-Factory", "objective.loss", "with objective.type=dpo; orpo and simpo are values of objective.type"},
    {"loss_type", "TRL", "objective.loss", "a list is objective.losses, with its weights: [sigmoid:0.8, bco_pair:0.2]"},
    {"loss_weights", "TRL", "objective.losses", "with the names of loss_type: [sigmoid:0.8, bco_pair:0.2]"},
    {"dpo_loss_type", "axolotl", "objective.loss", ""},
    {"dpo_label_smoothing", "LLaMA-Factory", "objective.label_smoothing", ""},
    {"rl_beta", "axolotl", "objective.beta", ""},
    {"orpo_alpha", "axolotl", "objective.beta", "with objective.type=orpo"},
    {"cpo_alpha", "TRL, axolotl", "objective.sft_weight", ""},
    {"rpo_alpha", "TRL, axolotl", "objective.sft_weight", ""},
    {"simpo_gamma", "TRL, axolotl, LLaMA-Factory", "objective.gamma", "with objective.type=simpo"},
    {"pref_ftx", "LLaMA-Factory", "objective.sft_weight", ""},
    {"kto_desirable_weight", "axolotl", "objective.desirable_weight", ""},
    {"kto_undesirable_weight", "axolotl", "objective.undesirable_weight", ""},
    {"kto_chosen_weight", "LLaMA-Factory", "objective.desirable_weight", ""},
    {"kto_rejected_weight", "LLaMA-Factory", "objective.undesirable_weight", ""},
    {"reward_model", "axolotl", "objective.type", "true is reward, with model.labels=1 and dataset.type=preference"},
    {"num_labels", "transformers, axolotl", "model.labels", ""},
    {"teacher_model_name_or_path", "TRL", "objective.teacher", "with objective.type=distillation"},
    {"lmbda", "TRL", "", "distillation learns from the dataset's tokens, which is lmbda=0"},
    {"kd_temperature", "axolotl", "objective.temperature", "with objective.type=distillation"},
    {"kd_ce_alpha", "axolotl", "objective.alpha", "with objective.type=distillation; the divergence has the weight 1 - alpha"},
    {"precompute_ref_log_probs", "TRL", "objective.reference", "true is precomputed"},
    {"ref_model", "LLaMA-Factory", "", "the reference is the model before its first step; objective.reference says where its values come from"},
};
// clang-format on

}  // namespace

std::span<const ForeignName> fine_tuning_names() { return kTuningNames; }

}  // namespace mtrain
