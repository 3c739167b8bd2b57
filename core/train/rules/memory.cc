// Recomputation, offloading and CUDA graphs.
#include "mtrain/train/rules/rules.h"

namespace mtrain {
namespace {

constexpr Rule kRules[] = {
    {"recompute-layers", "model.recompute_layers", "model.recompute_layers > 1", "model.recompute == 'full'",
     "only recompute=full counts blocks", "selective recomputation takes parts of every block",
     "model.recompute_layers=1; model.recompute='full'"},
    {"recompute-layers-stage", "model.recompute_layers", "model.recompute == 'full'",
     "model.recompute_layers <= max(1, model.layers // dist.pp)",
     "{model.recompute_layers} is more than the {max(1, model.layers // dist.pp)} blocks of a stage", "",
     "model.recompute_layers"},
    {"recompute-method", "model.recompute_method", "model.recompute_method == 'block'",
     "model.recompute == 'full'", "only recompute=full has a method", "",
     "model.recompute_method='uniform'; model.recompute='full'"},
    {"recompute-modules", "model.recompute_modules", "model.recompute == 'selective'",
     "len(model.recompute_modules) > 0", "selective recomputation of nothing", "",
     "model.recompute_modules=['core_attn']; model.recompute='none'"},
    {"recompute-distribute", "model.recompute_distribute", "model.recompute_distribute",
     "model.recompute == 'full' and dist.tp > 1 and not dist.sp",
     "needs recompute=full and dist.tp > 1 without dist.sp",
     "with dist.sp the inputs of blocks are split already", "model.recompute_distribute"},
    {"recompute-mla", "model.recompute_modules",
     "model.recompute == 'selective' and 'mla_up_proj' in model.recompute_modules",
     "(model.mla.kv_lora_rank ?? 0) > 0", "mla_up_proj needs a model with latent attention", "",
     "model.recompute_modules=['core_attn']"},
    {"recompute-moe", "model.recompute_modules", "model.recompute == 'selective' and experts == 0",
     "not 'moe' in model.recompute_modules and not 'moe_act' in model.recompute_modules and "
     "not 'shared_experts' in model.recompute_modules",
     "moe, moe_act and shared_experts need a model with experts", "", "model.recompute_modules=['mlp']"},
    {"offload-layers", "offload.layers", "offload.layers > 0", "offload.layers < model.layers",
     "{offload.layers} is not below model.layers ({model.layers})",
     "the last block's activations are needed at once", "offload.layers=model.layers - 1"},
    {"offload-alone", "offload.layers", "offload.layers > 0",
     "dist.pp == 1 and model.recompute == 'none' and len(offload.modules) == 0",
     "whole blocks are offloaded only without pipeline, recomputation and offload.modules", "",
     "offload.layers=0"},
    {"offload-attn-proj", "offload.modules", "'attn_proj' in offload.modules",
     "'core_attn' in offload.modules", "attn_proj without core_attn", "its input is what core_attn gives",
     ""},
    {"offload-no-graphs", "cuda_graph.type", "graphs", "offload.layers == 0 and len(offload.modules) == 0",
     "a recorded graph cannot offload", "transfers to the host wait for events outside of the graph",
     "cuda_graph.type='none'; offload.layers=0"},
    {"graph-backend", "cuda_graph.type", "graphs", "dist.backend == 'cuda'", "the backend is {dist.backend}",
     "only a GPU records graphs", "cuda_graph.type='none'; dist.backend='cuda'"},
    {"graph-modules", "cuda_graph.modules", "cuda_graph.type == 'full_iteration'",
     "len(cuda_graph.modules) == 0", "the whole step is recorded, not modules of it", "",
     "cuda_graph.modules=[]; cuda_graph.type='local'"},
    {"graph-modules-unused", "cuda_graph.modules", "len(cuda_graph.modules) > 0", "graphs",
     "nothing is recorded", "", "cuda_graph.type='local'; cuda_graph.modules=[]"},
    {"graph-moe", "cuda_graph.modules", "'moe' in cuda_graph.modules",
     "not 'moe_router' in cuda_graph.modules", "moe holds moe_router already", "", ""},
    {"graph-moe-preprocess", "cuda_graph.modules", "'moe_preprocess' in cuda_graph.modules",
     "'moe_router' in cuda_graph.modules", "moe_preprocess needs moe_router", "", ""},
    {"graph-recompute", "cuda_graph.type", "cuda_graph.type == 'local'", "model.recompute != 'full'",
     "recompute=full goes together only with full_iteration",
     "blocks would be replayed inside a recorded one", "cuda_graph.type='none'; model.recompute='selective'"},
    {"graph-dropout", "model.dropout", "graphs and model.recompute != 'none'", "model.dropout == 0",
     "dropout, recomputation and a recorded graph together", "the replay could not draw the same numbers",
     "model.dropout=0.0; cuda_graph.type='none'"},
};

}  // namespace

std::span<const Rule> memory_rules() {
  return kRules;
}

}  // namespace mtrain
