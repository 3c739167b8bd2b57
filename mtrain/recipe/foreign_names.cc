#include "mtrain/recipe/foreign_names.h"

#include <cctype>
#include <string>

#include "mtrain/base/text.h"
#include "mtrain/recipe/hf_families.h"

namespace mtrain {
namespace {

// clang-format off
constexpr ForeignName kNames[] = {
    // batch
    {"gradient_accumulation_steps", "transformers, axolotl, torchtune, DeepSpeed", "train.global_batch_size", "train.micro_batch_size x accumulation steps x data-parallel ranks"},
    {"accumulate_grad_batches", "Lightning", "train.global_batch_size", "train.micro_batch_size x accumulated batches x data-parallel ranks"},
    {"per_device_train_batch_size", "transformers", "train.micro_batch_size", ""},
    {"per_gpu_train_batch_size", "transformers", "train.micro_batch_size", ""},
    {"train_micro_batch_size_per_gpu", "DeepSpeed", "train.micro_batch_size", ""},
    {"micro_batch_size", "Megatron-LM, axolotl", "train.micro_batch_size", ""},
    {"batch_size", "torchtune", "train.micro_batch_size", "samples in one pass on one rank; train.global_batch_size counts those of an update on all ranks"},
    {"local_batch_size", "torchtitan", "train.micro_batch_size", ""},
    {"train_batch_size", "DeepSpeed", "train.global_batch_size", ""},
    {"global_batch_size", "Megatron-LM, torchtitan", "train.global_batch_size", ""},
    {"global_train_batch_size", "Composer", "train.global_batch_size", ""},
    {"rampup_batch_size", "Megatron-LM", "train.batch_schedule", "a list of steps finished:samples, [0:256, 2000:1024] for 1024 samples from step 2001 on"},
    {"auto_find_batch_size", "transformers", "", "`mtrain check RECIPE` shows the memory that a step needs; choose train.micro_batch_size by it"},
    {"per_device_eval_batch_size", "transformers", "validation.micro_batch_size", ""},
    {"eval_batch_size", "axolotl", "validation.micro_batch_size", ""},
    // length of the run
    {"max_steps", "transformers, axolotl", "train.steps", ""},
    {"train_iters", "Megatron-LM", "train.steps", ""},
    {"training_steps", "torchtitan", "train.steps", ""},
    {"num_training_steps", "transformers", "train.steps", ""},
    {"total_num_steps", "DeepSpeed", "train.steps", ""},
    {"epochs", "torchtune", "train.epochs", ""},
    {"num_train_epochs", "transformers", "train.epochs", ""},
    {"num_epochs", "axolotl", "train.epochs", ""},
    {"max_epochs", "Lightning", "train.epochs", ""},
    {"n_epochs", "Composer", "train.epochs", ""},
    {"max_steps_per_epoch", "torchtune", "train.steps", ""},
    {"train_samples", "Megatron-LM", "train.steps", "samples / train.global_batch_size"},
    {"exit_interval", "Megatron-LM", "train.steps", "a run that was stopped is continued with more steps"},
    {"exit_duration_in_mins", "Megatron-LM", "train.max_minutes", ""},
    {"max_time", "Lightning", "train.max_minutes", "in minutes"},
    {"early_stopping_patience", "axolotl", "", "a run ends after train.steps; metrics.jsonl has the validation losses"},
    {"load_best_model_at_end", "transformers", "", "checkpoint.keep and checkpoint.retain_interval decide which checkpoints stay"},
    {"metric_for_best_model", "transformers", "", "metrics.jsonl has the validation losses"},
    {"do_train", "transformers", "", "`mtrain RECIPE` trains, `mtrain eval RUN` evaluates"},
    {"do_eval", "transformers", "validation.steps", "0 switches validation off"},
    // sequence
    {"seq_length", "Megatron-LM", "model.seq_length", ""},
    {"seq_len", "torchtitan", "model.seq_length", ""},
    {"max_seq_length", "TRL", "model.seq_length", ""},
    {"max_seq_len", "torchtune", "model.seq_length", ""},
    {"sequence_len", "axolotl", "model.seq_length", ""},
    {"block_size", "nanoGPT", "model.seq_length", ""},
    {"max_length", "TRL", "model.seq_length", ""},
    {"cutoff_len", "LLaMA-Factory", "model.seq_length", ""},
    {"context_length", "Composer", "model.seq_length", ""},
    {"model_max_length", "transformers", "model.seq_length", ""},
    // precision
    {"fp16", "transformers, axolotl, DeepSpeed, Megatron-LM", "mixed_precision.dtype", "fp16: true is mixed_precision.dtype=fp16"},
    {"bf16", "transformers, axolotl, DeepSpeed, Megatron-LM", "mixed_precision.dtype", "bf16: true is mixed_precision.dtype=bf16, and bf16: auto is mixed_precision.dtype=auto"},
    {"bfloat16", "DeepSpeed", "mixed_precision.dtype", "mixed_precision.dtype=bf16"},
    {"float16", "axolotl", "mixed_precision.dtype", "mixed_precision.dtype=fp16"},
    {"torch_dtype", "transformers", "mixed_precision.dtype", "float32, bfloat16 and float16 are fp32, bf16 and fp16"},
    {"dtype", "torchtune", "mixed_precision.dtype", "fp32, bf16, fp16 or auto"},
    {"precision", "Lightning", "mixed_precision.dtype", "32, bf16-mixed and 16-mixed are fp32, bf16 and fp16"},
    {"mixed_precision_param", "torchtitan", "mixed_precision.dtype", "float32 and bfloat16 are fp32 and bf16"},
    {"mixed_precision_reduce", "torchtitan", "ddp.grads_dtype", "float32 and bfloat16 are fp32 and bf16"},
    {"fp16_opt_level", "transformers", "mixed_precision.dtype", "fp16; there are no opt levels"},
    {"fp16_full_eval", "transformers", "", "validation computes in mixed_precision.dtype"},
    {"bf16_full_eval", "transformers", "", "validation computes in mixed_precision.dtype"},
    {"tf32", "transformers, axolotl", "mixed_precision.tf32", ""},
    {"fp8", "axolotl", "mixed_precision.fp8", "e4m3 or hybrid"},
    {"fp8_format", "Megatron-LM", "mixed_precision.fp8", "e4m3 or hybrid"},
    {"fp8_recipe", "Megatron-LM", "mixed_precision.fp8_recipe", ""},
    {"enable_fp8_linear", "torchtitan", "mixed_precision.fp8", "true is hybrid"},
    {"first_last_layers_bf16", "Megatron-LM", "mixed_precision.first_bf16_layers", "the number of blocks; mixed_precision.last_bf16_layers is that of the end"},
    {"loss_scale", "DeepSpeed, Megatron-LM", "mixed_precision.loss_scale", ""},
    {"initial_loss_scale", "Megatron-LM", "mixed_precision.initial_loss_scale", ""},
    {"initial_scale_power", "DeepSpeed", "mixed_precision.initial_loss_scale", "2 to the power of it"},
    {"min_loss_scale", "DeepSpeed, Megatron-LM", "mixed_precision.min_loss_scale", ""},
    {"loss_scale_window", "DeepSpeed, Megatron-LM", "mixed_precision.loss_scale_window", ""},
    {"hysteresis", "DeepSpeed, Megatron-LM", "mixed_precision.loss_scale_hysteresis", ""},
    {"fp32_residual_connection", "Megatron-LM", "", "the residual stream has the type of mixed_precision.dtype"},
    {"reuse_grad_buf_for_mxfp8_param_ag", "Megatron-LM", "", "with mixed_precision.fp8_params weights are gathered into the memory from which products read them"},
    {"attention_softmax_in_fp32", "Megatron-LM", "", "softmax is always computed in fp32"},
    {"accumulate_allreduce_grads_in_fp32", "Megatron-LM", "", "gradients always add up in fp32"},
    {"check_for_nan_in_loss_and_grad", "Megatron-LM", "train.on_nonfinite", "stop or skip; it is always checked"},
    // optimizer
    {"lr", "Megatron-LM, torchtune", "optimizer.lr", ""},
    {"learning_rate", "transformers, axolotl", "optimizer.lr", ""},
    {"weight_decay", "transformers, axolotl, Megatron-LM", "optimizer.weight_decay", ""},
    {"adam_beta1", "transformers, axolotl, Megatron-LM", "optimizer.beta1", ""},
    {"adam_beta2", "transformers, axolotl, Megatron-LM", "optimizer.beta2", ""},
    {"betas", "torchtune, DeepSpeed", "optimizer.beta1", "betas: [a, b] is optimizer.beta1=a optimizer.beta2=b"},
    {"adam_epsilon", "transformers, axolotl", "optimizer.eps", ""},
    {"adam_eps", "Megatron-LM", "optimizer.eps", ""},
    {"max_grad_norm", "transformers, axolotl", "optimizer.clip_grad", ""},
    {"clip_grad", "Megatron-LM", "optimizer.clip_grad", ""},
    {"clip_grad_norm", "torchtune", "optimizer.clip_grad", ""},
    {"gradient_clipping", "DeepSpeed", "optimizer.clip_grad", ""},
    {"gradient_clip_val", "Lightning", "optimizer.clip_grad", ""},
    {"max_norm", "torchtitan", "optimizer.clip_grad", ""},
    {"optim", "transformers", "optimizer.type", "adamw_torch and adamw_torch_fused are adamw"},
    {"optimizer_type", "LLaMA-Factory", "optimizer.type", ""},
    {"optim_args", "transformers", "", "the optimizer's settings are those of the section optimizer"},
    {"optimizer_cpu_offload", "Megatron-LM", "optimizer.offload_fraction", "true is 1"},
    {"decoupled_lr", "Megatron-LM", "optimizer.embedding_lr", ""},
    {"embedding_lr_scale", "axolotl", "optimizer.embedding_lr", "optimizer.lr x the scale"},
    {"neftune_noise_alpha", "transformers, axolotl", "", "noise on embeddings is not built"},
    {"label_smoothing_factor", "transformers", "", "label smoothing is not built"},
    // scheduler
    {"lr_scheduler_type", "transformers", "scheduler.type", "constant_with_warmup is constant, warmup_stable_decay is wsd"},
    {"lr_scheduler", "axolotl", "scheduler.type", "cosine, linear, constant, wsd or inverse_sqrt"},
    {"lr_decay_style", "Megatron-LM", "scheduler.type", "WSD is wsd, inverse-square-root is inverse_sqrt"},
    {"lr_scheduler_kwargs", "transformers", "", "the schedule's settings are those of the section scheduler"},
    {"warmup_ratio", "transformers, axolotl", "scheduler.warmup_steps", "0.05 is 5%"},
    {"lr_warmup_fraction", "Megatron-LM", "scheduler.warmup_steps", "0.05 is 5%"},
    {"warmup_steps", "transformers, axolotl, torchtitan", "scheduler.warmup_steps", ""},
    {"num_warmup_steps", "torchtune", "scheduler.warmup_steps", ""},
    {"warmup_num_steps", "DeepSpeed", "scheduler.warmup_steps", ""},
    {"lr_warmup_iters", "Megatron-LM", "scheduler.warmup_steps", ""},
    {"lr_warmup_samples", "Megatron-LM", "scheduler.warmup_steps", "samples / train.global_batch_size"},
    {"warmup_max_lr", "DeepSpeed", "optimizer.lr", ""},
    {"lr_decay_iters", "Megatron-LM", "scheduler.decay_steps", ""},
    {"lr_decay_samples", "Megatron-LM", "scheduler.decay_steps", "samples / train.global_batch_size"},
    {"lr_wsd_decay_iters", "Megatron-LM", "scheduler.stable_steps", "steps at the peak: those of the whole decay without warmup and these"},
    {"min_lr", "Megatron-LM", "scheduler.min_lr", ""},
    {"lr_min", "torchtitan", "scheduler.min_lr", "the share x optimizer.lr"},
    {"min_lr_factor", "torchtitan", "scheduler.min_lr", "the factor x optimizer.lr"},
    {"cosine_min_lr_ratio", "axolotl", "scheduler.min_lr", "the ratio x optimizer.lr"},
    // checkpoints
    {"output_dir", "transformers, axolotl, torchtune", "run.dir", ""},
    {"dump_folder", "torchtitan", "run.dir", ""},
    {"save_steps", "transformers, axolotl", "checkpoint.interval", ""},
    {"save_interval", "Megatron-LM", "checkpoint.interval", ""},
    {"save_every_n_steps", "torchtune", "checkpoint.interval", ""},
    {"every_n_train_steps", "Lightning", "checkpoint.interval", ""},
    {"saves_per_epoch", "axolotl", "checkpoint.interval", "steps between checkpoints"},
    {"save_strategy", "transformers", "checkpoint.interval", "steps between checkpoints; 0: at the end only"},
    {"save_total_limit", "transformers, axolotl", "checkpoint.keep", ""},
    {"keep_latest_k", "torchtitan", "checkpoint.keep", ""},
    {"save_safetensors", "transformers", "", "checkpoints are always safetensors"},
    {"save_only_model", "transformers", "", "a checkpoint always holds what continues the run"},
    {"resume_from_checkpoint", "transformers, axolotl, torchtune", "checkpoint.resume", "auto continues from the newest checkpoint of run.dir"},
    {"auto_resume_from_checkpoints", "axolotl", "checkpoint.resume", "auto"},
    {"exit_on_missing_checkpoint", "Megatron-LM", "checkpoint.resume", "must"},
    {"overwrite_output_dir", "transformers", "checkpoint.resume", "never, with a new run.dir"},
    {"load", "Megatron-LM", "checkpoint.resume", "auto continues from run.dir; weights of another run are model.init_from"},
    {"async_save", "Megatron-LM", "checkpoint.async", ""},
    {"enable_async_checkpointing", "torchtune", "checkpoint.async", ""},
    {"async_mode", "torchtitan", "checkpoint.async", "true or false"},
    {"ckpt_step", "Megatron-LM", "", "`mtrain checkpoint rewind RUN --step N` makes the run continue from that step"},
    {"finetune", "Megatron-LM", "model.init_from", "the checkpoint to start from"},
    {"pretrained_checkpoint", "Megatron-LM", "model.init_from", ""},
    {"base_model", "axolotl", "model.init_from", "a Hugging Face folder on this machine; nothing is downloaded"},
    {"model_name_or_path", "transformers", "model.init_from", "a Hugging Face folder on this machine; nothing is downloaded"},
    {"pretrained_model_name_or_path", "transformers", "model.init_from", "a Hugging Face folder on this machine; nothing is downloaded"},
    {"checkpoint_dir", "torchtune", "model.init_from", "the folder with config.json and *.safetensors"},
    {"initial_load_path", "torchtitan", "model.init_from", ""},
    {"push_to_hub", "transformers", "", "nothing is sent anywhere; upload the run's folder by hand"},
    {"hub_model_id", "transformers, axolotl", "", "nothing is sent anywhere; upload the run's folder by hand"},
    {"trust_remote_code", "transformers, axolotl", "", "code of a model's folder is never run"},
    // validation
    {"eval_steps", "transformers, axolotl", "validation.interval", ""},
    {"eval_interval", "Megatron-LM", "validation.interval", ""},
    {"eval_iters", "Megatron-LM", "validation.steps", ""},
    {"eval_strategy", "transformers, axolotl", "validation.interval", "steps between evaluations; 0: at the end only"},
    {"evaluation_strategy", "transformers", "validation.interval", "steps between evaluations; 0: at the end only"},
    {"evals_per_epoch", "axolotl", "validation.interval", "steps between evaluations"},
    {"val_check_interval", "Lightning", "validation.interval", "in steps"},
    {"run_val_every_n_steps", "torchtune", "validation.interval", ""},
    {"limit_val_batches", "Lightning", "validation.steps", ""},
    {"val_set_size", "axolotl", "dataset.split", "0.05 is 95,5,0"},
    // logging
    {"logging_steps", "transformers, axolotl", "logger.interval", ""},
    {"log_interval", "Megatron-LM", "logger.interval", ""},
    {"log_every_n_steps", "torchtune, Lightning", "logger.interval", ""},
    {"log_freq", "torchtitan", "logger.interval", ""},
    {"logging_dir", "transformers", "run.dir", "TensorBoard files are in the run's folder"},
    {"tensorboard_dir", "Megatron-LM", "run.dir", "TensorBoard files are in the run's folder"},
    {"use_tensorboard", "axolotl", "logger.tensorboard", ""},
    {"enable_tensorboard", "torchtitan", "logger.tensorboard", ""},
    {"report_to", "transformers", "logger.tensorboard", "true for tensorboard; `wandb sync --sync-tensorboard` takes its files"},
    {"wandb", "Composer, LitGPT", "", "nothing is sent to Weights & Biases; `wandb sync --sync-tensorboard` takes the run's TensorBoard files"},
    {"wandb_project", "axolotl, Megatron-LM", "", "nothing is sent to Weights & Biases; `wandb sync --sync-tensorboard` takes the run's TensorBoard files"},
    {"load_optim", "Megatron-LM", "", "`model.init_from=RUN` starts a new run from the weights alone"},
    {"no_load_optim", "Megatron-LM", "", "`model.init_from=RUN` starts a new run from the weights alone"},
    {"load_rng", "Megatron-LM", "", "random numbers follow from rng.seed and the step"},
    {"no_load_rng", "Megatron-LM", "", "random numbers follow from rng.seed and the step"},
    {"enable_wandb", "torchtitan", "", "nothing is sent to Weights & Biases; `wandb sync --sync-tensorboard` takes the run's TensorBoard files"},
    {"run_name", "transformers", "run.name", ""},
    {"wandb_name", "axolotl", "run.name", ""},
    {"wandb_exp_name", "Megatron-LM", "run.name", ""},
    {"disable_tqdm", "transformers", "logger.console", "plain"},
    {"log_level", "transformers", "", "set the environment variable MTRAIN_LOG=debug, info, warn, error or off"},
    // data
    {"data_path", "Megatron-LM", "dataset.path", ""},
    {"train_data_path", "Megatron-LM", "dataset.path", ""},
    {"valid_data_path", "Megatron-LM", "dataset.valid_path", ""},
    {"test_data_path", "Megatron-LM", "dataset.test_path", ""},
    {"train_file", "transformers", "dataset.path", ""},
    {"validation_file", "transformers", "dataset.valid_path", ""},
    {"test_datasets", "axolotl", "dataset.valid_path", ""},
    {"datasets", "axolotl", "dataset.path", "a file of records (dataset.type=sft), or the prefix of prepared tokens (dataset.type=gpt)"},
    {"dataset_name", "transformers", "dataset.path", "a file on this machine; nothing is downloaded"},
    {"dataset_path", "torchtitan", "dataset.path", ""},
    {"dataset_text_field", "TRL", "dataset.columns", "{text: its name}"},
    {"blend", "Megatron-Bridge", "dataset.paths", "with dataset.weights"},
    {"split", "Megatron-LM", "dataset.split", ""},
    {"sample_packing", "axolotl", "dataset.packing", "true is offline"},
    {"packed", "torchtune", "dataset.packing", "true is offline"},
    {"packing", "TRL", "dataset.packing", "true is offline"},
    {"pad_to_sequence_len", "axolotl", "", "samples always have model.seq_length tokens"},
    {"train_on_inputs", "axolotl", "dataset.train_on", "true is all, false is assistant"},
    {"train_on_input", "torchtune", "dataset.train_on", "true is all, false is assistant"},
    {"assistant_only_loss", "TRL", "dataset.train_on", "true is assistant, false is all"},
    {"completion_only_loss", "TRL", "dataset.train_on", "true is assistant, false is all"},
    {"chat_template", "transformers, axolotl", "dataset.chat_template", "one that comes with mtrain, by name; a file: dataset.template_path"},
    {"dataset_prepared_path", "axolotl", "", "prepare token files with `mtrain data prepare`"},
    {"preprocessing_num_workers", "transformers", "", "an option of `mtrain data prepare`"},
    {"group_by_length", "transformers", "", "dataset.packing fills samples instead"},
    {"dataloader_num_workers", "transformers, axolotl", "", "one thread reads ahead; there is nothing to choose"},
    {"num_workers", "Megatron-LM, torchtune", "", "one thread reads ahead; there is nothing to choose"},
    {"reset_position_ids", "Megatron-LM", "dataset.reset_position_ids", ""},
    {"reset_attention_mask", "Megatron-LM", "dataset.reset_attention_mask", ""},
    {"eod_mask_loss", "Megatron-LM", "dataset.eod_mask_loss", ""},
    {"mlm_probability", "transformers", "dataset.mask_probability", ""},
    // tokenizer
    {"tokenizer_name", "transformers", "tokenizer.path", "with tokenizer.type=hf"},
    {"tokenizer_name_or_path", "transformers", "tokenizer.path", "with tokenizer.type=hf"},
    {"tokenizer_path", "torchtitan", "tokenizer.path", ""},
    {"tokenizer_config", "axolotl", "tokenizer.path", "with tokenizer.type=hf"},
    {"tokenizer_model", "Megatron-LM", "tokenizer.path", ""},
    {"tokenizer_type", "Megatron-LM, axolotl", "tokenizer.type", "HuggingFaceTokenizer is hf, GPT2BPETokenizer is gpt2_bpe"},
    {"vocab_file", "Megatron-LM", "tokenizer.path", ""},
    {"merge_file", "Megatron-LM", "tokenizer.merges", ""},
    {"padded_vocab_size", "Megatron-LM", "model.vocab_size", ""},
    {"make_vocab_size_divisible_by", "Megatron-LM", "model.vocab_multiple", ""},
    // model
    {"num_layers", "Megatron-LM, torchtune", "model.layers", ""},
    {"n_layers", "torchtitan", "model.layers", ""},
    {"num_hidden_layers", "transformers", "model.layers", ""},
    {"hidden_size", "Megatron-LM, transformers", "model.hidden_size", ""},
    {"dim", "torchtitan", "model.hidden_size", ""},
    {"n_embd", "nanoGPT, GPT-2", "model.hidden_size", ""},
    {"n_layer", "nanoGPT, GPT-2", "model.layers", ""},
    {"n_head", "nanoGPT, GPT-2", "model.heads", ""},
    {"embed_dim", "torchtune", "model.hidden_size", ""},
    {"d_model", "Composer", "model.hidden_size", ""},
    {"num_attention_heads", "Megatron-LM, transformers", "model.heads", ""},
    {"num_heads", "torchtune", "model.heads", ""},
    {"n_heads", "torchtitan", "model.heads", ""},
    {"num_key_value_heads", "transformers", "model.kv_heads", ""},
    {"num_kv_heads", "torchtune", "model.kv_heads", ""},
    {"n_kv_heads", "torchtitan", "model.kv_heads", ""},
    {"num_query_groups", "Megatron-LM", "model.kv_heads", ""},
    {"group_query_attention", "Megatron-LM", "model.kv_heads", "the number of groups"},
    {"ffn_hidden_size", "Megatron-LM", "model.ffn_hidden_size", ""},
    {"intermediate_size", "transformers", "model.ffn_hidden_size", ""},
    {"intermediate_dim", "torchtune", "model.ffn_hidden_size", ""},
    {"kv_channels", "Megatron-LM", "model.head_dim", ""},
    {"rotary_base", "Megatron-LM", "model.rope.theta", ""},
    {"rope_scaling", "transformers", "model.rope.scaling", "the kind; the factor of the map is model.rope.factor"},
    {"rope_theta", "transformers, torchtitan", "model.rope.theta", ""},
    {"rope_base", "torchtune", "model.rope.theta", ""},
    {"rms_norm_eps", "transformers", "model.norm_eps", ""},
    {"norm_epsilon", "Megatron-LM", "model.norm_eps", ""},
    {"max_position_embeddings", "Megatron-LM, transformers", "model.seq_length", "the length of samples; models with learned positions also have model.max_positions"},
    {"normalization", "Megatron-LM", "model.type", "llama has RMSNorm, gpt2 and bert have LayerNorm"},
    {"swiglu", "Megatron-LM", "model.type", "llama has a gated MLP"},
    {"position_embedding_type", "Megatron-LM", "model.type", "llama has rotary positions, gpt2 and bert have learned ones"},
    {"untie_embeddings_and_output_weights", "Megatron-LM", "model.tie_embeddings", "true is false, false is true"},
    {"tie_word_embeddings", "transformers", "model.tie_embeddings", ""},
    {"hidden_dropout", "Megatron-LM", "model.dropout", ""},
    {"attention_dropout", "Megatron-LM, transformers", "model.attention.dropout", ""},
    {"init_method_std", "Megatron-LM", "model.init_std", ""},
    {"initializer_range", "transformers", "model.init_std", ""},
    {"sliding_window", "transformers", "model.attention.window", ""},
    {"use_flash_attn", "Megatron-LM", "", "attention is always fused"},
    {"flash_attention", "axolotl", "", "attention is always fused"},
    {"sdp_attention", "axolotl", "", "attention is always fused"},
    {"attn_implementation", "transformers", "", "attention is always fused"},
    {"torch_compile", "transformers, axolotl", "", "kernels are compiled when mtrain is built"},
    {"compile", "torchtune", "", "kernels are compiled when mtrain is built"},
    {"gradient_checkpointing", "transformers, axolotl", "model.recompute", "true is full, false is none"},
    {"activation_checkpointing", "DeepSpeed", "model.recompute", "none, selective or full"},
    {"enable_activation_checkpointing", "torchtune", "model.recompute", "true is full"},
    {"activation_checkpoint", "torchtitan", "model.recompute", "none, selective or full"},
    {"recompute_activations", "Megatron-LM", "model.recompute", "true is selective"},
    {"recompute_granularity", "Megatron-LM", "model.recompute", ""},
    {"enable_activation_offloading", "torchtune", "offload.layers", "how many blocks"},
    {"num_local_experts", "transformers", "model.moe.experts", "with model.type=moe"},
    {"num_experts", "Megatron-LM", "model.moe.experts", "with model.type=moe"},
    {"num_experts_per_tok", "transformers", "model.moe.top_k", "with model.type=moe"},
    {"moe_router_topk", "Megatron-LM", "model.moe.top_k", "with model.type=moe"},
    {"moe_expert_rank_capacity_factor", "Megatron-LM", "model.moe.capacity_factor", "a limit for each expert"},
    {"moe_flex_dispatcher_backend", "Megatron-LM", "", "tokens reach their experts by all-to-all of the communicator of dist.comm"},
    {"moe_enable_deepep", "Megatron-LM", "", "tokens reach their experts by all-to-all of the communicator of dist.comm"},
    {"moe_router_padding_for_quantization", "Megatron-LM", "", "an expert may have any number of rows with mixed_precision.fp8"},
    {"moe_router_force_load_balancing", "Megatron-LM", "", "`mtrain bench` measures with start values, whose routers are about balanced"},
    {"router_aux_loss_coef", "transformers", "model.moe.router.aux_loss_coeff", ""},
    // adapters and quantized weights
    {"adapter", "axolotl", "peft.type", "lora or dora"},
    {"use_peft", "TRL", "peft.type", "lora"},
    {"finetuning_type", "LLaMA-Factory", "peft.type", "full is none"},
    {"use_dora", "PEFT", "peft.type", "dora"},
    {"peft_use_dora", "axolotl", "peft.type", "dora"},
    {"lora_r", "axolotl, TRL", "peft.rank", ""},
    {"lora_rank", "torchtune, LLaMA-Factory", "peft.rank", ""},
    {"lora_alpha", "axolotl, torchtune, PEFT", "peft.alpha", ""},
    {"lora_dropout", "axolotl, torchtune, PEFT", "peft.dropout", ""},
    {"lora_target_modules", "axolotl, TRL", "peft.targets", "by our names, e.g. [attn.qkv]"},
    {"lora_attn_modules", "torchtune", "peft.targets", "by our names, e.g. [attn.qkv]"},
    {"lora_target_linear", "axolotl", "peft.targets", "true is [attn.*, mlp.*]"},
    {"load_in_8bit", "transformers, axolotl", "", "training on quantized weights is not built"},
    {"load_in_4bit", "transformers, axolotl", "", "training on quantized weights is not built"},
    {"rl", "axolotl", "", "training by preferences (DPO, KTO, PPO) is not built"},
    // ranks and devices
    {"tensor_model_parallel_size", "Megatron-LM", "dist.tp", ""},
    {"tensor_parallel_degree", "torchtitan", "dist.tp", ""},
    {"tensor_parallel", "DeepSpeed", "dist.tp", ""},
    {"tp_size", "accelerate, ColossalAI", "dist.tp", ""},
    {"pp_size", "ColossalAI", "dist.pp", ""},
    {"cp_size", "accelerate", "dist.cp", ""},
    {"ep_size", "ColossalAI, DeepSpeed", "dist.ep", ""},
    {"tensor_parallel_size", "axolotl", "dist.tp", ""},
    {"tensor_parallel_dim", "torchtune", "dist.tp", ""},
    {"pipeline_model_parallel_size", "Megatron-LM", "dist.pp", ""},
    {"pipeline_parallel_degree", "torchtitan", "dist.pp", ""},
    {"pipeline_parallel_schedule", "torchtitan", "dist.schedule", ""},
    {"num_layers_per_virtual_pipeline_stage", "Megatron-LM", "dist.vp", "model.layers / dist.pp / these layers"},
    {"context_parallel_size", "Megatron-LM, axolotl", "dist.cp", ""},
    {"context_parallel_degree", "torchtitan", "dist.cp", ""},
    {"context_parallel_dim", "torchtune", "dist.cp", ""},
    {"sequence_parallel_degree", "axolotl", "dist.cp", ""},
    {"expert_model_parallel_size", "Megatron-LM", "dist.ep", ""},
    {"expert_parallel_degree", "torchtitan", "dist.ep", ""},
    {"sequence_parallel", "Megatron-LM", "dist.sp", ""},
    {"data_parallel_shard_degree", "torchtitan", "dist.zero", "3 shares parameters, gradients and optimizer state over the data-parallel ranks"},
    {"data_parallel_replicate_degree", "torchtitan", "dist.hsdp", ""},
    {"data_parallel_size", "Megatron-LM", "dist.nproc", "dist.tp x dist.pp x dist.cp x this"},
    {"fsdp", "transformers, axolotl", "dist.zero", "full_shard is 3, shard_grad_op is 2"},
    {"fsdp_config", "transformers, axolotl", "dist.zero", "full_shard is 3, shard_grad_op is 2"},
    {"data_parallel_sharding_strategy", "Megatron-LM", "dist.zero", "no_shard is 0, optim is 1, optim_grads is 2, optim_grads_params is 3"},
    {"outer_dp_sharding_strategy", "Megatron-LM", "dist.outer_zero", "no_shard is 0, optim is 1"},
    {"zero_optimization", "DeepSpeed", "dist.zero", "the stage: 0, 1, 2 or 3"},
    {"zero_stage", "DeepSpeed", "dist.zero", ""},
    {"deepspeed", "transformers, axolotl", "dist.zero", "the stage of the JSON file: 0, 1, 2 or 3"},
    {"use_distributed_optimizer", "Megatron-LM", "dist.zero", "true is 1"},
    {"fsdp_cpu_offload", "torchtune", "optimizer.offload_fraction", "true is 1"},
    {"offload_optimizer", "DeepSpeed", "optimizer.offload_fraction", "1"},
    {"overlap_comm", "DeepSpeed", "ddp.overlap_grad_reduce", ""},
    {"overlap_grad_reduce", "Megatron-LM", "ddp.overlap_grad_reduce", ""},
    {"overlap_param_gather", "Megatron-LM", "ddp.overlap_param_gather", ""},
    {"ddp_bucket_size", "Megatron-LM", "ddp.bucket_size", ""},
    {"reduce_bucket_size", "DeepSpeed", "ddp.bucket_size", ""},
    {"grad_reduce_in_fp32", "Megatron-LM", "ddp.grads_dtype", "true is fp32, false is bf16"},
    {"reduce_scatter_with_fp32_accumulation", "Megatron-LM", "ddp.accumulate_dtype", "true is fp32, false is bf16"},
    {"pad_buckets_for_high_nccl_busbw", "Megatron-LM", "ddp.pad_buckets", ""},
    {"average_in_collective", "Megatron-LM", "", "a token's gradient is divided by the targets of the global batch, so the sum over ranks is the average"},
    {"ddp_average_in_collective", "Megatron-LM", "", "a token's gradient is divided by the targets of the global batch, so the sum over ranks is the average"},
    {"align_param_gather", "Megatron-LM", "", "all pipeline stages start to gather right after the update"},
    {"double_buffer", "Megatron-LM", "", "gathered parameters reuse the memory of blocks that were freed"},
    {"fsdp_double_buffer", "Megatron-LM", "", "gathered parameters reuse the memory of blocks that were freed"},
    {"overlap_p2p_comm_warmup_flush", "Megatron-LM", "comm_overlap.p2p", "it applies to all phases"},
    {"warmup_flush", "Megatron-LM", "comm_overlap.p2p", "it applies to all phases"},
    {"ep_overlap_early_attn_memory_release", "Megatron-LM", "", "backward frees what an op kept as soon as the op has run"},
    {"early_attn_release", "Megatron-LM", "", "backward frees what an op kept as soon as the op has run"},
    {"eval_context_parallel_size", "Megatron-LM", "", "evaluation has the ranks of training; `mtrain eval --from RUN dist.cp=N` evaluates a run with others"},
    {"nproc_per_node", "torchrun", "dist.nproc", "ranks of all machines together"},
    {"num_processes", "accelerate", "dist.nproc", ""},
    {"world_size", "torchrun", "dist.nproc", ""},
    {"num_gpus", "DeepSpeed", "dist.nproc", ""},
    {"devices", "Lightning", "dist.nproc", ""},
    {"accelerator", "Lightning", "dist.backend", "cpu or cuda"},
    {"device", "torchtune", "dist.backend", "cpu or cuda"},
    {"use_cpu", "transformers", "dist.backend", "true is cpu"},
    {"no_cuda", "transformers", "dist.backend", "true is cpu"},
    {"ddp_backend", "transformers", "dist.comm", "nccl, mpi, tcp or thread"},
    {"distributed_backend", "Megatron-LM", "dist.comm", "nccl, mpi, tcp or thread"},
    {"ddp_timeout", "transformers", "dist.timeout_minutes", "seconds / 60"},
    {"distributed_timeout_minutes", "Megatron-LM", "dist.timeout_minutes", ""},
    {"local_rank", "transformers", "", "the launcher sets it"},
    // reproducibility and profiling
    {"seed", "transformers, axolotl, torchtune, Megatron-LM", "rng.seed", ""},
    {"data_seed", "transformers", "rng.seed", ""},
    {"random_seed", "Composer", "rng.seed", ""},
    {"full_determinism", "transformers", "run.deterministic", ""},
    {"deterministic", "torchtitan, Lightning", "run.deterministic", ""},
    {"deterministic_mode", "Megatron-LM", "run.deterministic", ""},
    {"cudnn_deterministic_mode", "torchtune", "run.deterministic", ""},
    {"profile", "Megatron-LM", "profiling.type", "true is trace"},
    {"enable_profiling", "torchtitan", "profiling.type", "true is trace"},
    {"profile_step_start", "Megatron-LM", "profiling.start", ""},
    {"profile_step_end", "Megatron-LM", "profiling.end", ""},
    {"cuda_graph_impl", "Megatron-LM", "cuda_graph.type", "none or full_iteration"},
    {"cuda_graph_modules", "Megatron-LM", "", "cuda_graph.type=full_iteration records whatever a step gives the GPU"},
    {"cuda_graph_scope", "Megatron-LM", "", "cuda_graph.type=full_iteration records whatever a step gives the GPU"},
};
// clang-format on

/// The setting at a path, in any component of its section; null: none.
const FieldSpec* find_setting(const SchemaCatalog& catalog, std::string_view path) {
  const size_t dot = path.find('.');
  for (const Schema* owner : catalog.all_owners(path.substr(0, dot)))
    for (const FieldSpec& spec : owner->fields)
      if (spec.path == path.substr(dot + 1)) return &spec;
  return nullptr;
}

/// The spelling of the table: lora_r for the command-line option LoRA-R.
std::string plain(std::string_view name) {
  std::string out(name);
  for (char& c : out)
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

/// Lower case without separators: mistral7b, mistralforcausallm.
std::string folded(std::string_view name) {
  std::string out;
  for (char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)))
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

/// The model family of a name: the family's name, a model of it (mistral7b), or a prefix (qwen: the
/// first match).
const HfFamily* meant_family(const std::string& name) {
  const HfFamily* found = nullptr;
  size_t longest = 0;
  for (const HfFamily& family : hf_families()) {
    const std::string type = folded(family.model_type);
    if (type == name) return &family;
    for (std::string_view architecture : family.architectures)
      if (folded(architecture) == name) return &family;
    const size_t common = name.starts_with(type)                       ? type.size()
                          : name.size() >= 3 && type.starts_with(name) ? 1
                                                                       : 0;
    if (common > longest) found = &family, longest = common;
  }
  return found;
}

/// "true is fp32, false is bf16" of ddp.grads_dtype: "ddp.grads_dtype=fp32 for true,
/// ddp.grads_dtype=bf16 for false"; empty where `how` has another form.
std::string with_values(std::string_view setting, std::string_view how) {
  std::string out;
  while (!how.empty()) {
    const size_t is = how.find(" is ");
    if (is == std::string_view::npos || how.substr(0, is).find(' ') != std::string_view::npos)
      return {};
    const std::string_view theirs = how.substr(0, is);
    how.remove_prefix(is + 4);
    const size_t end = how.starts_with('[') ? how.find(']') + 1 : how.find(',');
    const std::string_view ours = how.substr(0, end);
    if (ours.empty() || (ours[0] != '[' && ours.find(' ') != std::string_view::npos)) return {};
    out += cat(out.empty() ? "" : ", ", setting, '=', ours, " for ", theirs);
    how.remove_prefix(ours.size());
    if (how.starts_with(", ")) how.remove_prefix(2);
  }
  return out;
}

std::string help_of(const ForeignName& row, const SchemaCatalog& catalog) {
  const std::string origin = cat(" (", row.name, " is a name of ", row.trainers, ")");
  if (row.setting.empty()) return cat("leave it out: ", row.how, origin);
  const FieldSpec* spec = find_setting(catalog, row.setting);
  if (!spec) return {};  // belongs to a plugin that is not installed
  const bool lacking = !spec->needs.empty() && spec->needs_values.empty();
  const std::string values = lacking ? "" : with_values(row.setting, row.how);
  if (!values.empty()) return cat("use ", values, origin);
  return cat(lacking ? "the setting would be " : "use ", row.setting, row.how.empty() ? "" : ": ",
             row.how, lacking ? cat("; it needs ", spec->needs, ", not built yet") : "", origin);
}

}  // namespace

std::span<const ForeignName> foreign_names() { return kNames; }

const ForeignName* find_foreign_name(std::string_view name) {
  const std::string wanted = plain(name);
  for (const ForeignName& row : kNames)
    if (row.name == wanted) return &row;
  return nullptr;
}

std::string foreign_name_help(std::string_view path, const SchemaCatalog& catalog) {
  // optimizer.name=adamw, tokenizer._target_: the component of a section is its type.
  for (std::string_view last : {".name", ".kind", ".class", "._target_"})
    if (path.ends_with(last))
      if (const std::string type = cat(path.substr(0, path.size() - last.size()), ".type");
          find_setting(catalog, type))
        return cat("use ", type, ", which names the component");
  for (;;) {  // try the last part first: fp16.enabled means fp16
    const size_t dot = path.rfind('.');
    const ForeignName* row =
        find_foreign_name(dot == std::string_view::npos ? path : path.substr(dot + 1));
    if (row)
      return row->setting == path
                 ? ""
                 : help_of(
                       *row,
                       catalog);  // it is a setting of a component that the recipe does not choose
    if (dot == std::string_view::npos) return {};
    path = path.substr(0, dot);
  }
}

std::string foreign_component_help(std::string_view kind, std::string_view name) {
  const HfFamily* family = kind == "model" ? meant_family(folded(name)) : nullptr;
  if (!family) return {};
  const std::string type(family->model_type), plugin(family->plugin);
  if (plugin.empty())
    return cat(type, " is not supported; not built: ", std::string(family->lacks));
  return cat("write ", plugin, type == plugin ? "" : cat(", which implements ", type),
             "; for trained weights model.init_from=DIR, a Hugging Face folder");
}

}  // namespace mtrain
