#include "mtrain/train/memory_plan.h"

#include <algorithm>

#include "mtrain/comm/planned.h"
#include "mtrain/cpu/threads.h"
#include "mtrain/optim/grad_reducer.h"
#include "mtrain/optim/optimizer_state.h"
#include "mtrain/pipeline/interpreter.h"
#include "mtrain/train/rank_mesh.h"
#include "mtrain/train/session.h"

namespace mtrain {
namespace {

/// One micro-batch of whole samples; what its tokens are changes no size.
Batch blank_batch(int64_t rows, int64_t seq_length) {
  Batch batch;
  auto tokens = static_cast<size_t>(rows * seq_length);
  batch.tokens.assign(tokens, 0);
  batch.targets.assign(tokens, 0);
  for (int64_t row = 0; row <= rows; ++row) batch.cu_seqlens.push_back(static_cast<int32_t>(row * seq_length));
  for (size_t t = 0; t < tokens; ++t) batch.positions.push_back(static_cast<int32_t>(static_cast<int64_t>(t) % seq_length));
  batch.rows = rows, batch.seq_length = seq_length, batch.num_target_tokens = rows * seq_length;
  return batch;
}

}  // namespace

MemoryPlan plan_memory(const Recipe& recipe, PluginHost& plugins) {
  const Settings& s = recipe.settings;
  int64_t copy = s.dist.tp * s.dist.pp * s.dist.cp, ranks = s.dist.nproc % copy == 0 ? s.dist.nproc : copy;
  PlannedCommunicator world(0, static_cast<int>(ranks));
  RankMesh mesh(recipe, world);
  Session session(recipe, plugins, {.initialise = false, .planning = true, .defer_memory = s.dist.zero > 0, .parallel = &mesh.parallel()});
  Run& run = *session.run;
  OptimizerContext context{run};
  auto optimizer = plugins.make<Optimizer>(s.optimizer.type, recipe.component("optimizer"), context);
  ShardingOptions sharding = sharding_options(s, mesh, *optimizer);
  sharding.initialise = false;
  ParamBuckets buckets(run, session.parameters, sharding);
  OptimizerState state(run, buckets, *optimizer);
  Interpreter interpreter(run, *session.model, session.parameters);
  GradReducer reducer(buckets, {.in_order = s.ddp.in_order, .overlap = s.ddp.overlap_grad_reduce});
  interpreter.set_gradient_hooks({[&] { reducer.micro_batch_done(); }, [&] { reducer.reduce(); }});
  // What two micro-batches need, more need as well; other ranks than the first keep the gradients of each apart.
  Program program = one_f_one_b({.stages = 1, .micro_batches = std::min<int64_t>(2, s.micro_batches())})[0];
  size_t kept = s.ddp.in_order ? sizeof(float) * static_cast<size_t>((s.micro_batches() - 1) * session.parameters.numel()) : 0;
  Batch batch = blank_batch(s.train.micro_batch_size, s.model.seq_length);
  // The second step finds the first one's blocks, which may not all fit.
  for (int step = 0; step < 2; ++step) {
    reducer.begin_step(std::count_if(program.begin(), program.end(), [](const Action& a) { return a.what == Do::B; }));
    interpreter.run(program, [&](int64_t) { return to_device(run, batch); }, batch.num_target_tokens, 1);
    buckets.publish();
  }
  const CachingAllocator& memory = run.memory();
  return {.at_peak = memory.at_peak(),
          .peak = memory.peak(),
          .reserved = memory.peak_reserved(),
          .free = session.device_backend().free_memory({}),
          .more_elsewhere = kept};
}

MemoryPlan require_memory(const Recipe& recipe, PluginHost& plugins) {
  MemoryPlan plan = plan_memory(recipe, plugins);
  const DistSection& dist = recipe.settings.dist;
  bool launched = dist.comm && *dist.comm != "thread";
  auto here = static_cast<size_t>(launched ? cpu::launched_here() : dist.nproc);  // ranks on this machine
  size_t needed = plan.peak + (here - 1) * (plan.peak + plan.more_elsewhere);
  MT_USER_CHECK(needed <= plan.free, ErrorClass::config,
                cat("out of memory: a step needs ", human_bytes(needed), " (", here > 1 ? cat(here, " ranks, each ") : "",
                    plan.at_peak.text(), "), ",
                    human_bytes(plan.free), " are free"),
                memory_advice(plan.at_peak));
  return plan;
}

}  // namespace mtrain
