#include "mtrain/train/memory_plan.h"

#include <algorithm>
#include <limits>

#include "mtrain/base/checked.h"
#include "mtrain/comm/dry_run.h"
#include "mtrain/cpu/threads.h"
#include "mtrain/launch/rank_mesh.h"
#include "mtrain/optim/grad_reducer.h"
#include "mtrain/optim/optimizer_state.h"
#include "mtrain/pipeline/interpreter.h"
#include "mtrain/train/model_input.h"
#include "mtrain/train/model_options.h"
#include "mtrain/train/session.h"
#include "mtrain/train/step_hooks.h"
#include "mtrain/train/teacher.h"

namespace mtrain {
namespace {

/// One micro-batch of whole samples. The values of the tokens do not affect memory.
MicroBatch blank_batch(int64_t rows, int64_t seq_length) {
  MicroBatch batch;
  auto tokens = static_cast<size_t>(rows * seq_length);
  batch.tokens.assign(tokens, 0);
  batch.targets.assign(tokens, 0);
  for (int64_t row = 0; row <= rows; ++row)
    batch.cu_seqlens.push_back(static_cast<int32_t>(row * seq_length));
  for (size_t t = 0; t < tokens; ++t)
    batch.positions.push_back(static_cast<int32_t>(static_cast<int64_t>(t) % seq_length));
  batch.rows = rows, batch.seq_length = seq_length, batch.num_target_tokens = rows * seq_length;
  return batch;
}

/// The value, or the largest number of the type if it overflowed, which is more memory than any
/// machine has.
template <class T>
T at_most(const Checked<T>& value) {
  return value.valid() ? value.value() : std::numeric_limits<T>::max();
}

/// The shape of a stage's output, which the dry run of the next pipeline rank needs.
struct StageOutput {
  Shape shape, evaluated;  // of training and of evaluation
  DType dtype = DType::f32;
};

/// Runs the program of one pipeline rank without computing; adds its memory to `plan`.
void dry_run(const Recipe& recipe, PluginHost& plugins, int64_t pipeline_rank, StageOutput& stream,
             ParamRates& rates, MemoryPlan& plan) {
  const Settings& s = recipe.settings;
  int64_t copy = s.dist.tp * s.dist.pp * s.dist.cp,
          ranks = s.ranks() % copy == 0 ? s.ranks() : copy;
  DryRunCommunicator world(static_cast<int>(RankMesh::first_of_stage(recipe, ranks, pipeline_rank)),
                           static_cast<int>(ranks));
  RankMesh mesh(recipe, world);
  const Session::Options options{.initialise = false,
                                 .new_adapters = false,
                                 .planning = true,
                                 .parallel = &mesh.parallel(),
                                 .pipeline = &mesh.pipeline(),
                                 .pipeline_rank = pipeline_rank};
  Session session(recipe, plugins, options);
  ExecutionContext& ctx = *session.ctx;
  rates.add(session.parameters);
  OptimizerContext context{ctx, s.mixed_precision.compute_type()};
  auto optimizer =
      plugins.make<Optimizer>(s.optimizer.type, recipe.component("optimizer"), context);
  ShardingOptions sharding = sharding_options(s, mesh);
  sharding.initialise = false;
  ParamBuckets buckets(ctx, session.parameters, sharding);
  OptimizerState state(ctx, buckets, *optimizer);
  Interpreter interpreter(ctx, session.place(), session.parameters);
  if (pipeline_rank > 0) interpreter.expect(stream.shape, stream.dtype);
  if (s.objective.over_answers())
    interpreter.set_objective([](int64_t, std::span<float>, bool) { return 0.0; });
  std::optional<Teacher> teacher = Teacher::of(session, options);
  GradReducer reducer(buckets, reduce_options(s));
  set_step_hooks(interpreter, buckets, reducer);
  Program program = mesh.pipeline().for_dry_run().program(pipeline_rank);
  ParallelContext parallel = mesh.parallel();
  const int64_t more_tokens =
      s.dist.cp * parallel.max_tokens_per_cp_rank;  // upper bound: every rank has the most tokens
                                                    // that one rank can have (context_places)
  parallel.max_tokens_per_cp_rank = 0;
  auto blank = [&](int64_t rows) {
    return more_tokens > 0 ? blank_batch(1, rows * s.model.seq_length + more_tokens)
                           : blank_batch(rows, s.model.seq_length);
  };
  auto input_of = [&](const MicroBatch& of, int64_t depths) {
    ModelInput input = own_part(ctx, of, parallel, depths);
    if (teacher) teacher->attach(input, of);
    return input;
  };
  const MicroBatch batch = blank(s.train.micro_batch_size);
  // Two steps: in the second one the allocator has cached blocks of the first and can reuse only
  // some of them.
  for (int step = 0; step < 2; ++step) {
    reducer.begin_step();
    interpreter.run(
        program, [&](int64_t) { return input_of(batch, session.depths_ahead); },
        batch.num_target_tokens, 1);
    state.rehearse_update();
    buckets.sync_values();
  }
  const Shape trained = interpreter.residual_shape();
  if (s.validation.steps > 0 && s.eval_micro_batch() > s.train.micro_batch_size) {
    const MicroBatch larger = blank(s.eval_micro_batch());
    interpreter.forget_shapes();
    if (pipeline_rank > 0) interpreter.expect(stream.evaluated, stream.dtype);
    interpreter.evaluate(1, [&](int64_t) { return input_of(larger, 0); });
  }
  stream = {trained, interpreter.residual_shape(), interpreter.residual_dtype()};
  Checked<int64_t> parameters = plan.parameters, trained_parameters = plan.trained,
                   adapters = plan.adapters, products = plan.products, saved = plan.saved;
  for (const auto& p : session.parameters.all()) {
    const int64_t counted = p.is_primary ? p.global.numel() - p.unused : 0;
    parameters = parameters + counted;
    if (p.trained) {
      trained_parameters = trained_parameters + counted;
      const auto tensors = 1 + std::ssize(state_names_of(*optimizer, info_of(p)));
      saved = saved + Checked<int64_t>(counted) * tensors;
    }
    if (p.adapter) adapters = adapters + counted;
    const bool product = p.role == ParamRole::matrix || p.role == ParamRole::head;
    if (p.trained && product && !p.adapter) products = products + counted;
  }
  plan.parameters = at_most(parameters), plan.trained = at_most(trained_parameters);
  plan.adapters = at_most(adapters), plan.products = at_most(products);
  plan.saved = at_most(saved);
  const CachingAllocator& memory = ctx.memory();
  plan.stages.push_back(memory.at_peak());
  plan.steps.push_back(interpreter.step_rules());
  if (pipeline_rank > 0) return;
  plan.at_peak = memory.at_peak(), plan.peak = memory.peak(),
  plan.reserved = memory.peak_reserved();
  plan.free = session.device_backend().free_memory({});
  // With ddp.in_order, ranks other than rank 0 keep the gradients of each micro-batch separately.
  if (s.ddp.in_order)
    plan.more_elsewhere =
        at_most(Checked<size_t>(sizeof(float)) * static_cast<size_t>(s.micro_batches() - 1) *
                static_cast<size_t>(session.parameters.trained_numel()));
}

}  // namespace

std::vector<std::string> check_param_groups(const Recipe& recipe, PluginHost& plugins) {
  if (!recipe.settings.optimizer.has_groups()) return {};
  ParamRates rates = param_rates(recipe);
  const Recipe here = recipe_on_cpu(recipe);
  const Session whole(here, plugins, {.initialise = false, .planning = true});
  rates.add(whole.parameters);
  rates.require_matches();
  return rates.lines();
}

MemoryPlan plan_memory(const Recipe& recipe, PluginHost& plugins) {
  MemoryPlan plan;
  StageOutput stream;
  ParamRates rates = param_rates(recipe);
  for (int64_t r = 0; r < recipe.settings.dist.pp; ++r)
    dry_run(recipe, plugins, r, stream, rates, plan);
  rates.require_matches();
  plan.param_groups = rates.lines();
  return plan;
}

MemoryPlan require_memory(const Recipe& recipe, PluginHost& plugins) {
  MemoryPlan plan = plan_memory(recipe, plugins);
  const DistSection& dist = recipe.settings.dist;
  bool launched = dist.comm && *dist.comm != "thread";
  auto here =
      static_cast<size_t>(launched ? cpu::launched_here() : dist.nproc);  // ranks on this machine
  plan.ranks_here = static_cast<int64_t>(here);
  // Assumes that the machine holds the same number of ranks of each pipeline rank.
  size_t pipelines = std::max<size_t>(1, here / plan.stages.size());
  Checked<size_t> all = Checked(plan.more_elsewhere) *
                        (pipelines * plan.stages.size() - 1);  // for all ranks except rank 0
  for (const MemoryBreakdown& stage : plan.stages) all = all + Checked(pipelines) * stage.total();
  const size_t needed = at_most(all);
  MT_USER_CHECK(needed <= plan.free, ErrorClass::config,
                cat("out of memory: a step needs ", human_bytes(needed), " (",
                    here > 1 ? cat(here, " ranks, each ") : "", plan.at_peak.text(), "), ",
                    human_bytes(plan.free), " are free",
                    human_bytes(needed) == human_bytes(plan.free)
                        ? cat(", ", needed - plan.free, " bytes too few")
                        : ""),
                memory_advice(plan.at_peak));
  return plan;
}

}  // namespace mtrain
