#include "mtrain/recipe/settings/model.h"

namespace mtrain {

using enum ResumeClass;

namespace {

void bind_recompute(ModelSection& s, Fields& f) {
  f("recompute", s.recompute,
    "activations that backward recomputes instead of storing them; full: every block, selective: "
    "only recompute_modules")
      .one_of({"none", "selective", "full"})
      .resume(safe)
      .renamed_from({"recompute_granularity"});
  f("recompute_method", s.recompute_method,
    "recompute=full; uniform: recompute every block, in groups of recompute_layers; block: "
    "recompute only the first recompute_layers blocks of each stage")
      .one_of({"uniform", "block"})
      .resume(safe);
  f("recompute_layers", s.recompute_layers,
    "recompute=full: number of blocks, see recompute_method")
      .min(1)
      .max(kMostLayers)
      .resume(safe)
      .renamed_from({"recompute_num_layers"});
  f("recompute_modules", s.recompute_modules,
    "recompute=selective: the parts of a block that backward recomputes")
      .one_of({"core_attn", "layernorm", "mlp", "moe", "moe_act", "shared_experts", "mla_up_proj"})
      .resume(safe);
  f("recompute_distribute", s.recompute_distribute,
    "recompute=full: shard the stored block inputs over tensor-parallel ranks; backward "
    "all-gathers them (dist.sp=true already shards them, and more)")
      .resume(safe)
      .renamed_from({"distribute_saved_activations"});
}

}  // namespace

void ModelSection::bind(Fields& f) {
  f("type", type, "the model plugin")
      .required()
      .plugin("model")
      .example("llama")
      .resume(impossible);
  f("seq_length", seq_length, "tokens per sample")
      .min(1)
      .max(kLargestDimension)
      .unit("tokens")
      .resume(data)
      .renamed_from({"encoder_seq_length"});
  f("vocab_size", vocab_size,
    "rows of the embedding matrix; 0: the size of the tokenizer's vocabulary, rounded up to a "
    "multiple of vocab_multiple")
      .min(0)
      .max(kLargestDimension)
      .resume(impossible);
  f("vocab_multiple", vocab_multiple,
    "the vocabulary is padded to a multiple of this; padding never changes the loss")
      .min(1)
      .max(kLargestDimension)
      .resume(impossible)
      .renamed_from({"make_vocab_size_divisible_by"});
  f("init_from", init_from,
    "where initial weights come from: a Hugging Face folder (config.json, *.safetensors), a run "
    "folder or a checkpoint; empty: random initialization")
      .example("/models/Llama-3.2-1B")
      .resume(start)
      .renamed_from({"pretrained_checkpoint"})
      .input_path();
  f("init_ignore", init_ignore,
    "keys of config.json in the init_from folder to ignore, although the model plugin does not "
    "support them; and model settings, written without 'model.', whose value in the recipe may "
    "differ from the one that all models of the folder's family use")
      .example("[sliding_window]")
      .resume(start);
  f("init_vocab", init_vocab,
    "action if the embedding in the init_from folder has another number of rows than this model's; "
    "exact: refuse it, resize: missing rows get the mean of the folder's rows, excess rows at the "
    "end are dropped. With resize, vocab_size comes from the recipe, not from the folder")
      .one_of({"exact", "resize"})
      .resume(start);
  f("init_upcycle", init_upcycle,
    "start a model with experts from a dense model in init_from: each expert is a copy of the "
    "block's MLP or, with 1/g of its width, one of its g slices; the router starts from random "
    "values")
      .resume(start)
      .renamed_from({"moe_use_upcycling"});
  bind_recompute(*this, f);
}

void TokenizerSection::bind(Fields& f) {
  f("type", type, "the tokenizer plugin")
      .plugin("tokenizer")
      .resume(impossible)
      .renamed_from({"tokenizer_type"});
}

void DatasetSection::bind(Fields& f) {
  f("type", type, "the dataset plugin").required().plugin("dataset").example("gpt").resume(data);
}

}  // namespace mtrain
