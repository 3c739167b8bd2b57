// mtrain export, import and convert: Hugging Face folders from runs, runs from Hugging Face
// folders, and such folders in another type.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "adapter_run.h"
#include "cli.h"
#include "model_source.h"
#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/base/shell_word.h"
#include "mtrain/base/text.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/checkpoint/hf_weights.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/recipe/hf_source.h"
#include "mtrain/recipe/hf_tensors.h"
#include "mtrain/recipe/hf_write_config.h"
#include "mtrain/record/saved_step.h"
#include "mtrain/train/hf_run_export.h"
#include "mtrain/train/peft_adapter.h"
#include "recipe_words.h"
#include "run_template.h"
#include "training.h"

namespace mtrain {
namespace {

constexpr const char* kQ8 = "q8_0";

struct ExportOptions {
  std::string from, to, base, dtype, family, shard_size = "5GB";
  std::vector<std::string> words;  // settings of the tokenizer
};

std::string check_size(const std::string& text) {
  return hf_shard_bytes(text)
             ? std::string()
             : cat("wanted a size such as 5GB or 500MB, got '", printable(text, 40), "'");
}

std::optional<DType> exported_dtype(const ExportOptions& options) {
  return options.dtype.empty() || options.dtype == kQ8 ? std::nullopt
                                                       : dtype_from_name(options.dtype);
}

bool is_gguf(const ExportOptions& options) { return fs::path(options.to).extension() == ".gguf"; }

/// Refuses options that have no effect on this kind of output.
void check_kind(const ExportOptions& options, bool shards_given) {
  MT_USER_CHECK(options.dtype != kQ8 || is_gguf(options), ErrorClass::usage,
                "--dtype q8_0 is only for GGUF files",
                cat("give a name that ends in .gguf: ", options.to, ".gguf"));
  MT_USER_CHECK(!shards_given || !is_gguf(options), ErrorClass::usage,
                "--shard-size is for folders: a GGUF file is written in one piece",
                "leave out --shard-size");
}

std::optional<GgmlType> ggml_type(const ExportOptions& options) {
  if (options.dtype == kQ8) return GgmlType::q8_0;
  const auto dtype = exported_dtype(options);
  return dtype ? std::optional(ggml_type_of(*dtype)) : std::nullopt;
}

void say_done(const Cli& cli, const ExportOptions& options, const HfExported& done,
              const std::string& what) {
  if (cli.quiet) return;
  std::cout << options.to << ": " << what << ", " << counted(done.tensors, "tensor") << ", "
            << human_bytes(done.bytes) << " in " << counted(done.files, "file") << '\n';
}

/// Whether the folder of the adapters' model has a place for each tensor. One of a language model
/// has none for a new head of scores.
bool can_merge(const PeftAdapter& adapter) {
  const auto score = std::ranges::find_if(
      adapter.whole, [](const PeftWhole& w) { return hf_is_of_score_head(w.tensor); });
  if (score == adapter.whole.end() || !is_hugging_face(adapter.base)) return true;
  const HfDir folder(adapter.base);
  return HfWeights(folder).find(score->tensor) != nullptr;
}

/// A run of adapters becomes a folder of peft.
void export_adapter(const Cli& cli, const ExportOptions& options, PluginHost& plugins) {
  const std::string merge = cat("merge the adapters into their weights: mtrain merge ",
                                shell_word(options.from), " --into ");
  MT_USER_CHECK(!is_gguf(options), ErrorClass::usage,
                "a GGUF file needs all weights, and this run has adapters only",
                cat(merge, "DIR, then: mtrain convert DIR ", shell_word(options.to)));
  MT_USER_CHECK(
      options.family.empty(), ErrorClass::usage,
      "--family has no effect on a folder of adapters: it has the names of model.init_from",
      "leave out --family");
  if (options.base.empty()) require_base_folder(options.from);
  const AdapterRun its({.from = options.from,
                        .base = options.base,
                        .near = options.to,
                        .overrides = tokenizer_overrides(cli, options.words)},
                       plugins);
  const PeftAdapter& adapter = its.adapter();
  const HfExported done = write_peft_folder(
      adapter, exported_dtype(options).value_or(DType::f32), options.to, [&](HfFolderWriter& out) {
        copy_tokenizer_files(its.run().recipe, plugins, HfDir(its.folder()).config_text(),
                             export_options(its.run()), out);
      });
  say_done(
      cli, options, done,
      cat("adapters of step ", its.run().step, " for ", counted(adapter.modules.size(), "weight")));
  if (!cli.quiet && can_merge(adapter))
    std::cout << "  for a folder with all weights: " << merge << "DIR\n";
}

/// Of a run with all weights: those of its tokenizer. The folder from which it started is only
/// copied from.
std::vector<OverrideText> overrides_of(const Cli& cli, const ExportOptions& options) {
  std::vector<OverrideText> out = overrides_for_base(options.from, options.base);
  std::erase_if(out, [](const OverrideText& one) { return one.text.starts_with("model."); });
  for (OverrideText& one : tokenizer_overrides(cli, options.words)) out.push_back(std::move(one));
  return out;
}

void export_run(const Cli& cli, const ExportOptions& options) {
  PluginHost plugins = plugin_host(cli);
  MT_USER_CHECK(!is_hugging_face(options.from), ErrorClass::usage,
                cat(printable(options.from), " is a Hugging Face folder, not a run"),
                cat("for another dtype or other shard sizes: mtrain convert ",
                    shell_word(options.from), " ", shell_word(options.to), " --dtype bf16"));
  MT_USER_CHECK(is_saved_run(options.from), ErrorClass::checkpoint,
                cat(printable(options.from), " is neither a run nor one of its checkpoints"),
                "give a run's folder, or a folder step-N of its checkpoints");
  if (has_adapters(options.from)) return export_adapter(cli, options, plugins);
  const ModelSource source = open_model(options.from, overrides_of(cli, options), plugins);
  const SavedRun& run = source.run;
  HfRunOptions how = export_options(run);
  how.dtype = exported_dtype(options), how.family = options.family, how.source = options.base;
  how.shard_bytes = *hf_shard_bytes(options.shard_size);
  const CheckpointStore store(run.checkpoints);
  const HfRunExported done =
      is_gguf(options) ? export_gguf_run(run.recipe, plugins, store, run.step, options.to,
                                         ggml_type(options), how)
                       : export_hf_run(run.recipe, plugins, store, run.step, options.to, how);
  say_done(cli, options, done.weights,
           cat("step ", run.step, " as ", done.family, " in ",
               options.dtype == kQ8 ? kQ8 : name(done.dtype)));
  if (!cli.quiet && !done.tokenizer)
    std::cout << "  without a tokenizer: " << run.recipe.settings.tokenizer.type
              << " has no files to copy\n";
}

void convert_to_gguf(const Cli& cli, const ExportOptions& options, const HfDir& source) {
  const fs::path folder = fs::absolute(source.path()).lexically_normal();
  const auto tensors = hf_folder_tensors(source, DType::f32, *hf_shard_bytes(options.shard_size));
  const DType own = hf_config_dtype(source.config_text()).value_or(DType::bf16);
  const GgmlType type = ggml_type(options).value_or(ggml_type_of(own));
  const HfExported done =
      write_gguf(options.to,
                 {.config = source.config_text(),
                  .tokenizer = source.path(),
                  .name = (folder.has_filename() ? folder : folder.parent_path()).filename(),
                  .type = type},
                 *tensors);
  say_done(cli, options, done, cat("in ", options.dtype.empty() ? name(own) : options.dtype));
}

void convert(const Cli& cli, const ExportOptions& options) {
  if (!is_hugging_face(options.from)) return export_run(cli, options);
  MT_USER_CHECK(options.family.empty(), ErrorClass::usage,
                "--family is only for runs: a folder keeps its family", "leave out --family");
  const HfDir source(options.from);
  const std::string config = source.config_text();
  const HfQuantization quantization = read_hf_quantization(config);
  MT_USER_CHECK(quantization.fault.empty(), ErrorClass::checkpoint,
                cat(printable(options.from), ": ", quantization.fault), quantization.fix);
  if (is_gguf(options)) return convert_to_gguf(cli, options, source);
  HfFolderWriter out(options.to);
  const std::optional<DType> dtype = exported_dtype(options);
  const std::string origin = (source.path() / "config.json").string();
  for (const fs::path& file : hf_side_files(source.path())) out.copy(file);
  const HfFamilies families = HfFamilies::read(plugin_host(cli).folders());
  const std::string type = model_type_of(config);
  const HfExported done = convert_hf_weights(source, dtype, *hf_shard_bytes(options.shard_size),
                                             out, type.empty() ? nullptr : families.find(type, ""));
  const bool quantized = quantization.method != HfQuantization::Method::none;
  out.text("config.json", dtype || quantized
                              ? hf_config_with_dtype(config, origin, dtype.value_or(DType::bf16))
                              : config);  // last: without it, a folder is not a model's
  out.commit();
  say_done(cli, options, done,
           dtype       ? cat("in ", name(*dtype))
           : quantized ? "dequantized to bf16"
                       : "each tensor in its own type");
}

/// Makes a run of the folder: its step 0 are the weights.
void import_folder(Cli& cli, const std::string& from, const std::string& run,
                   std::vector<OverrideText> overrides) {
  PluginHost plugins = plugin_host(cli);
  MT_USER_CHECK(is_hugging_face(from), ErrorClass::usage,
                cat(printable(from), " is no Hugging Face folder: it has no config.json"),
                "give the folder of a model, as downloaded from the hub");
  std::error_code error;
  MT_USER_CHECK(!fs::exists(run, error), ErrorClass::io, cat(printable(run), " exists already"),
                "choose a new folder for the run");
  overrides.push_back(
      {cat("run.dir=", override_value_text(Node::string(fs::absolute(run).string())))});
  for (const char* quiet :
       {"logger.console=off", "logger.metrics=false", "logger.tensorboard=false"})
    overrides.push_back({quiet});
  Recipe recipe = recipe_of_folder(from, overrides, plugins);
  recipe.weights_only = true;
  cli.status = run_training(cli, recipe, plugins);
  if (!cli.quiet && cli.status == 0)
    std::cout << run << ": step 0 has the weights of " << from << '\n';
}

void add_output_options(CLI::App& command, ExportOptions& options) {
  command
      .add_option("--dtype", options.dtype,
                  "dtype of the tensors; default: that of the source; q8_0 only for GGUF files")
      ->transform([](const std::string& text) { return text == "f32" ? "fp32" : text; }, "")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16", kQ8}))
      ->type_name("TYPE");
  command
      .add_option("--shard-size", options.shard_size,
                  "largest size of a file; a larger tensor has a file of its own")
      ->check(check_size, "")
      ->capture_default_str()
      ->type_name("SIZE");
  command
      .add_option("--family", options.family,
                  "model_type to write; default: that of model.init_from, else the first family "
                  "that can express the model (mtrain families)")
      ->type_name("NAME");
}

}  // namespace

void add_export_command(CLI::App& app, Cli& cli) {
  auto* command =
      app.add_subcommand("export", "write a run's weights as a Hugging Face folder or a GGUF file");
  auto options = std::make_shared<ExportOptions>();
  command->add_option("from", options->from, "a run's folder or one of its checkpoints")
      ->required()
      ->type_name("RUN|CHECKPOINT");
  command->add_option("to", options->to, "the new folder, or a file with the ending .gguf")
      ->required()
      ->type_name("DIR|FILE.gguf")
      ->check(check_output_path, "");
  add_tokenizer_overrides(*command, options->words);
  command
      ->add_option("--base", options->base,
                   "the folder from which the run started, if model.init_from has moved: of "
                   "adapters, the weights")
      ->type_name("DIR");
  add_output_options(*command, *options);
  command->footer(
      "The folder has config.json, the weights, generation_config.json and the tokenizer's files. "
      "A file FILE.gguf is for llama.cpp; it contains the tokenizer. Both are written atomically: "
      "complete, or not at all.\n"
      "Examples:\n"
      "  mtrain export runs/sft models/sft --dtype bf16\n"
      "  mtrain export runs/sft/checkpoints/step-500 models/sft-500 --shard-size 2GB\n"
      "  mtrain export runs/sft models/sft.gguf --dtype q8_0");
  command->callback([&cli, options, command] {
    check_kind(*options, command->count("--shard-size") > 0);
    export_run(cli, *options);
  });
}

void add_convert_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand(
      "convert", "copy a Hugging Face folder or a run with another dtype or other shard sizes");
  auto options = std::make_shared<ExportOptions>();
  command
      ->add_option("from", options->from, "a Hugging Face folder, a run or one of its checkpoints")
      ->required()
      ->type_name("DIR|RUN|CHECKPOINT");
  command->add_option("to", options->to, "the new folder, or a file with the ending .gguf")
      ->required()
      ->type_name("DIR|FILE.gguf")
      ->check(check_output_path, "");
  add_output_options(*command, *options);
  command->footer(
      "Examples:\n"
      "  mtrain convert models/Llama-3.2-1B models/Llama-3.2-1B-fp32 --dtype fp32\n"
      "  mtrain convert runs/sft models/sft --shard-size 500MB");
  command->callback([&cli, options, command] {
    check_kind(*options, command->count("--shard-size") > 0);
    convert(cli, *options);
  });
}

void add_import_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand(
      "import", "create a run whose first checkpoint has the weights of a Hugging Face folder");
  auto from = std::make_shared<std::string>(), run = std::make_shared<std::string>();
  auto overrides = std::make_shared<std::vector<std::string>>();
  command->add_option("from", *from, "a Hugging Face folder")->required()->type_name("DIR");
  command->add_option("run", *run, "the new run's folder")
      ->required()
      ->type_name("RUN")
      ->check(check_output_path, "");
  command->add_option("overrides", *overrides, "settings to change: key=value")
      ->type_name("KEY=VALUE");
  command->footer(
      "Step 0 of the run has the weights: generate, eval, export and model.init_from=RUN use it. "
      "Training needs no import: model.init_from=DIR.\n"
      "Example:\n  mtrain import models/Llama-3.2-1B runs/llama");
  command->callback([&cli, from, run, overrides] {
    import_folder(cli, *from, *run, placed_overrides(cli, *overrides));
  });
}

}  // namespace mtrain
