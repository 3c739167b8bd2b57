#include "mtrain/train/hf_run_export.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/base/text.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/recipe/hf_source.h"
#include "mtrain/recipe/hf_write_config.h"

namespace mtrain {
namespace {

constexpr const char* kGeneration = "generation_config.json";

std::optional<DType> dtype_of(const std::string& config) {
  const auto json = nlohmann::json::parse(config, nullptr, false);
  for (const char* key : {"dtype", "torch_dtype"})
    if (json.is_object() && json.contains(key)) {
      if (json[key] == "bfloat16") return DType::bf16;
      if (json[key] == "float16") return DType::f16;
      if (json[key] == "float32") return DType::f32;
    }
  return std::nullopt;
}

/// The tokenizer; null if its files are gone, which only a model that sets its own size survives.
std::unique_ptr<Tokenizer> open_tokenizer(const Recipe& recipe, PluginHost& plugins) {
  TokenizerContext context{recipe.directory};
  try {
    return plugins.make<Tokenizer>(recipe.settings.tokenizer.type, recipe.component("tokenizer"),
                                   context);
  } catch (const Error& error) {
    if (recipe.settings.model.vocab_size == 0) throw;
    log_warn("the folder gets no tokenizer: ", error.message());
    return nullptr;
  }
}

/// Copies the tokenizer's files and generation_config.json. Returns whether there is a tokenizer.
bool copy_side_files(const fs::path& source, const Tokenizer* tokenizer, const std::string& config,
                     HfFolderWriter& out) {
  bool tokenized = false, generation = false;
  auto copy_from = [&](const fs::path& folder, bool of_tokenizer) {
    for (const fs::path& file : hf_side_files(folder)) {
      const bool is_generation = file.filename() == kGeneration;
      if (is_generation == of_tokenizer) continue;
      out.copy(file);
      (is_generation ? generation : tokenized) = true;
    }
  };
  const fs::path files = tokenizer ? tokenizer->folder() : fs::path();
  if (!files.empty()) copy_from(files, true);
  if (!source.empty()) copy_from(source, false);
  if (!generation) out.text(kGeneration, hf_generation_text(config));
  return tokenized;
}

}  // namespace

HfRunExported export_hf_run(const Recipe& recipe, PluginHost& plugins, const CheckpointStore& store,
                            int64_t step, const fs::path& to, const HfRunOptions& options) {
  const SchemaCatalog catalog = schema_catalog(plugins);
  const Schema* schema = catalog.component("model", recipe.settings.model.type);
  MT_USER_CHECK(schema, ErrorClass::plugin,
                cat("there is no model plugin ", recipe.settings.model.type), "");
  const HfModel model(recipe.config.root().at("model"), *schema);
  const HfFamilies families = HfFamilies::read(plugins.folders());
  const fs::path source = hf_source_folder(recipe);
  const std::string theirs = hf_source_config(recipe);
  const HfFamily& family = hf_family_for_export(families, options.family, theirs, model);
  for (const std::string& lost : hf_lost(family, model)) log_warn("the folder has no ", lost);
  HfFolderWriter out(to);
  const auto tokenizer = open_tokenizer(recipe, plugins);
  const DType dtype =
      options.dtype ? *options.dtype
                    : dtype_of(theirs).value_or(recipe.settings.mixed_precision.compute_type());
  const int64_t set = recipe.settings.model.vocab_size;
  const int64_t vocab = set > 0 ? set : tokenizer->vocab_size();
  const std::string config = hf_config_text(
      families, family, model, {.dtype = dtype, .vocab_size = vocab, .source = theirs});
  HfRunExported done{.family = family.model_type, .dtype = dtype};
  out.text("config.json", config);
  done.tokenizer = copy_side_files(source, tokenizer.get(), config, out);
  done.weights = export_hf_weights(store, step,
                                   {.family = family,
                                    .model = model,
                                    .dtype = dtype,
                                    .vocab_size = vocab,
                                    .shard_bytes = options.shard_bytes},
                                   out);
  out.commit();
  return done;
}

}  // namespace mtrain
