// The table of other trainers' names: what it leads to exists, and an unknown setting is answered
// by it.
#include "mtrain/recipe/foreign_names.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "../process.h"
#include "built_plugins.h"
#include "mtrain/base/text.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"

using namespace mtrain;
using testing::has;

namespace {

const SchemaCatalog& catalog() {
  static const SchemaCatalog catalog = schema_catalog(testing::built_plugins());
  return catalog;
}

/// The setting of mtrain at a path, in any component; null: none.
const FieldSpec* setting_at(std::string_view path) {
  const size_t dot = path.find('.');
  for (const Schema* owner : catalog().all_owners(path.substr(0, dot)))
    for (const FieldSpec& spec : owner->fields)
      if (spec.path == path.substr(dot + 1)) return &spec;
  return nullptr;
}

/// The help of the error about an override of a setting that does not exist.
std::string help_for(const std::string& setting) {
  ConfigRequest request{
      .recipe = "r.yaml",
      .text = "model: {type: llama}\ntokenizer: byte\ndataset: mock\ntrain: {steps: 1}\n",
      .overrides = {{cat("++", setting, "=1"), 2}}};
  Report report;
  ConfigContainer::load(request, catalog(), report);
  for (const auto& fault : report.diagnostics())
    if (fault.code == "unknown-key" && fault.path == setting) return fault.help;
  return "no error";
}

}  // namespace

TEST_CASE(
    "each name of another trainer leads to a setting that exists, or says why there is none") {
  CHECK(foreign_names().size() >= 150);
  std::set<std::string_view> seen;
  for (const ForeignName& row : foreign_names()) {
    CAPTURE(row.name);
    CHECK_MESSAGE(seen.insert(row.name).second, "twice in the table");
    CHECK(std::all_of(row.name.begin(), row.name.end(),
                      [](char c) { return std::islower(c) || std::isdigit(c) || c == '_'; }));
    CHECK_FALSE(row.trainers.empty());
    if (row.setting.empty())
      CHECK_FALSE(row.how.empty());
    else
      CHECK_MESSAGE(setting_at(row.setting), row.setting);
    CHECK_FALSE(catalog().section(row.name));  // such a name never is unknown
  }
}

TEST_CASE("settings that the explanations of the table name exist") {
  for (const ForeignName& row : foreign_names()) {
    CAPTURE(row.how);
    for (const Schema& section : catalog().sections()) {
      const std::string start = section.name + ".";
      for (size_t at = row.how.find(start); at != std::string_view::npos;
           at = row.how.find(start, at + 1)) {
        if (at > 0 &&
            (std::isalnum(row.how[at - 1]) || row.how[at - 1] == '_' || row.how[at - 1] == '.'))
          continue;
        const size_t end =
            std::min(row.how.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.", at),
                     row.how.size());
        const std::string_view path = row.how.substr(at, end - at);
        if (path.ends_with(".jsonl") || path.ends_with(".json")) continue;
        CHECK_MESSAGE(setting_at(path), path);
      }
    }
  }
}

TEST_CASE("an unknown setting is answered with ours, wherever it is written") {
  for (const ForeignName& row : foreign_names()) {
    const std::string help = help_for(std::string(row.name));
    CAPTURE(help);
    CHECK(has(help, row.name));
    CHECK(has(help, row.setting.empty() ? row.how : row.setting));
  }
  CHECK(help_for("gradient_accumulation_steps") ==
        "use train.global_batch_size: train.micro_batch_size x accumulation steps x data-parallel "
        "ranks "
        "(gradient_accumulation_steps is a name of transformers, axolotl, torchtune, DeepSpeed)");
  CHECK(help_for("train.gradient_accumulation_steps") == help_for("gradient_accumulation_steps"));
  CHECK(help_for("use_distributed_optimizer") ==
        "use dist.zero=1 for true (use_distributed_optimizer is a name of Megatron-LM)");
  CHECK(help_for("grad_reduce_in_fp32") ==
        "use ddp.grads_dtype=fp32 for true, ddp.grads_dtype=bf16 for false (grad_reduce_in_fp32 is "
        "a name of Megatron-LM)");
  CHECK(has(help_for("dist.tensor_parallel"), "use dist.tp ("));
  CHECK(help_for("optimizer.name") == "use optimizer.type, which names the component");
  CHECK(has(help_for("tokenizer._target_"), "use tokenizer.type, "));
  CHECK(help_for("optimzer.lr") == "did you mean optimizer.lr?");
  CHECK(help_for("profiling.enabled") == "choose profiling.type: none, trace");
  // An old name of comm_overlap's, which says nothing about other sections.
  CHECK_FALSE(has(help_for("logger.enabled"), "comm_overlap"));
  CHECK(help_for("comm_overlp.enabled") == "did you mean comm_overlap.tp?");
  CHECK(has(help_for("training.local_batch_size"), "use train.micro_batch_size"));
  CHECK(has(help_for("deepspeed_config.fp16.enabled"), "use mixed_precision.dtype"));
  CHECK(has(help_for("wandb.project"), "leave it out: nothing is sent to Weights & Biases"));
  CHECK(has(help_for("lora_r"), "use peft.rank"));
  CHECK(has(help_for("peft.use_dora"), "use peft.type=dora"));
  CHECK(has(help_for("peft.bias"), "use peft.train"));
  CHECK(has(help_for("peft.layers_to_transform"), "use peft.targets"));
  CHECK(has(help_for("push_to_hub"), "leave it out: "));
  // Settings that mtrain had, and that had no function.
  for (const char* setting :
       {"ddp.align_param_gather", "ddp.average_in_collective", "ddp.double_buffer",
        "dist.eval_context_parallel_size", "mixed_precision.fp32_residual_connection",
        "mixed_precision.reuse_grad_buf_for_mxfp8_param_ag", "comm_overlap.early_attn_release",
        "cuda_graph.cuda_graph_modules", "model.moe_flex_dispatcher_backend",
        "model.moe_router_padding_for_quantization", "model.moe_router_force_load_balancing",
        "model.dispatch_dtype", "model.moe_grouped_gemm"})
    CHECK_MESSAGE(has(help_for(setting), "leave it out: "), setting);
  CHECK(has(help_for("comm_overlap.warmup_flush"), "use comm_overlap.p2p"));
  CHECK(has(help_for("model.moe_expert_rank_capacity_factor"), "use model.moe.capacity_factor"));
  // Megatron-LM and DeepSeek count the blocks from another place.
  CHECK(has(help_for("model.moe_layer_freq"),
            "use model.moe.layer_freq: 1 is the default. Above 1 it selects blocks 0, n, 2n ..., "
            "while model.moe.layer_freq selects n - 1, 2n - 1 ..."));
  // Packing within a micro-batch: packing over the whole file fills samples better.
  for (const char* name : {"pack_sequences_in_batch", "enable_in_batch_packing", "padding_free"})
    CHECK_MESSAGE(has(help_for(cat("dataset.", name)),
                      "use dataset.packing: true is offline, which packs over the whole file and "
                      "not within a micro-batch"),
                  name);
}

TEST_CASE(
    "a family of models is answered with the model that computes it, or with what is lacking") {
  const std::string folder = "; for trained weights model.init_from=DIR, a Hugging Face folder";
  for (const auto& [name, wanted] :
       {std::pair<std::string, std::string>{"mistral",
                                            "write llama, which implements mistral" + folder},
        {"Mistral-7B", "write llama, which implements mistral" + folder},
        {"mixtral", "write moe, which implements mixtral" + folder},
        {"LlamaForCausalLM", "write llama" + folder},
        {"llama3", "write llama" + folder},
        {"qwen", "write llama, which implements qwen2" + folder},
        {"qwen3", "write llama, which implements qwen3" + folder},
        {"gemma", "write llama, which implements gemma" + folder},
        {"phi", "write llama, which implements phi" + folder},
        {"apertus", "apertus is not supported; not implemented: the activation xIELU"},
        {"lama", "did you mean llama?"},
        {"falcon", "write llama, which implements falcon" + folder},
        {"bloom", ""}}) {
    ConfigRequest request{.recipe = "r.yaml",
                          .text = cat("model: {type: ", name,
                                      "}\ntokenizer: byte\ndataset: mock\ntrain: {steps: 1}\n"),
                          .overrides = {}};
    Report report;
    ConfigContainer::load(request, catalog(), report);
    REQUIRE(report.errors() == 1);
    CHECK(report.diagnostics().front().help == wanted);
  }
}

TEST_CASE("on the command line and by `config explain`, too") {
  const testing::Scratch recipe("foreign-names");
  testing::Outcome outcome = testing::cli(
      {"check", recipe.write("r.yaml", testing::tiny_recipe()), "gradient_accumulation_steps=4"});
  CHECK(outcome.status == 10);
  CHECK_MESSAGE(has(outcome.err, "help: use train.global_batch_size: "), outcome.err);
  for (const auto& [word, wanted] :
       {std::pair{"device=cuda", "help: use dist.backend: cpu or cuda"},
        {"optimizer=adamw_torch",
         "help: write optimizer=adamw (adamw_torch is its name in transformers)"},
        {"optimizer.type=adamw_torch",
         "help: write adamw (adamw_torch is its name in transformers)"},
        {"device=gpu", "help: write +device=gpu to add it"},
        {"dataset={type: sft, path: x, packing: in_batch}",
         "help: write offline (in_batch is its name in trainers that pack each micro-batch "
         "separately; offline packs over the whole file)"},
        {"sample_packing=true", "remove it (on the command line: ~sample_packing), or choose sft"},
        {"dataset.split=1",
         "help: dataset.type is mock, which does not have this setting: remove it (on the command "
         "line: ~dataset.split), or choose "}}) {
    outcome = testing::cli({"check", (recipe.path() / "r.yaml").string(), word});
    CHECK(outcome.status == 10);
    CHECK_MESSAGE(has(outcome.err, wanted), outcome.err);
  }
  // In a recipe with a defaults list, the nearest options and components, and what is known of a
  // family. That the section then lacks its type is no error of its own.
  const std::string listed = recipe.write(
      "listed.yaml",
      "defaults:\n- model: llama3_8b\n- dataset: mock\n- tokenizer: byte\ntrain: {steps: 1}\n");
  for (const auto& [name, wanted] :
       {std::pair{"lama", "help: did you mean llama, llama2_7b or llama3_8b?"},
        {"Llama-3-8B", "help: did you mean llama3_8b"},
        {"mistral", "help: did you mean mistral_7b?"},
        {"mistral", "write llama, which implements mistral; for trained weights"},
        {"phi3", "help: did you mean phi4?"},
        {"bloom", "components: bert, gpt2, llama, moe"},
        {"bloom", "help: choose one of them\n"}}) {
    outcome = testing::cli({"check", listed, cat("model=", name)});
    CHECK(outcome.status == 10);
    CHECK_MESSAGE(has(outcome.err, wanted), outcome.err);
    CHECK_MESSAGE(has(outcome.err, "\n1 error"), outcome.err);
  }
  outcome = testing::cli({"config", "explain", "per_device_train_batch_size"});
  CHECK(outcome.status == 10);
  CHECK_MESSAGE(
      has(outcome.err,
          "use train.micro_batch_size (per_device_train_batch_size is a name of transformers)"),
      outcome.err);
}

TEST_CASE(
    "a name whose values mean something else is no alias; its values are explained everywhere") {
  for (const ForeignName& row : foreign_names()) {
    if (!row.how.starts_with("true is ") && !row.how.starts_with("no_shard is ") &&
        row.name != "rampup_batch_size" && row.name != "first_last_layers_bf16")
      continue;
    CAPTURE(row.name);
    for (const Schema& section : catalog().sections())
      for (const Schema* owner : catalog().all_owners(section.name))
        for (const FieldSpec& spec : owner->fields)
          CHECK(std::find(spec.renamed_from.begin(), spec.renamed_from.end(), row.name) ==
                spec.renamed_from.end());
  }
  for (const char* setting :
       {"ddp.grad_reduce_in_fp32", "train.rampup_batch_size", "optimizer.optimizer_cpu_offload",
        "ddp.reduce_scatter_with_fp32_accumulation", "dist.data_parallel_sharding_strategy",
        "dist.use_distributed_optimizer"}) {
    const std::string bare(
        std::string_view(setting).substr(std::string_view(setting).find('.') + 1));
    CHECK_MESSAGE(help_for(setting) == help_for(bare), setting, ": ", help_for(setting));
  }
  CHECK(has(help_for("ddp.grad_reduce_in_fp32"), "ddp.grads_dtype=fp32 for true"));
  CHECK(
      has(help_for("dist.data_parallel_sharding_strategy"), "dist.zero=3 for optim_grads_params"));
  CHECK(has(help_for("train.rampup_batch_size"), "from step 2001 on"));
}

TEST_CASE("a hint names a setting of the chosen model, or says that the model does not have it") {
  CHECK(has(help_for("model.dim"), "use model.hidden_size "));
  CHECK(has(help_for("model.n_embd"), "use model.hidden_size "));
  CHECK(has(help_for("model.max_position_embeddings"), "use model.seq_length: "));
  CHECK(has(help_for("max_length"),
            "use model.seq_length: the length of a whole sample: with preferences both answers, "
            "each with its prompt, about twice the value"));
  CHECK(has(help_for("model.hidden_dropout"), "model.type is llama, which does not have this"));
}
