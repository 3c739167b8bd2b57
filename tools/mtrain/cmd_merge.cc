// mtrain merge: adds the adapters of a run, or of a folder of peft, to the weights that they were
// trained on.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "adapter_run.h"
#include "cli.h"
#include "model_source.h"
#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/checkpoint/hf_weights.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/recipe/hf_length.h"
#include "mtrain/recipe/hf_source.h"
#include "mtrain/recipe/hf_write_config.h"
#include "mtrain/record/saved_step.h"
#include "mtrain/train/base_weights.h"
#include "mtrain/train/coded_values.h"
#include "mtrain/train/hf_run_export.h"
#include "mtrain/train/peft_adapter.h"
#include "run_template.h"

namespace mtrain {
namespace {

struct MergeOptions {
  std::string from, into, base, dtype, shard_size = "5GB";
  std::vector<std::string> words;
};

struct AdapterSource {
  PeftAdapter adapter;
  fs::path base;
  std::string base_name;            // for messages
  std::string what;                 // "step 20"
  const SavedRun* run = nullptr;    // whose adapters they are; null: of a folder
  std::optional<DType> dtype = {};  // of the merged weights; absent: those of the base
};

AdapterSource of_run(const AdapterRun& its) {
  return {.adapter = its.adapter(),
          .base = its.folder(),
          .base_name = its.base_name(),
          .what = cat("step ", its.run().step),
          .run = &its.run(),
          .dtype = its.dtype()};
}

AdapterSource of_folder(const MergeOptions& options) {
  AdapterSource out{read_peft_folder(options.from), options.base, options.base, "adapters"};
  if (out.base.empty()) out.base = out.adapter.base;
  std::error_code error;
  MT_USER_CHECK(fs::is_regular_file(out.base / "config.json", error), ErrorClass::checkpoint,
                cat("the weights of ", printable(options.from), " are in ",
                    out.base.empty() ? "an unknown folder" : printable(out.base.string()),
                    out.base.empty() ? "" : ", which is no folder of a model here"),
                "give the folder of the model: --base DIR");
  out.base_name = out.base.string();
  warn_of_other_base(out.adapter, options.from, out.base);
  return out;
}

/// The tokenizer's files and the chat template: those next to the adapters, where trainers save
/// what they used, and otherwise those of the base.
void copy_files_of_folders(const fs::path& adapters, const fs::path& base, HfFolderWriter& out) {
  constexpr std::string_view kGeneration = "generation_config.json",
                             kTemplate = "chat_template.jinja";
  constexpr std::string_view kNoVocabulary[] = {kGeneration, kTemplate, "tokenizer_config.json",
                                                "special_tokens_map.json", "added_tokens.json"};
  const std::vector<fs::path> own = hf_side_files(adapters);
  const bool tokenizer = std::ranges::any_of(own, [&](const fs::path& file) {
    return std::ranges::find(kNoVocabulary, file.filename().string()) == std::end(kNoVocabulary);
  });
  const auto is = [](const fs::path& file, std::string_view name) {
    return file.filename().string() == name;
  };
  const auto taken = [&](const fs::path& file) {
    return tokenizer ? !is(file, kGeneration) : is(file, kTemplate);
  };
  const bool has_template = std::ranges::any_of(own, taken) && !tokenizer;
  for (const fs::path& file : own)
    if (taken(file)) out.copy(file);
  for (const fs::path& file : hf_side_files(base))
    if (tokenizer ? is(file, kGeneration) : !(has_template && is(file, kTemplate))) out.copy(file);
}

/// config.json of the base, with what training changed.
std::string config_of_merged(const AdapterSource& source, const HfFamilies& families,
                             const HfFamily* family, const HfDir& base, std::optional<DType> dtype,
                             PluginHost& plugins) {
  std::string out = base.config_text();
  const std::string file = (base.path() / "config.json").string();
  const bool quantized = read_hf_quantization(out).method != HfQuantization::Method::none;
  if (dtype || quantized) out = hf_config_with_dtype(out, file, dtype.value_or(DType::bf16));
  if (!source.run) return out;
  const Recipe& recipe = source.run->recipe;
  out = hf_config_with_labels(out, file, class_names(recipe));
  const SchemaCatalog catalog = schema_catalog(plugins);
  const ModelSection& settings = recipe.settings.model;
  const Schema* schema = catalog.component("model", settings.type);
  if (!family || !schema) return out;
  const HfModel model(recipe.config.root().at("model"), *schema);
  if (model.scores()) out = hf_config_with_padding(out, file, padding_of_run(recipe, plugins));
  return hf_config_with_length(out, file, families, *family, model,
                               source.run->step > 0 ? settings.seq_length : 0);
}

void merge_adapters(const Cli& cli, const MergeOptions& options) {
  MT_USER_CHECK(!options.into.ends_with(".gguf"), ErrorClass::usage,
                cat("--into ", printable(options.into), ": merge writes a folder, not a GGUF file"),
                "merge into a folder, then write the file: mtrain convert FOLDER FILE.gguf");
  PluginHost plugins = plugin_host(cli);
  const bool peft = is_peft_folder(options.from);
  MT_USER_CHECK(peft || is_saved_run(options.from), ErrorClass::checkpoint,
                cat(printable(options.from),
                    " is neither a run, nor a checkpoint, nor a folder with adapter_config.json"),
                "give what has the adapters; --base gives the weights");
  MT_USER_CHECK(!peft || options.words.empty(), ErrorClass::usage,
                cat("settings are for runs, and ", printable(options.from), " is a folder of peft"),
                "leave them out: the merged folder gets the tokenizer of the base");
  std::optional<AdapterRun> run;  // until the end: its folder may be temporary
  if (!peft)
    run.emplace(AdapterRun::Request{.from = options.from,
                                    .base = options.base,
                                    .near = options.into,
                                    .overrides = tokenizer_overrides(cli, options.words)},
                plugins);
  const AdapterSource source = peft ? of_folder(options) : of_run(*run);
  const HfDir base(source.base);
  const std::string config = base.config_text();
  const std::optional<DType> dtype =
      options.dtype.empty() ? source.dtype : dtype_from_name(options.dtype);
  HfFolderWriter out(options.into);
  if (source.run)
    copy_run_files(source.run->recipe, plugins, config, export_options(*source.run), out);
  else
    copy_files_of_folders(options.from, base.path(), out);
  const HfFamilies families = HfFamilies::read(plugins.folders());
  const std::string type = model_type_of(config);
  const HfFamily* family = type.empty() ? nullptr : families.find(type, "");  // null: unknown
  std::optional<CodedValues> coded;  // training saw these values, not those of the folder
  if (source.run && source.run->recipe.settings.peft.base != "same")
    coded.emplace(source.run->recipe, plugins);
  const HfExported done =
      write_merged(base, source.adapter, dtype, *hf_shard_bytes(options.shard_size), family, out,
                   coded ? &*coded : nullptr);
  const std::string merged = config_of_merged(source, families, family, base, dtype, plugins);
  out.text("config.json", merged);  // last: without it, a folder is not a model's
  out.commit();
  if (!cli.quiet)
    std::cout << options.into << ": " << source.what << " merged into "
              << counted(source.adapter.modules.size(), "weight") << " of " << source.base_name
              << ", " << human_bytes(done.bytes) << " in " << counted(done.files, "file") << '\n';
}

}  // namespace

void add_merge_command(CLI::App& app, Cli& cli) {
  auto* command =
      app.add_subcommand("merge", "add low-rank adapters to the weights that they belong to");
  auto options = std::make_shared<MergeOptions>();
  command
      ->add_option("from", options->from,
                   "a run of peft=lora, one of its checkpoints, or a folder with "
                   "adapter_config.json")
      ->required()
      ->type_name("RUN|DIR");
  add_tokenizer_overrides(*command, options->words);
  command->add_option("--into", options->into, "the new folder of the model")
      ->required()
      ->type_name("DIR")
      ->check(check_output_path, "");
  command
      ->add_option("--base", options->base,
                   "the folder of the weights; default: model.init_from of the run, or "
                   "base_model_name_or_path of the folder")
      ->type_name("DIR");
  command->add_option("--dtype", options->dtype, "dtype of the tensors; default: that of the base")
      ->transform([](const std::string& text) { return text == "f32" ? "fp32" : text; }, "")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->type_name("TYPE");
  command
      ->add_option("--shard-size", options->shard_size,
                   "largest size of a file; a larger tensor has a file of its own")
      ->check(
          [](const std::string& text) {
            return hf_shard_bytes(text)
                       ? std::string()
                       : cat("wanted a size such as 5GB or 500MB, got '", printable(text, 40), "'");
          },
          "")
      ->capture_default_str()
      ->type_name("SIZE");
  command->footer(
      "w + scale * b * a is computed in float and rounded once. Of a run of peft.base, w has the\n"
      "values of its codes; to merge into those of the folder, export the adapters first. The "
      "folder is written atomically: "
      "complete, or not at all.\n"
      "Examples:\n"
      "  mtrain merge runs/lora --into models/tuned\n"
      "  mtrain merge adapters/mine --base models/Llama-3.2-1B --into models/tuned --dtype bf16");
  command->callback([&cli, options] { merge_adapters(cli, *options); });
}

}  // namespace mtrain
