#include "mtrain/train/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

#include "mtrain/base/counted.h"
#include "mtrain/base/rng.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/cpu/cpu_backend.h"
#include "mtrain/cpu/threads.h"
#include "mtrain/tensor/device_backend.h"
#include "mtrain/tensor/planning.h"
#include "mtrain/train/cluster.h"
#include "mtrain/train/hf_import.h"
#include "mtrain/train/run_folder.h"
#include "mtrain/train/state_io.h"
#include "mtrain/train/vocabulary_fit.h"

namespace mtrain {
namespace {

int threads_per_rank(const Settings& s, int ranks_here) {
  return s.run.threads > 0 ? static_cast<int>(s.run.threads)
                           : std::max(1, cpu::default_threads() / ranks_here);
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
    return {.recipe = SmallRecipe::nvfp4,
            .forward = SmallFloat::e2m1,
            .backward = SmallFloat::e2m1,
            .stochastic = p.fp4_stochastic_rounding,
            .hadamard = p.fp4_hadamard};
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
          .layers = layers && layers->kind() == NodeKind::integer
                        ? layers->as_int()
                        : std::numeric_limits<int64_t>::max(),
          .first_plain = p.first_bf16_layers,
          .last_plain = p.last_bf16_layers,
          .amax_history = p.fp8_amax_history,
          .amax_algorithm = p.fp8_amax_algo == "max" ? DelayedScales::Algorithm::max
                                                     : DelayedScales::Algorithm::most_recent};
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
  if (parallel && parallel->typed && cutting(parallel->tp))
    run->typed = {.axis = parallel->tp, .stream = parallel->stream()};

  TokenizerContext tokenizer_context{recipe.directory};
  tokenizer = with_path_origins(recipe.inputs, [&] {
    return plugins.make<Tokenizer>(s.tokenizer.type, recipe.component("tokenizer"),
                                   tokenizer_context);
  });
  vocab_size = vocabulary_rows(s, *tokenizer);
  valid_vocab = s.model.vocab_size > 0 ? vocab_size : tokenizer->vocab_size();

  build_.emplace(BuildSettings{
      .run = *run,
      .parameters = parameters,
      .dtype = s.mixed_precision.compute_type(),
      .initialise = options.initialise && s.model.init_from.empty(),
      .defer_memory = options.defer_memory && (s.model.init_from.empty() || !options.initialise),
      .parallel = options.parallel,
      .blocks = &blocks,
      .precision = &precision});
  build_stages(options);
  if (options.initialise && !s.model.init_from.empty())
    with_path_origins(recipe.inputs, [&] { import_weights(recipe.resolve(s.model.init_from)); });
}

void Session::import_weights(const fs::path& from) {
  if (!is_saved_run(from)) return import_hf_weights(HfDir(from), *model, parameters);
  SavedStep saved = find_saved_step(from, "model.init_from");
  load_state(CheckpointStore(saved.checkpoints), saved.step, parameters, nullptr);
}

Device Session::open_backend(const Options& options) {
  const Settings& s = recipe.settings;
  if (s.dist.backend == "cpu") {
    backend = make_cpu_backend(threads_per_rank(s, options.ranks_here));
    device = std::string(backend->name());
    return {};
  }
  BackendContext context{.tf32 = s.mixed_precision.tf32};
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
  // One that is seen alone is what the launcher gave this rank; otherwise ranks take theirs in
  // turn.
  MT_USER_CHECK(!options.own_device || probe.devices == 1 || options.place < probe.devices,
                ErrorClass::config,
                cat("there is no device for rank ", options.place,
                    " of this machine: dist.backend=", s.dist.backend, " sees ", probe.devices,
                    ", and dist.comm=", s.dist.comm.value_or("?"), " takes one for each rank"),
                cat("start at most ", counted(probe.devices, "rank"),
                    " on this machine, or set dist.comm=mpi, through which they may share "
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
        parallel.context_tokens > 0 ? ContextSlice::sized(batch.cu_seqlens, cp->size(), cp->index(),
                                                          parallel.context_tokens)
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
  if (input.context || sequence)
    run.own_tokens = std::make_shared<const std::vector<RowRange>>(std::move(tokens));
  return input;
}

namespace {

/// Random values, for what a device computes faster on zeros: a piece from the host, copied on.
Tensor random_matrix(Run& run, int64_t size, DType dtype) {
  constexpr int64_t kPiece = 1 << 16;
  std::vector<float> values(kPiece);
  RngStream rng(1, "roof");
  for (size_t i = 0; i < values.size(); ++i) values[i] = rng.uniform(i) - 0.5f;
  Tensor piece = run.from_host<float>(values, {kPiece}), out = run.empty({size * size}, dtype);
  for (int64_t i = 0; i < size * size; i += kPiece) run.copy(out.slice(0, i, i + kPiece), piece);
  return out;
}

}  // namespace

double measured_peak_flops(Backend& backend, Device device, DType dtype) {
  Run run(backend, device);  // its memory goes back at the end
  constexpr size_t kRoom = size_t{4} << 30;
  constexpr int kRounds = 4, kEach = 4;
  int64_t size = backend.name() == "cpu" ? 1024 : backend.free_memory(device) > kRoom ? 8192 : 2048;
  Tensor a = random_matrix(run, size, dtype), b = random_matrix(run, size, dtype),
         c = run.empty({size, size}, dtype);
  int each = backend.name() == "cpu" ? 1 : kEach;  // a queue hides what a launch costs
  double best = 0;
  for (int i = 0; i <= kRounds; ++i) {
    run.stream().synchronize();
    auto start = std::chrono::steady_clock::now();
    for (int k = 0; k < each; ++k)
      run.kernels().gemm(run.stream(), {.a = a.raw(),
                                        .b = b.raw(),
                                        .c = c.raw(),
                                        .transpose_b = true,
                                        .m = size,
                                        .n = size,
                                        .k = size,
                                        .lda = size,
                                        .ldb = size,
                                        .ldc = size,
                                        .dtype = dtype,
                                        .c_dtype = dtype});
    run.stream().synchronize();
    double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    double flops = 2.0 * static_cast<double>(size) * static_cast<double>(size) *
                   static_cast<double>(size) * each;
    if (i > 0) best = std::max(best, flops / seconds);
  }
  return best;
}

PeakRate peak_rate(const Settings& s, const std::string& device, Backend& backend, Device where) {
  auto rate = [](double tflops, const std::string& who) {
    return PeakRate{1e12 * tflops, cat(tflops, " TFLOP/s, ", who)};
  };
  if (s.profiling.peak_tflops > 0)
    return rate(s.profiling.peak_tflops, "as profiling.peak_tflops says");
  const MixedPrecisionSection& p = s.mixed_precision;
  const GpuType* type = p.dtype == "fp32" ? nullptr : gpu_type_of(device);
  bool fp8 = type && p.fp8 != "none" && type->fp8_tflops > 0;
  if (type)
    return rate(fp8 ? type->fp8_tflops : type->tflops,
                cat("as a ", type->name, " is sold (", fp8 ? "fp8" : p.dtype, ")"));
  double measured = measured_peak_flops(backend, where, p.compute_type());
  return {measured, cat(fmt::format("{:.0f} GFLOP/s", measured / 1e9), ", measured"), true};
}

double PeakRate::share(double rate) {
  if (measured && rate > flops) {
    flops = rate;
    source = cat(fmt::format("{:.0f} GFLOP/s", rate / 1e9), ", reached by a step");
  }
  return flops > 0 ? rate / flops : 0;
}

}  // namespace mtrain
