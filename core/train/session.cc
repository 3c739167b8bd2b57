#include "mtrain/train/session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/cpu/cpu_backend.h"
#include "mtrain/cpu/threads.h"
#include "mtrain/tensor/device_backend.h"
#include "mtrain/tensor/planning.h"
#include "mtrain/train/hf_import.h"

namespace mtrain {
namespace {

int64_t padded_vocab(const ModelSection& model, const Tokenizer& tokenizer) {
  if (model.vocab_size > 0) return model.vocab_size;
  int64_t multiple = model.vocab_multiple;
  return (tokenizer.vocab_size() + multiple - 1) / multiple * multiple;
}

int threads_per_rank(const Settings& s, int ranks_here) {
  return s.run.threads > 0 ? static_cast<int>(s.run.threads) : std::max(1, cpu::default_threads() / ranks_here);
}

BlockPlan block_plan(const Settings& s) {
  BlockPlan plan{.full = s.model.recompute == "full",
                 .first_only = s.model.recompute_method == "block",
                 .group = s.model.recompute_layers,
                 .offloaded = s.offload.layers};
  if (s.model.recompute != "selective") return plan;
  for (const std::string& part : s.model.recompute_modules)
    for (size_t i = 0; i < std::size(kRecomputeParts); ++i)
      if (part == kRecomputeParts[i]) plan.parts.push_back(static_cast<RecomputePart>(i));
  return plan;
}

SmallProductRule small_rule(const MixedPrecisionSection& p) {
  if (p.fp4 == "nvfp4")
    return {.recipe = SmallRecipe::nvfp4, .forward = SmallFloat::e2m1, .backward = SmallFloat::e2m1,
            .stochastic = p.fp4_stochastic_rounding, .hadamard = p.fp4_hadamard};
  SmallProductRule rule{.backward = p.fp8 == "hybrid" ? SmallFloat::e5m2 : SmallFloat::e4m3,
                        .headroom = static_cast<float>(std::exp2(p.fp8_margin))};
  if (p.fp8_recipe == "delayed") rule.recipe = SmallRecipe::delayed;
  if (p.fp8_recipe == "blockwise") rule.recipe = SmallRecipe::blockwise;
  if (p.fp8_recipe == "mxfp8") rule.recipe = SmallRecipe::mxfp8;
  return rule;
}

PrecisionOptions precision_options(const Recipe& recipe) {
  const MixedPrecisionSection& p = recipe.settings.mixed_precision;
  const Node* layers = recipe.config.root().find("model.layers");
  return {.small = p.small_products(),
          .rule = small_rule(p),
          .head = p.fp8_output,
          .layers = layers && layers->kind() == NodeKind::integer ? layers->as_int() : std::numeric_limits<int64_t>::max(),
          .first_plain = p.first_bf16_layers,
          .last_plain = p.last_bf16_layers,
          .amax_history = p.fp8_amax_history,
          .amax_algorithm = p.fp8_amax_algo == "max" ? DelayedScales::Algorithm::max : DelayedScales::Algorithm::most_recent};
}

}  // namespace

Session::Session(const Recipe& r, PluginHost& host, Options options)
    : recipe(r), plugins(host), blocks(block_plan(r.settings)), precision(precision_options(r)) {
  const Settings& s = recipe.settings;
  Device where = open_backend(options);
  if (options.planning) {
    real_backend = std::move(backend);
    backend = make_planning_backend(*real_backend);
  }
  run = std::make_unique<Run>(*backend, where, static_cast<uint64_t>(s.rng.seed));

  const ParallelContext* parallel = options.parallel;
  if (parallel && parallel->typed && cutting(parallel->tp)) run->typed = {.axis = parallel->tp, .stream = parallel->stream()};

  TokenizerContext tokenizer_context{recipe.directory};
  tokenizer = plugins.make<Tokenizer>(s.tokenizer.type, recipe.component("tokenizer"), tokenizer_context);
  vocab_size = padded_vocab(s.model, *tokenizer);
  valid_vocab = s.model.vocab_size > 0 ? vocab_size : tokenizer->vocab_size();
  MT_USER_CHECK(tokenizer->vocab_size() <= vocab_size, ErrorClass::config,
                cat("model.vocab_size (", vocab_size, ") is smaller than the vocabulary of tokenizer '", s.tokenizer.type, "' (",
                    tokenizer->vocab_size(), ")"),
                cat("set model.vocab_size=0 or at least ", tokenizer->vocab_size()));

  build_.emplace(BuildSettings{.run = *run,
                               .parameters = parameters,
                               .dtype = *dtype_from_name(s.mixed_precision.dtype),
                               .initialise = options.initialise && s.model.init_from.empty(),
                               .defer_memory = options.defer_memory && (s.model.init_from.empty() || !options.initialise),
                               .parallel = options.parallel,
                               .blocks = &blocks,
                               .precision = &precision});
  build_stages(options);
  if (options.initialise && !s.model.init_from.empty())
    import_hf_weights(HfDir(recipe.resolve(s.model.init_from)), *model, parameters);
}

Device Session::open_backend(const Options& options) {
  const Settings& s = recipe.settings;
  if (s.dist.backend == "cpu") {
    backend = make_cpu_backend(threads_per_rank(s, options.ranks_here));
    device = std::string(backend->name());
    return {};
  }
  BackendContext context;
  auto made = plugins.make<DeviceBackend>(s.dist.backend, Node::map(), context);
  Probe probe = made->probe();
  if (probe.devices == 0) {
    const Node* setting = recipe.config.root().find("dist.backend");
    std::string place = setting ? setting->loc().text() : "";
    throw Error(ErrorClass::config,
                cat(place.empty() ? "" : cat(place, ": "), "dist.backend=", s.dist.backend, ": ", probe.reason),
                cat(made->remedy(), "; or dist.backend=cpu"));
  }
  // One that is seen alone is what the launcher gave this rank; otherwise ranks take theirs in turn.
  MT_USER_CHECK(!options.own_device || probe.devices == 1 || options.place < probe.devices, ErrorClass::config,
                cat("there is no device for rank ", options.place, " of this machine: dist.backend=", s.dist.backend, " sees ",
                    probe.devices, ", and dist.comm=", s.dist.comm.value_or("?"), " takes one for each rank"),
                cat("start at most ", probe.devices, " ranks on this machine, or set dist.comm=mpi, through which they may share "
                    "a device"));
  Device where{options.place % probe.devices};
  device = made->describe()[static_cast<size_t>(where.index)];
  backend = std::move(made);
  return where;
}

void Session::build_stages(const Options& options) {
  const Settings& s = recipe.settings;
  PipelinePlan whole;
  whole.parts = {{.letters = "", .num_layers = -1, .embedding = true, .head = true}};
  const PipelinePlan& pipeline = options.pipeline ? *options.pipeline : whole;
  place_ = {.map = pipeline.map,
            .rank = options.pipeline_rank,
            .transfers = pipeline.transfers,
            .while_travelling = options.parallel ? options.parallel->while_travelling : nullptr,
            .late_head = pipeline.late_head,
            .late_heads = pipeline.late_heads};
  for (int64_t stage : pipeline.map.stages_of(options.pipeline_rank)) {
    const StagePart& part = pipeline.parts[static_cast<size_t>(stage)];
    ModelContext context{.scope = Scope(*build_),
                         .stage = {.first = part.embedding,
                                   .last = part.head,
                                   .stage = stage,
                                   .stages = pipeline.map.stages(),
                                   .first_layer = part.first_layer,
                                   .num_layers = part.num_layers},
                         .vocab_size = vocab_size,
                         .valid_vocab = valid_vocab,
                         .max_positions = s.model.seq_length};
    stages.push_back(plugins.make<Model>(s.model.type, recipe.component("model"), context));
    place_.stages.push_back(stages.back().get());
  }
  model = stages.front().get();
}

PipelinePlace Session::place(Communicator* ranks) const {
  PipelinePlace place = place_;
  place.ranks = ranks;
  return place;
}

Session::~Session() = default;

ModelInput to_device(Run& run, const Batch& batch, bool with_targets) {
  Shape shape{static_cast<int64_t>(batch.tokens.size())};
  ModelInput input;
  input.tokens_T = run.from_host<int32_t>(batch.tokens, shape);
  input.positions_T = run.from_host<int32_t>(batch.positions, shape);
  if (with_targets) input.targets_T = run.from_host<int32_t>(batch.targets, shape);
  input.bounds = std::make_shared<const std::vector<int32_t>>(batch.cu_seqlens);
  return input;
}

namespace {

/// Rows [begin, end) of those that the ranges list.
std::vector<RowRange> rows_of(const std::vector<RowRange>& ranges, int64_t begin, int64_t end) {
  std::vector<RowRange> some;
  int64_t row = 0;
  for (const RowRange& range : ranges) {
    int64_t from = std::max(row, begin), to = std::min(row + range.rows, end);
    if (from < to) some.push_back({range.row + from - row, to - from});
    row += range.rows;
  }
  return some;
}

}  // namespace

ModelInput own_part(Run& run, const Batch& batch, const ParallelContext& parallel) {
  run.first_token = batch.first_sample * batch.seq_length;
  run.own_tokens = nullptr;
  auto rows = static_cast<int64_t>(batch.tokens.size());
  std::vector<RowRange> tokens = {{0, rows}};
  ModelInput input;
  if (const Axis* cp = cutting(parallel.cp)) {
    auto slice = std::make_shared<const ContextSlice>(
        parallel.context_tokens > 0
            ? ContextSlice::sized(batch.cu_seqlens, cp->size(), cp->index(), parallel.context_tokens)
            : ContextSlice(batch.cu_seqlens, cp->size(), cp->index()));
    Batch own{.tokens = slice->take(batch.tokens),
              .targets = slice->take(batch.targets),
              .positions = slice->take(batch.positions),
              .cu_seqlens = slice->bounds()};
    input = to_device(run, own);
    input.context = slice;
    tokens = slice->tokens();
    rows = slice->rows();
  } else {
    input = to_device(run, batch);
  }
  bool sequence = parallel.stream() == Placement::S(0);
  int64_t n = parallel.tp ? parallel.tp->size() : 1, place = parallel.tp ? parallel.tp->index() : 0;
  if (sequence) tokens = rows_of(tokens, rows * place / n, rows * (place + 1) / n);
  if (input.context || sequence) run.own_tokens = std::make_shared<const std::vector<RowRange>>(std::move(tokens));
  return input;
}

double measured_peak_flops(Backend& backend, Device device, DType dtype) {
  Run run(backend, device);  // its memory goes back at the end
  constexpr int64_t kSize = 1024;
  constexpr int kRounds = 4;
  Tensor a = run.zeros({kSize, kSize}, dtype), b = run.zeros({kSize, kSize}, dtype), c = run.empty({kSize, kSize}, dtype);
  double best = 0;
  for (int i = 0; i <= kRounds; ++i) {
    auto start = std::chrono::steady_clock::now();
    run.kernels().gemm(run.stream(), {.a = a.raw(), .b = b.raw(), .c = c.raw(), .transpose_b = true, .m = kSize, .n = kSize,
                                      .k = kSize, .lda = kSize, .ldb = kSize, .ldc = kSize, .dtype = dtype, .c_dtype = dtype});
    run.stream().synchronize();
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (i > 0) best = std::max(best, 2.0 * kSize * kSize * kSize / seconds);
  }
  return best;
}

}  // namespace mtrain
