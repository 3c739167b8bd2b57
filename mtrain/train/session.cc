#include "mtrain/train/session.h"

#include <algorithm>
#include <set>

#include "mtrain/base/counted.h"
#include "mtrain/base/log.h"
#include "mtrain/base/plugin_call.h"
#include "mtrain/base/shell_word.h"
#include "mtrain/base/text.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/cpu/cpu_backend.h"
#include "mtrain/cpu/threads.h"
#include "mtrain/nn/name_pattern.h"
#include "mtrain/nn/score_head.h"
#include "mtrain/recipe/hf_config.h"
#include "mtrain/record/saved_step.h"
#include "mtrain/tensor/device_backend.h"
#include "mtrain/tensor/planning.h"
#include "mtrain/train/hf_import.h"
#include "mtrain/train/model_options.h"
#include "mtrain/train/peft_adapter.h"
#include "mtrain/train/principal_start.h"
#include "mtrain/train/state_io.h"
#include "mtrain/train/vocabulary_fit.h"

namespace mtrain {
namespace {

int threads_per_rank(const Settings& s, int ranks_here) {
  return s.run.threads > 0 ? static_cast<int>(s.run.threads)
                           : std::max(1, cpu::default_threads() / ranks_here);
}

/// The parameters that peft.train may name, with * for the number of a block.
std::string parameter_names(const ParamList& parameters) {
  std::set<std::string> names;
  for (const Parameter& parameter : parameters.all()) {
    if (AdapterPlan::is_adapter(parameter.name)) continue;
    names.insert(general_name(parameter.name));
  }
  return cat("parameters, of which * matches any characters: ",
             join(std::vector<std::string>(names.begin(), names.end()), ", "));
}

/// What peft.train calls the parameters that a pattern of peft.targets means but that have no
/// adapters: the embedding, the output head, norms. Empty: there are none.
std::string trained_whole(const std::string& pattern, const ParamList& parameters) {
  auto any = [&](const std::string& name) {
    return std::ranges::any_of(parameters.all(), [&](const Parameter& parameter) {
      return !AdapterPlan::is_adapter(parameter.name) && glob_match(name, parameter.name);
    });
  };
  const bool head = pattern == "lm_head";
  if (head || pattern == "embed_tokens" || pattern == "wte")
    return any("head.*") || !head ? pattern : "embed_tokens";  // tied: the embedding is the head
  for (const std::string& name :
       {pattern, pattern + ".weight", "*." + pattern, cat("*.", pattern, ".weight")})
    if (any(name)) return name;
  return "";
}

/// Patterns of peft.* that match nothing are mistakes, except the default targets: models may lack
/// one of them.
void require_adapters(const Recipe& recipe, const AdapterPlan& plan, const ParamList& parameters) {
  const PeftSection& peft = recipe.settings.peft;
  const std::set<std::string>& names = plan.candidates();
  const std::string choice = cat("weights that can have adapters: ",
                                 join(std::vector<std::string>(names.begin(), names.end()), ", "));
  const PeftSection defaults;
  for (const auto& [list, pattern] : plan.unmatched()) {
    if (list == "targets" && peft.targets.empty()) continue;
    if (list == "feedforward" && peft.feedforward == defaults.feedforward) continue;
    const std::string whole = list == "targets" ? trained_whole(pattern, parameters) : "";
    MT_USER_CHECK(whole.empty(), ErrorClass::config,
                  cat("peft.targets: '", printable(pattern),
                      "' matches no weight that can have an "
                      "adapter"),
                  cat("peft.train=['", printable(whole),
                      "'] trains it whole, besides the adapters; ", choice));
    const bool further = list == "train", sizes = list == "ranks" || list == "alphas";
    throw Error(ErrorClass::config,
                cat("peft.", list, ": '", printable(pattern), "' matches no ",
                    list == "feedforward" ? "weight of peft.targets"
                    : further             ? "parameter of the model"
                    : sizes               ? "weight with an adapter"
                                          : "weight of the model"),
                further ? parameter_names(parameters) : choice);
  }
  MT_USER_CHECK(plan.num_adapters() > 0 || !peft.train.empty(), ErrorClass::config,
                "peft.targets and peft.exclude leave no weight with an adapter: nothing would be "
                "trained",
                choice);
}

}  // namespace

Session::Session(const Recipe& r, PluginHost& host, Options options)
    : recipe(r),
      plugins(host),
      blocks(block_plan(r.settings, options.parallel)),
      precision(precision_options(r)),
      adapters(adapter_plan(r.settings)) {
  const Settings& s = recipe.settings;
  if (options.shared_context) {
    ctx = *options.shared_context;
  } else {
    Device where = open_backend(options);
    if (options.planning) {
      real_backend = std::move(backend);
      backend = make_planning_backend(*real_backend);
    }
    ctx = std::make_shared<ExecutionContext>(*backend, where, static_cast<uint64_t>(s.rng.seed));
  }

  const ParallelContext* parallel = options.parallel;
  if (parallel && parallel->tracks_placements && active_axis(parallel->tp))
    ctx->tracked_axis = {.axis = parallel->tp, .residual = parallel->residual_placement()};

  TokenizerContext tokenizer_context{recipe.directory};
  auto open_tokenizer = [&] {
    return plugins.make<Tokenizer>(s.tokenizer.type, recipe.component("tokenizer"),
                                   tokenizer_context);
  };
  tokenizer = with_path_origins(recipe.inputs, open_tokenizer, "tokenizer");
  vocab_size = vocabulary_rows(s, *tokenizer);
  valid_vocab = s.model.vocab_size > 0 ? vocab_size : tokenizer->vocab_size();

  build_.emplace(BuildSettings{
      .ctx = *ctx,
      .parameters = parameters,
      .dtype = s.mixed_precision.compute_type(),
      .initialise = options.initialise,
      .imported = !s.model.init_from.empty(),
      .defer_memory = options.defer_memory && (s.model.init_from.empty() || !options.initialise),
      .parallel = options.parallel,
      .blocks = &blocks,
      .precision = &precision,
      .adapters = adapters ? &*adapters : nullptr,
      .frozen_all = options.frozen || options.shared_context != nullptr,
      .seed_shift = options.seed_shift,
      .frozen = frozen_format(s)});
  build_stages(options);
  const bool whole_model = static_cast<size_t>(place_.map.stages()) == stages.size();
  if (adapters && whole_model) require_adapters(recipe, *adapters, parameters);
  if (options.initialise && !s.model.init_from.empty())
    with_path_origins(recipe.inputs,
                      [&] { import_weights(recipe.resolve(s.model.init_from), options); });
  if (options.initialise && options.new_adapters && adapters && !s.peft.init_from.empty())
    with_path_origins(recipe.inputs, [&] {
      const fs::path folder = recipe.resolve(s.peft.init_from);
      import_adapters(read_peft_folder(folder), folder.string(), recipe, plugins, parameters,
                      options.check_whole_model);
    });
  ctx->memory().release_cached();  // of initial and imported values; steps have other sizes
}

void Session::note_new_score(const fs::path& from, const Options& options) const {
  if (options.score_follows || !recipe.settings.peft.init_from.empty()) return;
  log_info(kScoreWeight, " is initialized randomly: ", printable(from.string()),
           " has a vocabulary head, which the score head replaces");
}

void Session::import_weights(const fs::path& from, const Options& options) {
  const bool whole_model = static_cast<size_t>(place_.map.stages()) == stages.size();
  std::optional<Session> planned;  // the whole model without memory, where this rank has a part
  if (!whole_model && options.check_whole_model)
    planned.emplace(
        recipe, plugins,
        Options{.initialise = false, .local_rank = options.local_rank, .planning = true});
  std::optional<PrincipalStart> principal;
  if (recipe.settings.peft.starts_principal())
    principal.emplace(adapters->options(), parameters,
                      threads_per_rank(recipe.settings, options.ranks_here));
  if (!is_saved_run(from)) {
    const HfDir source(from);
    const HfFamilies families = HfFamilies::read(plugins.folders());
    const std::string& type = recipe.settings.model.type;
    const std::string config = source.config_text(),
                      file = (source.path() / "config.json").string();
    const HfModel settings(recipe.config.root().at("model"),
                           plugins.load(Model::kKind, type).schema);
    HfImportOptions how{.principal = principal ? &*principal : nullptr};
    std::string reader = type;  // the plugin whose models the folder's are
    if (recipe.settings.model.init_upcycle) {
      const SchemaCatalog catalog = schema_catalog(plugins);
      reader = hf_model_plugin(config, file, families, model_schemas(catalog));
      how.upcycling = upcycling_of(settings, recipe.folder_ffn);
    }
    const HfFamily& family = hf_family_of(config, file, families, reader);
    if (recipe.settings.model.resizes_vocabulary()) how.folder_vocab = recipe.folder_vocab;
    how.new_score = settings.scores() && !hf_has_scores(config, file, family);
    if (how.new_score) note_new_score(from, options);
    if (planned) require_hf_fit(source, family, settings, planned->parameters, how);
    return import_hf_weights(source, family, settings, parameters, how);
  }
  SavedStep saved = find_saved_step(from, "model.init_from");
  const CheckpointStore store(saved.checkpoints);
  const std::string folder = store.step_folder(saved.step).string();
  MT_USER_CHECK(
      meta_from_json(store.meta(saved.step), folder).base.empty(), ErrorClass::checkpoint,
      cat("model.init_from: ", printable(folder), " has adapters only, not the weights of a model"),
      cat("merge them into their weights first: mtrain merge ", shell_word(from.string()),
          " --into DIR"));
  if (whole_model || planned) {
    ParamList& all = planned ? planned->parameters : parameters;
    require_saved_rows(store, saved.step, all, *tokenizer);
    require_all_parameters_read(store, saved.step, all);
  }
  load_weights(store, saved.step, parameters, principal ? &*principal : nullptr);
  const Node* labels = recipe.config.root().find("model.labels");
  const auto stored = store.tensors(saved.step);
  if (labels && labels->is(NodeKind::integer) && labels->as_int() > 0 &&
      std::ranges::none_of(stored, [](const auto& t) { return t.name == kScoreWeight; }))
    note_new_score(from, options);
}

Device Session::open_backend(const Options& options) {
  const Settings& s = recipe.settings;
  if (s.dist.backend == "cpu") {
    backend = make_cpu_backend(threads_per_rank(s, options.ranks_here));
    device = std::string(backend->name());
    return {};
  }
  BackendContext context{.tf32 = s.mixed_precision.tf32,
                         .any_order_attention = s.run.fast_attention_gradient};
  auto made = plugins.make<DeviceBackend>(s.dist.backend, Node::map(), context);
  Probe probe = made->probe();
  if (probe.devices == 0) {
    const Node* setting = recipe.config.root().find("dist.backend");
    std::string place = setting ? setting->loc().text() : "";
    throw Error(ErrorClass::config,
                cat(place.empty() ? "" : cat(place, ": "), "dist.backend=", s.dist.backend, ": ",
                    probe.reason),
                cat(made->remedy(), "; or dist.backend=cpu"));
  }
  // If this rank sees one device, the launcher has assigned it. Otherwise the local rank selects
  // the device.
  MT_USER_CHECK(
      !options.own_device || probe.devices == 1 || options.local_rank < probe.devices,
      ErrorClass::config,
      cat("there is no device for local rank ", options.local_rank,
          " of this machine: dist.backend=", s.dist.backend, " sees ", probe.devices,
          " devices, and dist.comm=", s.dist.comm.value_or("?"), " needs one device per rank"),
      cat("start at most ", counted(probe.devices, "rank"),
          " on this machine, or set dist.comm=mpi, which lets ranks share a device"));
  Device where{options.local_rank % probe.devices};
  device = made->describe()[static_cast<size_t>(where.index)];
  backend = std::move(made);
  return where;
}

void Session::build_stages(const Options& options) {
  const Settings& s = recipe.settings;
  PipelinePlan whole;
  whole.parts = {{.letters = "", .num_layers = -1, .embedding = true, .head = true}};
  const PipelinePlan& pipeline = options.pipeline ? *options.pipeline : whole;
  place_ = {
      .map = pipeline.map,
      .rank = options.pipeline_rank,
      .transfers = pipeline.transfers,
      .during_token_exchange = options.parallel ? options.parallel->during_token_exchange : nullptr,
      .steps = pipeline.steps,
      .exchange_watch = options.parallel ? options.parallel->exchange_watch : nullptr,
      .defer_head_wgrad = pipeline.defer_head_wgrad,
      .deferred_head_limit = pipeline.deferred_head_limit,
      .resident_stages = pipeline.sharding.resident_stages};
  place_.steps.buckets.clear();  // those of the built model follow (Interpreter::GradientHooks)
  for (int64_t stage : pipeline.map.stages_of(options.pipeline_rank)) {
    const StagePart& part = pipeline.parts[static_cast<size_t>(stage)];
    if (part.head || part.num_mtp_layers > 0)
      depths_ahead = recipe.config.fact(Fact::mtp_layers).value_or(0);
    parameters.begin_stage(stage);
    ModelContext context{.scope = Scope(*build_),
                         .stage = {.first = part.embedding,
                                   .last = part.head,
                                   .stage = stage,
                                   .stages = pipeline.map.stages(),
                                   .first_layer = part.first_layer,
                                   .num_layers = part.num_layers,
                                   .mtp_stage = pipeline.mtp_stage()},
                         .vocab_size = vocab_size,
                         .valid_vocab = valid_vocab,
                         .max_positions = s.model.seq_length};
    stages.push_back(plugins.make<Model>(s.model.type, recipe.component("model"), context));
    place_.stages.push_back(stages.back().get());
    // The built model decides, also if it has other parts than the recipe's sizes suggest.
    auto index = static_cast<size_t>(stage);
    place_.steps.stages.resize(std::max(place_.steps.stages.size(), index + 1));
    const int64_t expert_ranks = options.parallel ? axis_size(options.parallel->expert_group) : 1;
    const Model& built = *stages.back();
    const auto declared = call_plugin(built, "parts()", [&] { return built.parts(); });
    place_.steps.stages[index] =
        declared.empty()
            ? stage_parts(parameters.all(), stage, part.embedding, part.head, expert_ranks)
            : declared_parts(parameters.all(), stage, declared, expert_ranks);
  }
  model = stages.front().get();
}

PipelinePlace Session::place(Communicator* ranks) const {
  PipelinePlace place = place_;
  place.ranks = ranks;
  return place;
}

Session::~Session() = default;

}  // namespace mtrain
