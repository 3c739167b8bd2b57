#include "mtrain/train/hf_run_export.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/base/text.h"
#include "mtrain/chat/chat_template.h"
#include "mtrain/chat/llama_spaces.h"
#include "mtrain/chat/template_file.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/checkpoint/hf_weights.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/recipe/hf_generation.h"
#include "mtrain/recipe/hf_source.h"
#include "mtrain/recipe/hf_write_config.h"
#include "mtrain/train/answer_tokens.h"
#include "mtrain/train/hf_tokenizer_files.h"

namespace mtrain {

DType hf_run_dtype(const Recipe& recipe, const std::string& source_config) {
  return hf_config_dtype(source_config).value_or(recipe.settings.mixed_precision.compute_type());
}

std::vector<std::string> class_names(const Recipe& recipe) {
  std::vector<std::string> out;
  const Node* names = recipe.config.root().find("dataset.labels");
  if (names && names->is_list())
    for (const Node& one : names->items()) out.push_back(one.as_text());
  return out;
}

namespace {

constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kChatTemplate = "chat_template.jinja";

/// The tokenizer; null if its files are gone, which only a model that sets its own size survives.
/// `trained`: the identity that it must have; empty: any.
std::unique_ptr<Tokenizer> open_tokenizer(const Recipe& recipe, PluginHost& plugins, bool warns,
                                          const std::string& trained) {
  TokenizerContext context{recipe.directory};
  std::unique_ptr<Tokenizer> out;
  try {
    out = plugins.make<Tokenizer>(recipe.settings.tokenizer.type, recipe.component("tokenizer"),
                                  context);
  } catch (const Error& error) {
    if (recipe.settings.model.vocab_size == 0) throw;
    if (warns)
      log_warn("the folder gets no tokenizer: ", error.message(),
               "\n  help: name its new place: tokenizer.path=FOLDER");
    return nullptr;
  }
  MT_USER_CHECK(trained.empty() || out->text_identity().empty() || trained == out->identity(),
                ErrorClass::checkpoint,
                cat("the tokenizer ", printable(out->folder().string()),
                    " is not the one with which the run was trained: its files are ",
                    printable(out->identity()), ", and were ", printable(trained)),
                "restore them, or name a folder that has them: tokenizer.path=FOLDER");
  return out;
}

/// The template in the tokenizer's folder; empty: none that can be read.
std::string template_of(const Tokenizer& tokenizer) {
  if (tokenizer.folder().empty()) return {};
  try {
    return chat::read_template(tokenizer.folder()).source;
  } catch (const Error&) {
    return {};
  }
}

/// The token that ends an answer in this chat template; nothing if that is no special token of the
/// tokenizer, or the template cannot be rendered.
std::optional<int32_t> end_of_answer(const std::string& source, const Tokenizer& tokenizer) {
  constexpr std::string_view kWords = "wordsofanassistant";
  const std::vector<SpecialToken> special = tokenizer.special_tokens();
  chat::ChatInput input;
  input.messages = chat::messages_from_json(
      cat(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": ")", kWords,
          R"("}])"));
  std::vector<std::string> names;
  try {  // the names of the folder, as in training, before those of the tokenizer
    if (!tokenizer.folder().empty())
      input.special = chat::read_template(tokenizer.folder()).special;
  } catch (const Error&) {
  }
  for (const SpecialToken& token : special) {
    names.push_back(token.text);
    if (token.id == tokenizer.eod()) input.special.emplace("eos_token", token.text);
    if (token.id == tokenizer.bos()) input.special.emplace("bos_token", token.text);
    if (token.id == tokenizer.pad()) input.special.emplace("pad_token", token.text);
  }
  try {
    const chat::Text text = chat::ChatTemplate(source, "the chat template").render(input).text;
    const size_t at = text.bytes.rfind(kWords);
    if (at == std::string::npos) return std::nullopt;
    for (const chat::ChatPiece& piece : chat::split_special(text, names))
      if (piece.special >= 0 && piece.bytes.begin >= at + kWords.size())
        return special[static_cast<size_t>(piece.special)].id;
  } catch (const Error&) {  // it refuses this conversation
  }
  return std::nullopt;
}

/// generation_config.json in which an answer ends with `id`, too: otherwise transformers goes on
/// after it.
std::string ending_with(const std::string& generation, const std::string& config, int32_t id) {
  nlohmann::ordered_json out = nlohmann::ordered_json::parse(generation, nullptr, false);
  const auto whole = nlohmann::ordered_json::parse(config, nullptr, false);
  if (!out.is_object() || !whole.is_object()) return generation;
  const nlohmann::ordered_json ends = out.contains("eos_token_id")     ? out["eos_token_id"]
                                      : whole.contains("eos_token_id") ? whole["eos_token_id"]
                                                                       : nullptr;
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  if (ends.is_array()) all = ends;
  if (ends.is_number_integer()) all.push_back(ends);
  const bool known = std::find(all.begin(), all.end(), id) != all.end();
  if (known && out.contains("eos_token_id")) return generation;
  if (!known) all.push_back(id);
  out["eos_token_id"] = std::move(all);
  out.erase("_from_model_config");  // it says more than config.json
  return out.dump(2) + "\n";
}

/// Copies the tokenizer's files, and the chat template if it is another one. Returns whether there
/// is a tokenizer.
bool copy_files_of(const Tokenizer* tokenizer, const Recipe& recipe, const std::string& config,
                   std::string chat_template, HfFolderWriter& out) {
  bool tokenized = false;
  const bool trained_on_chats = !chat_template.empty();
  if (tokenizer && template_of(*tokenizer) == chat_template) chat_template.clear();
  if (tokenizer)
    for (const HfTokenizerFile& one : hf_tokenizer_files(recipe, *tokenizer, config)) {
      if (!chat_template.empty() && one.name == kChatTemplate) continue;
      const bool legacy = trained_on_chats && one.name == "tokenizer_config.json" &&
                          chat::lacks_legacy(one.file.parent_path());
      out.text(one.name, legacy ? chat::with_legacy(read_file(one.file)) : read_file(one.file));
      tokenized = true;
    }
  if (!chat_template.empty()) out.text(kChatTemplate, chat_template);
  return tokenized;
}

/// Copies the tokenizer's files and generation_config.json. Returns whether there is a tokenizer.
bool copy_side_files(const Recipe& recipe, const fs::path& source, const Tokenizer* tokenizer,
                     const std::string& config, int64_t vocab_size,
                     const std::string& chat_template, HfFolderWriter& out) {
  const bool tokenized = copy_files_of(tokenizer, recipe, config, chat_template, out);
  bool generation = false;
  const auto end =
      tokenizer && !chat_template.empty() ? end_of_answer(chat_template, *tokenizer) : std::nullopt;
  const auto ended = [&](const std::string& text) {
    return end ? ending_with(text, config, *end) : text;
  };
  if (!source.empty())
    for (const fs::path& file : hf_side_files(source))
      if (file.filename() == kGeneration) {
        out.text(kGeneration, ended(hf_generation_text(config, read_file(file), vocab_size)));
        generation = true;
      }
  if (!generation) out.text(kGeneration, ended(hf_generation_text(config)));
  return tokenized;
}

/// A run's model as a family's folder has it.
struct RunModel {
  /// `warns`: of what the folder does not get; one rank of a job does.
  /// `step`: of the weights.
  RunModel(const Recipe& recipe, PluginHost& plugins, const HfRunOptions& options, int64_t step,
           bool warns)
      : catalog(schema_catalog(plugins)),
        families(HfFamilies::read(plugins.folders())),
        model(recipe.config.root().at("model"), schema_of(recipe)),
        source(options.source.empty() ? hf_source_folder(recipe) : options.source),
        theirs(!source.empty() ? HfDir(source).config_text() : options.source_config),
        family(hf_family_for_export(families, options.family, theirs, model)),
        tokenizer(open_tokenizer(recipe, plugins, warns, options.tokenizer)),
        dtype(options.dtype ? *options.dtype : hf_run_dtype(recipe, theirs)) {
    const int64_t set = recipe.settings.model.vocab_size;
    vocab_size = set > 0 ? set : tokenizer->vocab_size();
    HfConfigFacts facts{.dtype = dtype, .vocab_size = vocab_size, .source = theirs};
    if (step > 0) facts.trained_length = recipe.settings.model.seq_length;
    if (tokenizer)
      facts.bos = tokenizer->bos(), facts.eos = tokenizer->eod(), facts.pad = tokenizer->pad();
    if (tokenizer && recipe.config.root().find("model.decoder_start_token"))
      facts.decoder_start = answer_tokens(recipe, *tokenizer).start;
    facts.labels = class_names(recipe);
    config = hf_config_text(families, family, model, facts);
    if (!warns) return;
    for (const std::string& lost : hf_lost(family, model)) log_warn("the folder has no ", lost);
  }

  const Schema& schema_of(const Recipe& recipe) const {
    const Schema* schema = catalog.component("model", recipe.settings.model.type);
    MT_USER_CHECK(schema, ErrorClass::plugin,
                  cat("there is no model plugin ", recipe.settings.model.type), "");
    return *schema;
  }
  HfExport weights(DType type, const HfRunOptions& options) const {
    return {.family = family,
            .model = model,
            .dtype = type,
            .vocab_size = vocab_size,
            .shard_bytes = options.shard_bytes};
  }

  const SchemaCatalog catalog;
  const HfFamilies families;
  const HfModel model;
  const fs::path source;
  const std::string theirs;  // config.json of the folder from which the run started
  const HfFamily& family;
  const std::unique_ptr<Tokenizer> tokenizer;
  const DType dtype;
  int64_t vocab_size = 0;
  std::string config;
};

}  // namespace

bool copy_run_files(const Recipe& recipe, PluginHost& plugins, const std::string& config,
                    const HfRunOptions& options, HfFolderWriter& out) {
  const auto tokenizer = open_tokenizer(recipe, plugins, true, options.tokenizer);
  const int64_t all = std::numeric_limits<int64_t>::max();
  return copy_side_files(recipe, hf_source_folder(recipe), tokenizer.get(), config, all,
                         options.chat_template, out);
}

bool copy_tokenizer_files(const Recipe& recipe, PluginHost& plugins, const std::string& config,
                          const HfRunOptions& options, HfFolderWriter& out) {
  const auto tokenizer = open_tokenizer(recipe, plugins, true, options.tokenizer);
  return copy_files_of(tokenizer.get(), recipe, config, options.chat_template, out);
}

std::optional<int32_t> padding_of_run(const Recipe& recipe, PluginHost& plugins) {
  const auto tokenizer = open_tokenizer(recipe, plugins, false, "");
  return tokenizer ? tokenizer->pad() : std::nullopt;
}

HfRunExported export_hf_run(const Recipe& recipe, PluginHost& plugins, const CheckpointStore& store,
                            int64_t step, const fs::path& to, const HfRunOptions& options,
                            const HfTeam& team) {
  std::optional<RunModel> run;
  team.together([&] { run.emplace(recipe, plugins, options, step, team.first()); });
  HfFolderWriter out(to, team);
  HfRunExported done{.family = run->family.model_type, .dtype = run->dtype};
  team.together([&] {
    if (team.first())
      done.tokenizer = copy_side_files(recipe, run->source, run->tokenizer.get(), run->config,
                                       run->vocab_size, options.chat_template, out);
  });
  done.weights = export_hf_weights(store, step, run->weights(run->dtype, options), out);
  team.together([&] {
    out.text("config.json", run->config);  // last: without it, a folder is not a model's
  });
  out.commit();
  return done;
}

GgmlType ggml_type_of(DType dtype) {
  return dtype == DType::f32 ? GgmlType::f32 : dtype == DType::f16 ? GgmlType::f16 : GgmlType::bf16;
}

HfRunExported export_gguf_run(const Recipe& recipe, PluginHost& plugins,
                              const CheckpointStore& store, int64_t step, const fs::path& to,
                              std::optional<GgmlType> type, const HfRunOptions& options) {
  const RunModel run(recipe, plugins, options, step, true);
  MT_USER_CHECK(!run.model.scores(), ErrorClass::config,
                "a GGUF file has a head over the vocabulary, and this model has one of scores "
                "(model.labels)",
                "export a Hugging Face folder instead: give a name that does not end in .gguf");
  const fs::path folder = run.tokenizer ? run.tokenizer->folder() : fs::path();
  fs::path tokenizer = folder;
  if (run.tokenizer)
    for (const HfTokenizerFile& one : hf_tokenizer_files(recipe, *run.tokenizer, run.config))
      if (one.name == "tokenizer.json") tokenizer = one.file;
  MT_USER_CHECK(!folder.empty(), ErrorClass::config,
                cat("a GGUF file needs tokenizer.json, and the tokenizer ",
                    recipe.settings.tokenizer.type, " of this run has none"),
                "export a Hugging Face folder instead: give a name that does not end in .gguf");
  const HfExport weights = run.weights(DType::f32, options);
  const auto source = hf_checkpoint_tensors(store, step, weights);
  HfRunExported done{.family = run.family.model_type, .dtype = run.dtype, .tokenizer = true};
  done.weights = write_gguf(to,
                            {.config = run.config,
                             .tokenizer = tokenizer,
                             .chat_template = options.chat_template,
                             .name = recipe.name,
                             .type = type.value_or(ggml_type_of(run.dtype))},
                            *source);
  return done;
}

}  // namespace mtrain
