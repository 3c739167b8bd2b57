#include "mtrain/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "mtrain/base/counted.h"
#include "mtrain/base/elapsed.h"
#include "mtrain/base/failpoint.h"
#include "mtrain/base/log.h"
#include "mtrain/base/plugin_call.h"
#include "mtrain/base/rng.h"
#include "mtrain/cpu/cpu_backend.h"
#include "mtrain/launch/replica_check.h"
#include "mtrain/recipe/make_saved_config.h"
#include "mtrain/recipe/resume.h"
#include "mtrain/train/base_weights.h"
#include "mtrain/train/model_input.h"
#include "mtrain/train/model_options.h"
#include "mtrain/train/profiling.h"
#include "mtrain/train/step_hooks.h"
#include "mtrain/train/vocabulary_fit.h"

namespace mtrain {
namespace {

LossScaler make_scaler(const MixedPrecisionSection& s) {
  if (s.dtype != "fp16") return LossScaler({.start = 1});
  if (s.loss_scale > 0) return LossScaler({.start = s.loss_scale});
  return LossScaler({.start = s.initial_loss_scale,
                     .least = s.min_loss_scale,
                     .growth_interval = s.loss_scale_window,
                     .hysteresis = s.loss_scale_hysteresis});
}

int64_t num_targets(std::span<const MicroBatch> batches) {
  int64_t n = 0;
  for (const auto& batch : batches) n += batch.num_target_tokens;
  return n;
}

int ranks_here(const Communicator& ranks) { return ranks.kind() == "thread" ? ranks.size() : 1; }

/// Records a stream's work (as a CUDA graph) during its lifetime. If an exception ends the scope,
/// the work recorded so far is still launched.
class Recording {
 public:
  Recording(Stream& stream, bool on) : stream_(on ? &stream : nullptr) {
    if (stream_) stream_->begin_recording();
  }
  ~Recording() {
    try {
      end();
    } catch (const std::exception& error) {
      log_warn("cannot launch the work recorded in a CUDA graph: ", error.what());
    }
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  /// Ends the recording and returns its statistics; absent if there is none.
  std::optional<Stream::Recorded> end() {
    Stream* stream = std::exchange(stream_, nullptr);
    return stream ? std::optional(stream->end_recording()) : std::nullopt;
  }

 private:
  Stream* stream_;
};

/// Flips the lowest bit of one weight, as a faulty machine would.
void flip_a_bit(ParamList& parameters) {
  const Parameter& p = *std::ranges::find(parameters.all(), true, &Parameter::trained);
  const Tensor& tensor = p.master.defined() ? p.master : p.use();
  std::vector<char> bytes(static_cast<size_t>(tensor.numel()) * size_of(tensor.dtype()));
  tensor.context().download(tensor, bytes.data());
  bytes[0] ^= 1;
  tensor.context().upload(tensor, bytes.data());
}

}  // namespace

struct Trainer::OwnMesh {
  explicit OwnMesh(const Recipe& recipe) : world(make_self_communicator()), mesh(recipe, *world) {}
  std::unique_ptr<Communicator> world;
  RankMesh mesh;
};

Trainer::Trainer(const Recipe& recipe, PluginHost& plugins, std::function<bool()> stop)
    : Trainer(recipe, plugins, std::move(stop), std::make_unique<OwnMesh>(recipe)) {}

Trainer::Trainer(const Recipe& recipe, PluginHost& plugins, std::function<bool()> stop,
                 std::unique_ptr<OwnMesh> own_mesh)
    : Trainer(recipe, plugins, std::move(stop), own_mesh->mesh) {
  own_mesh_ = std::move(own_mesh);
}

Trainer::Trainer(const Recipe& recipe, PluginHost& plugins, std::function<bool()> stop,
                 RankMesh& mesh)
    : mesh_(mesh),
      ranks_(mesh.world()),
      recipe_(recipe),
      stop_(std::move(stop)),
      planned_(first() && !weights_only() ? require_memory(recipe, plugins) : MemoryPlan{}),
      session_(recipe, plugins, session_options()),
      batches_(recipe.settings.batches()),
      scaler_(make_scaler(recipe.settings.mixed_precision)) {
  build();
}

Session::Options Trainer::session_options() const {
  return {.new_adapters = !continues_run(recipe_),
          .ranks_here = ranks_here(ranks_),
          .local_rank = mesh_.local_rank(),
          .own_device = ranks_.device_memory(),
          .defer_memory = recipe_.settings.dist.zero > 0,
          .parallel = &mesh_.parallel(),
          .pipeline = &mesh_.pipeline(),
          .pipeline_rank = mesh_.pipeline_rank(),
          .check_whole_model = first()};
}

void Trainer::build() {
  const Settings& s = recipe_.settings;
  PluginHost& plugins = session_.plugins;
  if (first() && s.dist.backend == "cpu")
    for (const auto& note : cpu_speed_notes(s.mixed_precision.compute_type(), s.run.threads))
      log_warn(note);
  if (first())
    log_resize(recipe_, session_.vocab_size, session_.valid_vocab),
        log_rows_without_id(recipe_, *session_.tokenizer),
        warn_of_other_tokenizer(recipe_, *session_.tokenizer, plugins);
  DatasetContext data = dataset_context(recipe_, session_.tokenizer.get());
  data.log_summary = first();
  dataset_ = with_path_origins(recipe_.inputs, [&] {
    return plugins.make<Dataset>(s.dataset.type, recipe_.component("dataset"), data);
  });
  build_objective();
  open_training_data(batches_.samples_until(std::max<int64_t>(1, s.train.steps)));

  if (weights_only())
    planned_.parameters = session_.parameters.numel(),
    planned_.trained = session_.parameters.trained_numel();
  else
    build_step();
  open_store();
  base_ = base_identity(recipe_);
  state_.seed = static_cast<uint64_t>(s.rng.seed);
  saved_ = make_saved_config(recipe_, plugins, dataset_->identity(), session_.tokenizer->identity(),
                             s.dist.backend == "cpu"
                                 ? cat(kCpuArithmetic, cpu_level_name())
                                 : session_.device.substr(0, session_.device.find(',')),
                             mesh_.token(), dataset_->chat_template());
  resume();
  if (first() && saved_step_ < 0 && s.train.steps > 0)
    set_weights(saved_, weights_at_start(recipe_));
  forget_other_validations();
  if (!weights_only()) follow_batch_schedule();
  fill_info();
}

void Trainer::build_step() {
  const Settings& s = recipe_.settings;
  OptimizerContext context{*session_.ctx, s.mixed_precision.compute_type()};
  optimizer_ =
      session_.plugins.make<Optimizer>(s.optimizer.type, recipe_.component("optimizer"), context);
  buckets_.emplace(*session_.ctx, session_.parameters, sharding_options(s, mesh_));
  optimizer_state_.emplace(*session_.ctx, *buckets_, *optimizer_);
  rates_.emplace(param_rates(recipe_)).add(session_.parameters);
  interpreter_.emplace(*session_.ctx, session_.place(mesh_.pipeline_ranks()), session_.parameters);
  reducer_.emplace(*buckets_, reduce_options(s));
  set_step_hooks(*interpreter_, *buckets_, *reducer_);
  if (answers_) interpreter_->set_objective(std::ref(*answers_));
  build_teacher();
}

void Trainer::open_training_data(int64_t samples) {
  train_samples_ = samples;
  auto train_split = [&] { return dataset_->split(Split::train, samples); };
  train_source_ = with_path_origins(recipe_.inputs,
                                    [&] { return call_plugin(*dataset_, "split()", train_split); });
}

LoaderConfig Trainer::training_loader(int64_t samples) const {
  const Settings& s = recipe_.settings;
  const int64_t ranks = mesh_.data().size();
  return {.seq_length = s.model.seq_length,
          .micro_batch_size = s.train.micro_batch_size,
          .num_micro_batches = samples / (s.train.micro_batch_size * ranks),
          .dp_rank = mesh_.data().index(),
          .dp_size = ranks,
          .vocab_size = session_.valid_vocab,
          .mismatched = answers_ && answers_->needs_mismatched()};
}

void Trainer::follow_batch_schedule() {
  if (loader_ && (loader_->config().global_batch_size() == batch_now() ||
                  state_.step >= recipe_.settings.train.steps))
    return;
  const LoaderConfig config = training_loader(batch_now());
  loader_.reset();  // end its worker thread first: only one thread may read the source
  loader_.emplace(*train_source_, config, state_.consumed_samples);
  const PipelinePlan& plan = mesh_.pipeline();
  program_ = plan.with_micro_batches(config.num_micro_batches).program(mesh_.pipeline_rank());
}

Trainer::~Trainer() { end_save_noexcept(); }

void Trainer::run() {
  const Settings& s = recipe_.settings;
  require_agreement();
  if (s.validation.steps > 0 && state_.step < s.train.steps) prepare_validation();
  auto due = [&](int64_t interval) { return interval > 0 && state_.step % interval == 0; };
  if (!observers_.empty())  // only observers use it, and measuring takes time
    peak_ = peak_rate(s, session_.device, *session_.backend, session_.ctx->device()),
    peak_.flops *= ranks_.size();
  if (first() && (state_.step < s.train.steps ||
                  saved_step_ < 0))  // size of a checkpoint: masters and optimizer state in float
    store_->require_room(static_cast<uint64_t>(std::max(planned_.trained, planned_.saved)) *
                         sizeof(float));
  notify([&](Observer& o) { o.on_start(info_); });
  if (state_.step < s.train.steps && !out_of_patience()) prepare_reference(true);
  if (saved_step_ >= 0) export_hf(saved_step_, false);  // if the run ended before it was written
  if (state_.step == 0 && saved_step_ < 0 && s.train.steps == 0) save();
  continue_validations();
  bool stopped = false;
  while (state_.step < s.train.steps && !out_of_patience() && !(stopped = should_stop())) {
    if (std::ranges::find(s.train.skip_steps, state_.step + 1) != s.train.skip_steps.end()) {
      skip_listed_step();
      notify([&](Observer& o) { o.on_skipped_step(state_.step, state_.consumed_tokens); });
    } else {
      train_step();
    }
    bool last = state_.step == s.train.steps;
    if (due(s.train.weight_hash_interval))
      require_equal_replicas(session_.parameters, mesh_, state_.step);
    // The last checkpoint has the result of the last validation if the run needs it; otherwise the
    // checkpoint comes first.
    const bool lowest =
        (last ? tracks_best() : due(s.validation.interval)) && validate() && s.checkpoint.keep_best;
    if (due(s.checkpoint.interval) || last || lowest) save();
  }
  end_profile(true);
  end_save();
  if (saved_step_ != state_.step && state_.step > 0) save();
  end_save();
  require_saved();
  if (!stopped && state_.step > info_.first_step && state_.step != validated_step_) validate();
  report_best();
  notify([&](Observer& o) { o.on_end(state_.step); });
}

void Trainer::train_step() {
  begin_profile();
  RankActivity* activity = ranks_.activity();
  if (activity) activity->begin_step();
  StepMetrics metrics = step();
  end_profile(state_.step == recipe_.settings.train.steps);
  notify([&](Observer& o) { o.on_step(metrics); });
  poll_save();
  if (activity) activity->end_step(state_.step, metrics.step_seconds);
  const int64_t interval = recipe_.settings.logger.memory_interval;
  if (interval > 0 && state_.step % interval == 0) report_memory();
}

void Trainer::require_agreement() {
  const Settings& s = recipe_.settings;
  auto same = [&](int64_t value) {
    return ranks_.all_reduce_value(value, ReduceOp::min) ==
           ranks_.all_reduce_value(value, ReduceOp::max);
  };
  MT_USER_CHECK(same(state_.step), ErrorClass::checkpoint,
                cat("rank ", ranks_.rank(), " continues from step ", state_.step,
                    ", but other ranks continue from another step"),
                "make run.dir the same folder on all ranks, for example on a shared file system");
  uint64_t data = name_key(cat(dataset_->identity(), '\n', session_.tokenizer->identity()));
  MT_USER_CHECK(same(static_cast<int64_t>(data)), ErrorClass::data,
                "ranks read different data or tokenizer files",
                "make dataset.path and tokenizer.path the same files on all ranks");
  if (s.run.deterministic) warn_of_mixed_arithmetic();
}

bool Trainer::should_stop() {
  constexpr int32_t kTime = 1, kAsked = 2;
  const int32_t mine = stop_()         ? kAsked
                       : out_of_time() ? kTime
                                       : 0,
                reason = ranks_.all_reduce_value<int32_t>(mine, ReduceOp::max);
  timed_out_ = reason == kTime;
  if (timed_out_)
    event(cat("train.max_minutes=", recipe_.settings.train.max_minutes, " has passed after step ",
              state_.step, " of ", recipe_.settings.train.steps,
              ": saving and stopping; the same command continues the run"));
  return reason != 0;
}

bool Trainer::out_of_time() const {
  const double minutes = recipe_.settings.train.max_minutes;
  return minutes > 0 && state_.step > info_.first_step && seconds_since(started_) >= 60 * minutes;
}

// The first steps select algorithms and fill the allocator's cache, so they are not recorded.
// Neither are steps whose kernels are timed one by one.
bool Trainer::records_step() {
  const CudaGraphSection& s = recipe_.settings.cuda_graph;
  return s.type == "full_iteration" && steps_here_++ >= s.warmup_steps && !session_.ctx->profile();
}

StepMetrics Trainer::step() {
  auto start = std::chrono::steady_clock::now();
  const Settings& s = recipe_.settings;
  follow_batch_schedule();
  session_.ctx->step = static_cast<uint64_t>(state_.step);
  std::span<const MicroBatch> batches = loader_->next();
  Recording recording(session_.ctx->stream(), records_step());

  // 1. run the program: forward, backward, gradient reduction
  StepLoss loss = forward_backward(batches);
  // 2. the global gradient norm; each shard is counted once
  double grad_norm = 0;
  {
    PhaseTimer timer(session_.ctx->profile(), "gradient norm");
    grad_norm = optimizer_state_->grad_norm(1 / scaler_.scale(), &mesh_.world());
  }
  // 3. update the shards of this rank
  double lr = learning_rate(s.scheduler, s.optimizer.lr, state_.step, s.train.steps);
  double scale = scaler_.scale();
  bool updated = update(loss, grad_norm);
  auto figures = end_step(updated);
  add_objective_figures(loss, figures);
  std::ranges::copy(rates_->figures(state_.step), std::back_inserter(figures));
  if (s.logger.params_norm)
    figures.emplace_back("params_norm", optimizer_state_->params_norm(&mesh_.world()));

  if (auto recorded = recording.end()) {
    figures.emplace_back("graphs", static_cast<double>(recorded->pieces));
    figures.emplace_back("graphs_made", static_cast<double>(recorded->made));
  }

  if (failpoint("train.flip").action == FaultAction::nan) flip_a_bit(session_.parameters);
  int64_t tokens = batch_now() * s.model.seq_length;
  ++state_.step;
  if (++steps_run_ == 2) session_.ctx->memory().limit_cache();
  state_.consumed_samples = loader_->consumed_samples();
  state_.consumed_tokens += tokens;
  failpoint("train.step");
  double seconds = seconds_since(start);
  double flops = info_.flops_per_token * static_cast<double>(tokens) / seconds;
  return {.step = state_.step,
          .loss = loss.mean(),
          .grad_norm = grad_norm,
          .lr = lr,
          .loss_scale = scale,
          .skipped = !updated,
          .tokens = state_.consumed_tokens,
          .samples = state_.consumed_samples,
          .step_seconds = seconds,
          .tokens_per_second = static_cast<double>(tokens) / seconds,
          .tflops = flops / 1e12,
          .mfu = peak_.share(flops),
          .memory_bytes = session_.ctx->memory().peak(),
          .figures = std::move(figures)};
}

std::vector<std::pair<std::string, double>> Trainer::end_step(bool updated) {
  std::vector<StepFigure> all;
  for (auto& stage : session_.stages) {
    std::vector<StepFigure> mine =
        call_plugin(*stage, "end_step()", [&] { return stage->end_step(updated); });
    if (all.empty())
      all = mine;
    else
      for (size_t i = 0; i < all.size(); ++i) all[i].value = all[i].joined(mine.at(i).value);
  }
  Communicator& stages = mesh_.dense()["pp"].comm();
  std::vector<std::pair<std::string, double>> out;
  for (const StepFigure& figure : all)
    out.emplace_back(
        figure.name,
        stages.all_reduce_value(
            figure.value, figure.join == StepFigure::Join::sum ? ReduceOp::sum : ReduceOp::max));
  return out;
}

StepLoss Trainer::forward_backward(std::span<const MicroBatch> batches) {
  ExecutionContext& ctx = *session_.ctx;
  auto input_of = [&](int64_t micro) {
    const MicroBatch& batch = batches[static_cast<size_t>(micro)];
    ModelInput input = own_part(ctx, batch, mesh_.parallel(), session_.depths_ahead);
    if (teacher_) teacher_->attach(input, batch);
    return input;
  };
  const int64_t mine = answers_ ? answers_->routed_tokens(batches) : num_targets(batches);
  const int64_t targets = mesh_.data().comm().all_reduce_value(mine);
  const int64_t records = answers_ ? begin_answers(batches) : 0;
  reducer_->begin_step();
  StepLoss loss = interpreter_->run(program_, input_of, targets, scaler_.scale());
  if (answers_) loss.num_targets = records;
  if (failpoint("train.loss").action == FaultAction::nan) loss.micro_batches[0] = std::nan("");
  loss.loss_sum = reducer_->sum(loss.micro_batches);
  return loss;
}

bool Trainer::update(const StepLoss& loss, double grad_norm) {
  const Settings& s = recipe_.settings;
  finish_copy();
  bool finite = std::isfinite(loss.loss_sum) && std::isfinite(grad_norm);
  const Axis* tensor = active_axis(mesh_.parallel().tp);
  session_.precision.end_step(*session_.ctx, finite, mesh_.replicas(),
                              tensor ? &tensor->comm() : nullptr);
  const bool small =
      grad_norm <= s.optimizer.skip_grad_norm.value_or(std::numeric_limits<double>::infinity());
  if (finite && !small) {
    skip_large(grad_norm);
  } else if (finite) {
    PhaseTimer timer(session_.ctx->profile(), "optimizer");
    ++state_.updates;
    optimizer_state_->update({.grad_scale = 1 / scaler_.scale(),
                              .clip = s.optimizer.clip_grad,
                              .grad_norm = grad_norm,
                              .step = state_.updates,
                              .rates = rates_->at(state_.step)});
    state_.skips = 0;
  } else if (!scaler_.can_fall() || !std::isfinite(loss.loss_sum)) {
    skip_or_stop(loss, grad_norm);
  } else {
    event(cat("step ", state_.step + 1, ": update skipped, gradients are not finite (loss scale ",
              scaler_.scale(), ")"));
  }
  scaler_.update(finite);
  state_.loss_scale = scaler_.scale();
  state_.good_steps = scaler_.good_steps();
  state_.bad_steps = scaler_.bad_steps();
  return finite && small;
}

std::optional<EvalMetrics> Trainer::evaluate() {
  const ValidationSection& v = recipe_.settings.validation;
  if (v.steps == 0) return std::nullopt;
  LongOperation evaluating(ranks_.activity(), "evaluating");
  AnswerObjective* answers = answers_ ? &*answers_ : nullptr;
  std::optional<EvalMetrics> metrics = evaluate_split(
      session_, *interpreter_, *dataset_, Split::valid, v.steps, &mesh_,
      [&] { return stops_now(); }, answers, teacher_ ? &*teacher_ : nullptr);
  buckets_->release_values();
  if (!metrics) {
    event(cat("the validation after step ", state_.step, " is incomplete, because the run stops"));
    return std::nullopt;
  }
  metrics->step = state_.step;
  notify([&](Observer& o) { o.on_eval(*metrics); });
  return metrics;
}

template <class Call>
void Trainer::notify(Call&& call) {
  for (auto& observer : observers_) {
    if (!observer) continue;
    try {
      call(*observer);
    } catch (const std::exception& error) {
      log_warn("an observer failed and is removed: ", error.what());
      observer.reset();
    }
  }
}

void Trainer::show(const Generations& made) {
  notify([&](Observer& o) { o.on_generations(made); });
}

void Trainer::event(const std::string& text) {
  notify([&](Observer& o) { o.on_event(text); });
}

}  // namespace mtrain
