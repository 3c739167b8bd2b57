// Numeric types.
#include "mtrain/recipe/rules/rules.h"

namespace mtrain {
namespace {

constexpr Rule kPrecisionRules[] = {
    {"fp8-xor-fp4", "mixed_precision.fp4", "fp4", "not fp8", "mixed_precision.fp8 is on as well",
     "a matrix product is computed either in FP8 or in FP4",
     "mixed_precision.fp8='none'; mixed_precision.fp4='none'"},
    {"small-products-dtype", "mixed_precision.dtype", "fp8 or fp4",
     "mixed_precision.dtype in ['bf16', 'fp16', 'auto']",
     "FP8 and FP4 products require dtype bf16 or fp16, not {mixed_precision.dtype}", "",
     "mixed_precision.dtype"},
    {"fp8-params", "mixed_precision.fp8_params", "mixed_precision.fp8_params", "fp8",
     "needs mixed_precision.fp8", "", "mixed_precision.fp8_params; mixed_precision.fp8"},
    {"fp4-params", "mixed_precision.fp4_params", "mixed_precision.fp4_params", "fp4",
     "needs mixed_precision.fp4", "", "mixed_precision.fp4_params; mixed_precision.fp4"},
    {"fp8-attention", "mixed_precision.fp8_attention", "mixed_precision.fp8_attention", "fp8",
     "needs mixed_precision.fp8", "", "mixed_precision.fp8_attention; mixed_precision.fp8"},
    {"fp8-activations", "mixed_precision.fp8_activations", "mixed_precision.fp8_activations", "fp8",
     "needs mixed_precision.fp8", "", "mixed_precision.fp8_activations; mixed_precision.fp8"},
    {"fp8-output", "mixed_precision.fp8_output", "mixed_precision.fp8_output",
     "fp8 and mixed_precision.fp8_recipe == 'mxfp8'", "the head in FP8 needs fp8_recipe=mxfp8",
     "coarser scales lose too much precision at the loss",
     "mixed_precision.fp8_output; mixed_precision.fp8_recipe"},
    {"bf16-ends", "mixed_precision.first_bf16_layers", "fp8 or fp4",
     "mixed_precision.first_bf16_layers + mixed_precision.last_bf16_layers < model.layers",
     "the first {mixed_precision.first_bf16_layers} and last {mixed_precision.last_bf16_layers} of "
     "{model.layers} blocks "
     "stay in {mixed_precision.dtype}, which leaves none",
     "", "mixed_precision.first_bf16_layers=0; mixed_precision.last_bf16_layers=0; model.layers"},
    {"fp8-params-recipe", "mixed_precision.fp8_params", "fp8 and mixed_precision.fp8_params",
     "mixed_precision.fp8_recipe in ['tensorwise', 'delayed']",
     "weights are gathered in FP8 only with one scale per tensor, but fp8_recipe is "
     "{mixed_precision.fp8_recipe}",
     "other recipes gather them in the type of mixed_precision.dtype",
     "mixed_precision.fp8_params=false; mixed_precision.fp8_recipe"},
    {"fp8-params-zero", "mixed_precision.fp8_params", "mixed_precision.fp8_params",
     "dist.zero >= 1", "with dist.zero=0 every rank updates all weights, and none are gathered", "",
     "dist.zero=1; mixed_precision.fp8_params=false"},
    {"fp8-shape", "model.hidden_size", "fp8 or fp4", "model.hidden_size % quantized_group == 0",
     "{model.hidden_size} is not a multiple of {quantized_group}",
     "dimensions of FP8 and FP4 matrix products are multiples of 16, with mxfp8 of 32",
     "model.hidden_size"},
    {"fp8-shape-ffn", "model.ffn_hidden_size", "(fp8 or fp4) and model.ffn_hidden_size > 0",
     "model.ffn_hidden_size % (quantized_group * dist.tp) == 0",
     "{model.ffn_hidden_size} is not a multiple of {quantized_group} x tp = {quantized_group * "
     "dist.tp}",
     "dimensions of FP8 and FP4 matrix products are multiples of 16, with mxfp8 of 32, on every "
     "rank",
     "model.ffn_hidden_size; dist.tp"},
    {"fp8-shape-heads", "model.heads", "(fp8 or fp4) and (model.mla.kv_lora_rank ?? 0) == 0",
     "(model.heads * head_width) % (quantized_group * dist.tp) == 0",
     "{model.heads} heads of {head_width} have {model.heads * head_width} values, which is not a "
     "multiple of {quantized_group} x tp = {quantized_group * dist.tp}",
     "dimensions of FP8 and FP4 matrix products are multiples of 16, with mxfp8 of 32, on every "
     "rank",
     "model.heads; dist.tp"},
    {"fp8-shape-experts", "model.moe.ffn_hidden_size", "(fp8 or fp4) and experts > 0",
     "expert_ffn % (quantized_group * dist.etp) == 0",
     "the experts' width {expert_ffn} is not a multiple of {quantized_group} x etp = "
     "{quantized_group * dist.etp}",
     "dimensions of FP8 and FP4 matrix products are multiples of 16, with mxfp8 of 32, on every "
     "rank",
     "model.moe.ffn_hidden_size; dist.etp"},
    {"fp8-shape-latents", "model.mla.kv_lora_rank",
     "(fp8 or fp4) and (model.mla.kv_lora_rank ?? 0) > 0",
     "model.mla.kv_lora_rank % quantized_group == 0 and "
     "model.mla.q_lora_rank % quantized_group == 0 and "
     "model.mla.rope_head_dim % quantized_group == 0 and "
     "(model.heads * model.mla.qk_head_dim) % (quantized_group * dist.tp) == 0 and "
     "(model.heads * model.mla.rope_head_dim) % (quantized_group * dist.tp) == 0 and "
     "(model.heads * model.mla.v_head_dim) % (quantized_group * dist.tp) == 0",
     "a width of latent attention is not a multiple of {quantized_group}, or one of all heads not "
     "of "
     "{quantized_group} x tp = {quantized_group * dist.tp}",
     "dimensions of FP8 and FP4 matrix products are multiples of 16, with mxfp8 of 32, on every "
     "rank",
     "model.mla.kv_lora_rank; model.mla.q_lora_rank; model.mla.rope_head_dim; dist.tp"},
    {"fp8-shape-latent-tokens", "model.seq_length",
     "(fp8 or fp4) and (model.mla.kv_lora_rank ?? 0) > 0 and dist.sp",
     "(train.micro_batch_size * model.seq_length) % (quantized_group * dist.cp * dist.tp) == 0",
     "{train.micro_batch_size * model.seq_length} tokens of a micro-batch are not a multiple of "
     "{quantized_group} x cp x tp = {quantized_group * dist.cp * dist.tp}",
     "with dist.sp, a rank computes the latents of its own tokens",
     "model.seq_length; train.micro_batch_size; dist.sp=false"},
    {"fp8-shape-tokens", "model.seq_length", "fp8 or fp4",
     "(train.micro_batch_size * model.seq_length) % (quantized_group * dist.cp) == 0",
     "{train.micro_batch_size * model.seq_length} tokens of a micro-batch are not a multiple of "
     "{quantized_group} x cp = {quantized_group * dist.cp}",
     "the gradient of a weight is a product over tokens, whose number is a multiple of 16, with "
     "mxfp8 of 32",
     "model.seq_length; train.micro_batch_size; dist.cp"},
    {"tf32-backend", "mixed_precision.tf32", "mixed_precision.tf32", "dist.backend == 'cuda'",
     "the backend is {dist.backend}", "only GPUs have TF32",
     "mixed_precision.tf32=false; dist.backend='cuda'"},
    {"loss-scale-dtype", "mixed_precision.loss_scale", "mixed_precision.loss_scale > 0",
     "mixed_precision.dtype == 'fp16'",
     "only fp16 has a loss scale, but dtype is {mixed_precision.dtype}",
     "the range of fp32 and bf16 does not need one",
     "mixed_precision.loss_scale=0; mixed_precision.dtype"},
    {"min-loss-scale", "mixed_precision.min_loss_scale", "mixed_precision.dtype == 'fp16'",
     "mixed_precision.min_loss_scale <= mixed_precision.initial_loss_scale",
     "above initial_loss_scale ({mixed_precision.initial_loss_scale})", "",
     "mixed_precision.min_loss_scale=1"},
    {"gpu-bf16", "mixed_precision.dtype", "mixed_precision.dtype == 'bf16'",
     "gpu.compute_capability >= 80", "{gpu.name} cannot compute in bf16",
     "bf16 needs compute capability 8.0 (A100) or later", "mixed_precision.dtype"},
    {"gpu-fp8", "mixed_precision.fp8", "fp8", "gpu.compute_capability >= 89",
     "{gpu.name} has no FP8 unit", "FP8 needs compute capability 8.9 (Ada, Hopper) or later",
     "mixed_precision.fp8='none'"},
    {"gpu-blockwise", "mixed_precision.fp8_recipe",
     "fp8 and mixed_precision.fp8_recipe == 'blockwise'", "gpu.compute_capability == 90",
     "{gpu.name} has no blockwise FP8 products", "only Hopper has them; use mxfp8 on Blackwell",
     "mixed_precision.fp8_recipe"},
    {"gpu-mxfp8", "mixed_precision.fp8_recipe", "fp8 and mixed_precision.fp8_recipe == 'mxfp8'",
     "gpu.compute_capability >= 100", "{gpu.name} has no mxfp8 unit",
     "mxfp8 needs Blackwell or later", "mixed_precision.fp8_recipe"},
    {"gpu-fp4", "mixed_precision.fp4", "fp4", "gpu.compute_capability >= 100",
     "{gpu.name} has no FP4 unit", "FP4 needs Blackwell or later", "mixed_precision.fp4='none'"},
};

}  // namespace

std::span<const Rule> precision_rules() { return kPrecisionRules; }

}  // namespace mtrain
