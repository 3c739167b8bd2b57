#include "mtrain/recipe/pipeline_plan.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "mtrain/base/counted.h"
#include "mtrain/pipeline/lower.h"
#include "mtrain/pipeline/schedule_text.h"
#include "mtrain/recipe/block_sizes.h"
#include "mtrain/recipe/planned_buckets.h"

namespace mtrain {
namespace {

/// The stage map of a schedule file: each stage is on the rank that first runs it.
StageMap map_of(const Schedule& schedule, const DistSection& dist, const std::string& file) {
  const char* hint =
      "a schedule has one line per pipeline rank, and stages 0 to dist.pp x dist.vp - 1";
  MT_USER_CHECK(static_cast<int64_t>(schedule.size()) == dist.pp, ErrorClass::config,
                cat(file, " has programs for ", counted(schedule.size(), "rank"),
                    ", but dist.pp is ", dist.pp),
                hint);
  std::vector<int64_t> rank_of(static_cast<size_t>(dist.pp * dist.vp), -1);
  for (size_t r = 0; r < schedule.size(); ++r)
    for (const Action& a : schedule[r]) {
      MT_USER_CHECK(a.stage >= 0 && static_cast<size_t>(a.stage) < rank_of.size(),
                    ErrorClass::config,
                    cat(file, ": rank ", r, " has ", to_text(a), ", but dist.pp x dist.vp is ",
                        rank_of.size(), " stages"),
                    hint);
      int64_t& rank = rank_of[static_cast<size_t>(a.stage)];
      if (rank < 0) rank = static_cast<int64_t>(r);
    }
  for (size_t s = 0; s < rank_of.size(); ++s)
    MT_USER_CHECK(rank_of[s] >= 0, ErrorClass::config, cat(file, ": no rank runs stage ", s), hint);
  return StageMap::by_stage(dist.pp, std::move(rank_of));
}

bool has(const Schedule& schedule, ActionKind what) {
  return std::any_of(schedule.begin(), schedule.end(), [&](const Program& program) {
    return std::any_of(program.begin(), program.end(),
                       [&](const Action& a) { return a.what == what; });
  });
}

void read_schedule(const Recipe& recipe, PipelinePlan& plan) {
  const DistSection& dist = recipe.settings.dist;
  plan.name = dist.schedule_file;
  plan.schedule = with_path_origins(
      recipe.inputs, [&] { return load_schedule(recipe.resolve(dist.schedule_file)); });
  plan.map = map_of(plan.schedule, dist, dist.schedule_file);
  auto refuse = [&](ActionKind what, int64_t least, const char* why) {
    MT_USER_CHECK(dist.zero >= least || !has(plan.schedule, what), ErrorClass::config,
                  cat(dist.schedule_file, " has ", name(what), ", and dist.zero is ", dist.zero),
                  cat(why, ": set dist.zero=", least, ", or leave the action out"));
  };
  refuse(ActionKind::gather_params, 3, "only dist.zero=3 gathers parameters");
  refuse(ActionKind::reduce_scatter, 2, "only dist.zero 2 and 3 scatter gradients");
  plan.schedule = with_sharding_actions(std::move(plan.schedule), plan.sharding);
  add_reduces(plan.schedule);
}

StepTraffic traffic_of(const Recipe& recipe) {
  const Settings& s = recipe.settings;
  const DistSection& d = s.dist;
  // What a rank receives of what `ranks` ranks share.
  auto others = [](int64_t ranks) {
    return 1 - 1 / static_cast<double>(std::max<int64_t>(1, ranks));
  };
  const BlockSizes sizes = block_sizes(recipe);
  const double tokens = static_cast<double>(s.train.micro_batch_size * s.model.seq_length / d.cp),
               bytes = static_cast<double>(
                   size_of(dtype_from_name(s.mixed_precision.dtype).value_or(DType::bf16)));
  const int64_t replicas = s.data_parallel() * d.cp;
  const bool experts = sizes.experts > 0;
  double parameters = (sizes.attention + (experts ? 0 : sizes.mlp)) * others(replicas / d.hsdp);
  if (experts)
    parameters += sizes.mlp * sizes.experts / static_cast<double>(d.ep * d.etp) *
                  others(replicas * d.tp / (d.ep * d.etp));
  // A rank computes its share of the experts' products, or of the tensor-parallel ones.
  const double tp = static_cast<double>(d.tp),
               mlp = experts ? sizes.mlp * sizes.chosen / tp : sizes.mlp;
  StepTraffic out{.zero_stage = static_cast<int>(d.zero),
                  .operations = 2 * tokens * (sizes.attention + mlp),
                  .gathered = parameters * (s.mixed_precision.fp8_params ? 1.0 : bytes),
                  .overlap_gathers = s.ddp.overlap_param_gather};
  const double stream = tokens * sizes.hidden * bytes / (d.sp ? tp : 1);
  out.residual_bytes = stream;
  if (experts) {
    const Node* dispatcher = recipe.config.root().find("model.moe.dispatcher");
    const bool gathered = dispatcher && dispatcher->as_text() == "allgather";
    out.exchanged =
        (gathered ? static_cast<double>(d.ep * d.etp) : sizes.chosen * static_cast<double>(d.etp)) *
        stream * sizes.sent / sizes.hidden * others(d.ep * d.etp);
    out.expert_share = mlp / (sizes.attention + mlp);
  }
  return out;
}

/// False for a model without this setting.
bool flag(const Recipe& recipe, const char* path) {
  const Node* node = recipe.config.root().find(path);
  return node && node->kind() == NodeKind::boolean && node->as_bool();
}

/// Whether the head reads the embedding's matrix. A head of scores has a matrix of its own.
bool ties_head(const Recipe& recipe) {
  const Node* labels = recipe.config.root().find("model.labels");
  const bool scores = labels && labels->is(NodeKind::integer) && labels->as_int() > 0;
  return !scores && flag(recipe, "model.tie_embeddings");
}

/// The parts that the core's decoders have; the parts of a built model replace them (Session).
StageParts parts_of(const Recipe& recipe, const PipelinePlan& plan, int64_t stage) {
  auto number = [&](const char* path, int64_t missing) {
    const Node* node = recipe.config.root().find(path);
    return node && node->kind() == NodeKind::integer ? node->as_int() : missing;
  };
  const bool tied = ties_head(recipe);
  const DistSection& d = recipe.settings.dist;
  const bool experts = recipe.config.fact(Fact::experts).value_or(0) > 0 && d.ep * d.etp > 1;
  const int64_t dense = number("model.moe.first_dense_layers", 0),
                freq = number("model.moe.layer_freq", 1);
  const StagePart& range = plan.parts[static_cast<size_t>(stage)];
  const int64_t first = range.first_layer,
                count = range.num_layers < 0 ? plan.layers : range.num_layers;
  StageParts parts;
  if (range.embedding) parts.push_back({.name = "embed"});
  const bool own_table =
      range.head && !range.embedding && tied && plan.splits_embedding_and_head() && count > 0;
  const bool apart = range.num_mtp_layers > 0 && !range.head,
             copied = apart && plan.map.rank(stage) != plan.map.rank(0);
  if (own_table || copied) parts.push_back({.name = "table", .computes = false});
  auto has_exchanges = [&](int64_t block) {
    return experts && block >= dense && (block - dense + 1) % freq == 0;
  };
  for (int64_t i = first; i < first + count; ++i)
    parts.push_back({.name = std::to_string(i), .block = true, .exchanges = has_exchanges(i)});
  if (apart) parts.push_back({.name = "norm"});
  for (int64_t k = 0; k < range.num_mtp_layers; ++k) {
    parts.push_back({.name = cat("mtp.", k),
                     .block = true,
                     .exchanges = has_exchanges(plan.layers - 1),
                     .auxiliary = true});
    if (apart) parts.back().also_reads = {PartId{static_cast<int16_t>(copied ? stage : 0), 0}};
  }
  if (range.head && (count > 0 || !range.embedding)) parts.push_back({.name = "head"});
  if (range.head && tied && (own_table || !plan.splits_embedding_and_head()))
    parts.back().also_reads = {PartId{static_cast<int16_t>(own_table ? stage : 0), 0}};
  return parts;
}

/// What stages share, and what they pass on: a stage of multi-token prediction before the last one
/// the streams of all depths.
void share_stages(const Recipe& recipe, PipelinePlan& plan, int64_t depths) {
  plan.tied_head = ties_head(recipe);
  const int64_t ahead = plan.mtp_stage(), stages = plan.map.stages();
  if (ahead < 0 || ahead + 1 == stages) return;
  plan.transfers.streams.assign(static_cast<size_t>(stages), 1);
  for (int64_t s = ahead + 1; s < stages; ++s)
    plan.transfers.streams[static_cast<size_t>(s)] = 1 + depths;
}

InnerStepRules step_rules(const Recipe& recipe, const PipelinePlan& plan) {
  const Settings& s = recipe.settings;
  const auto& modules = s.model.recompute_modules;
  InnerStepRules rules{
      .sharded = s.dist.zero >= 3,
      .ahead = s.ddp.overlap_param_gather,
      .recompute = s.model.recompute == "full",
      .recompute_first = s.model.recompute_method == "block",
      .recompute_group = s.model.recompute_layers,
      .recompute_experts = s.model.recompute == "selective" &&
                           std::find(modules.begin(), modules.end(), "moe") != modules.end()};
  for (int64_t stage = 0; stage < plan.map.stages(); ++stage)
    rules.stages.push_back(parts_of(recipe, plan, stage));
  rules.defer_head_wgrad = plan.defer_head_wgrad;
  rules.buckets = planned_buckets(recipe, plan, rules.stages);
  return rules;
}

}  // namespace

Program PipelinePlan::program(int64_t rank) const {
  Costs costs;
  if (transfers.blocking) costs.transfer = TransferMode::rendezvous;
  return lower(schedule, map, costs)[static_cast<size_t>(rank)];
}

Schedule PipelinePlan::make() const {
  Schedule made = make_schedule(name, plan);
  if (adds_weight_actions) made = with_weight_actions(std::move(made));
  return with_sharding_actions(std::move(made), sharding);
}

PipelinePlan PipelinePlan::for_dry_run() const {
  PipelinePlan few = *this;
  bool steady = name == "1f1b" || name == "interleaved" || name == "zb_h1" || name == "zb_v" ||
                name == "combined";
  if (!steady || (defer_head_wgrad && deferred_head_limit == 0)) return few;
  int64_t alone = name == "combined" ? 3 : 2;
  int64_t group = std::max(ranks(), plan.group_size),
          wanted = std::max(ranks() == 1 ? alone : 4 * ranks(), deferred_head_limit + 1);
  few.plan.micro_batches = (wanted + group - 1) / group * group;
  if (few.plan.micro_batches >= plan.micro_batches) return *this;
  few.schedule = few.make();
  return few;
}

PipelinePlan PipelinePlan::with_micro_batches(int64_t number) const {
  if (number == plan.micro_batches) return *this;
  PipelinePlan out = *this;
  out.plan.micro_batches = number;
  out.schedule = out.make();
  return out;
}

int64_t PipelinePlan::mtp_stage() const {
  for (size_t s = 0; s < parts.size(); ++s)
    if (parts[s].num_mtp_layers > 0) return static_cast<int64_t>(s);
  return -1;
}

std::vector<int64_t> PipelinePlan::table_ranks() const {
  std::vector<int64_t> out;
  auto add = [&](int64_t stage) {
    const int64_t rank = map.rank(stage);
    if (std::find(out.begin(), out.end(), rank) == out.end()) out.push_back(rank);
  };
  const int64_t last = map.stages() - 1, ahead = mtp_stage();
  const bool apart = ahead >= 0 && ahead < last;
  add(0);
  if (apart) add(ahead);
  if (!apart || tied_head) add(last);
  return out;
}

int64_t PipelinePlan::blocks(int64_t stage) const {
  const StagePart& part = parts[static_cast<size_t>(stage)];
  return (part.num_layers < 0 ? layers : part.num_layers) + part.num_mtp_layers;
}

Costs PipelinePlan::costs(const RankSpeed& speed) const {
  Costs costs;
  costs.overlap_gathers = traffic.overlap_gathers;
  // The time of a byte, relative to that of a block's forward.
  double per_byte = 0;
  if (speed.tflops > 0 && speed.link_gb > 0 && traffic.operations > 0)
    per_byte = 1e3 * speed.tflops / speed.link_gb / traffic.operations;
  costs.byte = per_byte;
  if (ranks() > 1) costs.send = per_byte * traffic.residual_bytes;
  for (int64_t s = 0; s < map.stages(); ++s) {
    auto n = static_cast<double>(blocks(s));
    StageCosts& c = costs.stages.emplace_back(StageCosts{n, n, n, n, n});
    c.exchange = per_byte * traffic.exchanged;
    c.expert_share = traffic.expert_share;
    if (traffic.zero_stage >= 3) {
      c.gather = per_byte * traffic.gathered * n;
      c.block_gather = per_byte * traffic.gathered;
    }
  }
  costs.steps = steps;
  return costs;
}

Simulated PipelinePlan::simulated(const RankSpeed& speed) const {
  return simulate(schedule, plan, costs(speed));
}

std::string PipelinePlan::gathers_text() const {
  if (traffic.zero_stage < 3) return "";
  bool by_stage = has(schedule, ActionKind::gather_params);
  Costs costs;
  costs.steps = steps;
  for (int64_t s = 0; s < map.stages(); ++s) {
    StageCosts& c = costs.stages.emplace_back();
    c.activation = c.kept = 0;
    c.params = static_cast<double>(blocks(s));
    c.block_params = 1;
  }
  double at_once = 0;
  for (double peak : simulate(schedule, plan, costs).peak) at_once = std::max(at_once, peak);
  int64_t gathered = 0;
  for (const Program& program : schedule) {
    int64_t here = 0;
    for (const Action& a : program)
      if (a.what == ActionKind::gather_params) here += blocks(a.stage);
    for (const InnerSteps& list : expand_steps(program, steps))
      here += std::count_if(list.begin(), list.end(), [&](const InnerStep& step) {
        return step.what == InnerStepKind::gather && steps.part(step.part).block;
      });
    gathered = std::max(gathered, here);
  }
  return cat("gathered by ", by_stage ? "stage" : "block", ", ", counted(gathered, "block"),
             " per step and rank, at most ", static_cast<int64_t>(at_once), " at once");
}

std::string PipelinePlan::steps_text(int64_t rank) const {
  const Program& own = schedule[static_cast<size_t>(rank)];
  return to_text(expand_steps(own, steps), own, steps);
}

std::string PipelinePlan::text() const {
  std::vector<std::string> letters, held;
  for (const StagePart& part : parts) letters.push_back(part.letters);
  Simulated run = simulated();
  double whole = 0;
  for (int64_t s = 0; s < map.stages(); ++s) whole += static_cast<double>(blocks(s));
  for (double peak : run.peak) {
    std::ostringstream out;
    out << std::setprecision(3) << (whole > 0 ? peak / whole : 0);
    held.push_back(out.str());
  }
  std::ostringstream bubble;
  bubble << std::fixed << std::setprecision(1) << 100 * run.bubble;
  return cat(name, ", ", ranks(), " ranks, stages ", join(letters, "|"), ", ",
             counted(plan.micro_batches, "micro-batch", "micro-batches"), ": bubble ", bubble.str(),
             " %, ranks keep activations of at most ", join(held, ", "),
             " micro-batches of the whole model");
}

PipelinePlan pipeline_plan(const Recipe& recipe) {
  const Settings& s = recipe.settings;
  const DistSection& d = s.dist;
  PipelinePlan plan;
  plan.plan = {.stages = d.pp * d.vp,
               .micro_batches = s.micro_batches(),
               .virtual_stages = d.vp,
               .group_size = d.microbatch_group_size};
  const CommOverlapSection& overlap = s.comm_overlap;
  plan.transfers = {.variable_shapes = d.variable_seq_lengths,
                    .blocking = d.vp > 1 && !overlap.p2p,
                    .batched = overlap.batch_p2p};
  plan.adds_weight_actions = d.pp > 1 && overlap.delay_wgrad;
  plan.defer_head_wgrad = d.pp > 1 && overlap.embedding_wgrad,
  plan.deferred_head_limit = overlap.embedding_wgrad_limit;
  plan.sharding = {.resident_stages = d.resident_stages, .reduce_scatter = d.zero >= 2};
  plan.traffic = traffic_of(recipe);
  plan.layers = recipe.config.fact(Fact::layers).value_or(0);
  if (d.pp > 1 && !d.schedule_file.empty()) {
    read_schedule(recipe, plan);
  } else {
    if (d.pp > 1) plan.name = d.schedule;
    if (overlap.moe) plan.name = "combined";
    plan.map = stage_map(plan.name, plan.plan);
    plan.schedule = plan.make();
  }
  SplitRequest request{.layers = plan.layers,
                       .mtp_layers = recipe.config.fact(Fact::mtp_layers).value_or(0),
                       .mtp_standalone = flag(recipe, "model.mtp.standalone"),
                       .first_stage_layers = d.first_stage_layers,
                       .last_stage_layers = d.last_stage_layers,
                       .account_for_embedding = d.account_for_embedding,
                       .account_for_loss = d.account_for_loss,
                       .layout = d.layout};
  if (d.pp > 1)
    plan.parts = split_layers(request, plan.map);
  else
    plan.parts = {{.letters = "all",
                   .num_layers = -1,
                   .num_mtp_layers = request.mtp_layers,
                   .embedding = true,
                   .head = true}};
  share_stages(recipe, plan, request.mtp_layers);
  plan.steps = step_rules(recipe, plan);
  if (d.schedule_file.empty() || d.pp == 1) {  // generated schedules are valid
    const BatchSchedule batches = s.batches();
    for (const auto& period : batches.periods())
      plan.with_micro_batches(s.micro_batches(
          period.samples));  // throws if the schedule cannot run with this number of micro-batches
    return plan;
  }
  Simulated run = plan.simulated();
  MT_USER_CHECK(run.faults.empty(), ErrorClass::config,
                cat(plan.name, " cannot run with ",
                    counted(plan.plan.micro_batches, "micro-batch", "micro-batches"), ": ",
                    join(run.faults, "; ")),
                "a step has train.global_batch_size / (train.micro_batch_size x data-parallel "
                "ranks) micro-batches");
  return plan;
}

}  // namespace mtrain
