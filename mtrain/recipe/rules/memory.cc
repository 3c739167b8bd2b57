// Recomputation, offloading and CUDA graphs.
#include "mtrain/recipe/rules/rules.h"

namespace mtrain {
namespace {

constexpr Rule kMemoryRules[] = {
    {"recompute-layers", "model.recompute_layers", "model.recompute_layers > 1",
     "model.recompute == 'full'", "recompute_layers applies only to recompute=full",
     "selective recomputation applies to parts of every block",
     "model.recompute_layers=1; model.recompute='full'"},
    {"recompute-layers-stage", "model.recompute_layers", "model.recompute == 'full'",
     "model.recompute_layers <= max(1, model.layers // dist.pp)",
     "{model.recompute_layers} is more than the {max(1, model.layers // dist.pp)} blocks of a "
     "stage",
     "", "model.recompute_layers"},
    {"recompute-method", "model.recompute_method", "model.recompute_method == 'block'",
     "model.recompute == 'full'", "recompute_method applies only to recompute=full", "",
     "model.recompute_method='uniform'; model.recompute='full'"},
    {"recompute-modules", "model.recompute_modules", "model.recompute == 'selective'",
     "len(model.recompute_modules) > 0", "selective recomputation without modules has no effect",
     "", "model.recompute_modules=['core_attn']; model.recompute='none'"},
    {"recompute-distribute", "model.recompute_distribute", "model.recompute_distribute",
     "model.recompute == 'full' and dist.tp > 1 and not dist.sp",
     "needs recompute=full and dist.tp > 1 without dist.sp",
     "with dist.sp the inputs of blocks are already sharded", "model.recompute_distribute"},
    {"recompute-mla", "model.recompute_modules",
     "model.recompute == 'selective' and 'mla_up_proj' in model.recompute_modules",
     "(model.mla.kv_lora_rank ?? 0) > 0", "mla_up_proj needs a model with latent attention", "",
     "model.recompute_modules=['core_attn']"},
    {"recompute-moe", "model.recompute_modules", "model.recompute == 'selective' and experts == 0",
     "not 'moe' in model.recompute_modules and not 'moe_act' in model.recompute_modules and "
     "not 'shared_experts' in model.recompute_modules",
     "moe, moe_act and shared_experts need a model with experts", "",
     "model.recompute_modules=['mlp']"},
    {"recompute-norms", "model.recompute_modules", "model.recompute == 'selective' and norms.kept",
     "not 'layernorm' in model.recompute_modules", "{model.type} cannot recompute layernorm",
     "it adds the results of norms to the residual stream",
     "model.recompute_modules=['core_attn']"},
    {"recompute-norms-post", "model.recompute_modules",
     "model.recompute == 'selective' and model.norm_position == 'post' and 'layernorm' in "
     "model.recompute_modules",
     "dist.sp", "recomputing layernorm saves no memory with norm_position=post and without dist.sp",
     "there is no norm before attention and MLP; only with dist.sp there is a gathered copy of "
     "their input that can be freed",
     "model.recompute_modules=['core_attn']; dist.sp"},
    {"offload-layers", "offload.layers", "offload.layers > 0", "offload.layers < model.layers",
     "{offload.layers} is not below model.layers ({model.layers})",
     "the last block's activations are needed immediately", "offload.layers=model.layers - 1"},
    {"offload-alone", "offload.layers", "offload.layers > 0",
     "dist.pp == 1 and model.recompute == 'none' and len(offload.modules) == 0",
     "whole blocks are offloaded only without pipeline, recomputation and offload.modules", "",
     "offload.layers=0"},
    {"offload-attn-proj", "offload.modules", "'attn_proj' in offload.modules",
     "'core_attn' in offload.modules", "attn_proj can be offloaded only together with core_attn",
     "its input is the output of core_attn", ""},
    {"graph-backend", "cuda_graph.type", "graphs", "dist.backend == 'cuda'",
     "the backend is {dist.backend}", "only a GPU supports CUDA graphs",
     "cuda_graph.type='none'; dist.backend='cuda'"},
};

}  // namespace

std::span<const Rule> memory_rules() { return kMemoryRules; }

}  // namespace mtrain
