// Trainer: the training loop. Builds a run from a recipe, resumes from the newest checkpoint if
// there is one, then steps, evaluates and saves until the last step or a request to stop. One
// object per rank, for the rank's thread. The methods that communicate (run(), step(), evaluate(),
// save_copy()) are collective over the job. Only rank 0 plans memory; the ranks of
// RankMesh::savers() save together. Each rank calls only its own observers; `mtrain train` adds
// them on rank 0. Refers to recipe, plugins and mesh, which must outlive it.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "mtrain/base/error.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/comm/communicator.h"
#include "mtrain/data/dataset.h"
#include "mtrain/data/loader.h"
#include "mtrain/launch/rank_mesh.h"
#include "mtrain/optim/grad_reducer.h"
#include "mtrain/optim/loss_scaler.h"
#include "mtrain/optim/optimizer_state.h"
#include "mtrain/pipeline/interpreter.h"
#include "mtrain/record/saved_config.h"
#include "mtrain/record/train_state.h"
#include "mtrain/train/answer_objective.h"
#include "mtrain/train/generator.h"
#include "mtrain/train/memory_plan.h"
#include "mtrain/train/observer.h"
#include "mtrain/train/peak_rate.h"
#include "mtrain/train/session.h"
#include "mtrain/train/state_io.h"
#include "mtrain/train/teacher.h"

namespace mtrain {

class MT_API Trainer {
 public:
  /// Builds everything and loads the newest checkpoint. Ranks exchange no data here, so they may
  /// construct their trainers one after the other; whether they load the same step is checked in
  /// run(). All ranks must construct one, since with ddp.registered_buffers they register memory
  /// with their groups. run() calls `stop` before every step; if it returns true on one rank, all
  /// ranks stop.
  Trainer(const Recipe& recipe, PluginHost& plugins, std::function<bool()> stop, RankMesh& mesh);
  /// For a job of one rank.
  Trainer(const Recipe& recipe, PluginHost& plugins, std::function<bool()> stop);
  ~Trainer();
  /// Adds an observer. Observers are called from run() on.
  void add_observer(std::unique_ptr<Observer> observer) {
    observers_.push_back(std::move(observer));
  }

  /// `interrupted` is called before each batch of a validation; if it returns true on one rank, the
  /// validation ends without a result. REQUIRES: all ranks set it, or none.
  void set_interrupt(std::function<bool()> interrupted) { interrupted_ = std::move(interrupted); }

  /// Trains until the last step, or until `stop` returns true or train.max_minutes have passed.
  /// Saves before it returns.
  void run();
  /// True if run() ended before the last step because of train.max_minutes.
  bool timed_out() const { return timed_out_; }
  /// True if the last validations, as many as validation.patience, have not lowered the loss: the
  /// run has ended before its last step.
  bool out_of_patience() const;
  /// One step, without evaluation, saving or observers: for benchmarks. REQUIRES: the last step is
  /// not done yet.
  StepMetrics step();
  /// Records the times of kernels and phases of the following steps; null: stops recording.
  /// At most `steps` steps will run, as in a benchmark: what is prepared for a whole run, such as
  /// precomputed references, is prepared for these.
  void limit_steps(int64_t steps) { step_limit_ = steps; }
  void set_profile(Profile* profile) { session_.ctx->set_profile(profile); }
  ExecutionContext& context() { return *session_.ctx; }
  const TrainState& state() const { return state_; }
  /// The parameters or shards that this rank holds; gradients are those of the last step.
  ParamList& parameters() { return session_.parameters; }
  /// The parts of the parameters that this rank updates.
  std::span<const OptimizerState::Entry> slices() { return optimizer_state_->entries(); }
  const RunInfo& info() const { return info_; }
  /// The device of this rank: "cpu", or "NVIDIA H200, 139.8 GiB, compute capability 9.0".
  const std::string& device() const { return session_.device; }
  /// The configuration as stored in the run's folder and in its checkpoints.
  const SavedConfig& saved_config() const { return saved_; }
  /// Saves the current state as a checkpoint in another folder. Collective.
  void save_copy(const fs::path& folder);
  /// Evaluates the fixed validation batches. Absent if validation.steps is 0 or the validation was
  /// interrupted.
  std::optional<EvalMetrics> evaluate();

 private:
  struct OwnMesh;  // the communicator and mesh of a job of one rank
  Trainer(const Recipe& recipe, PluginHost& plugins, std::function<bool()> stop,
          std::unique_ptr<OwnMesh> own_mesh);
  bool first() const { return mesh_.first(); }
  /// True if the run only saves a step 0 with the weights (mtrain import); then nothing that only
  /// training needs is built.
  bool weights_only() const {
    return recipe_.weights_only && ranks_.size() == 1 && recipe_.settings.dist.zero == 0;
  }
  OptimizerState* optimizer_state() { return optimizer_state_ ? &*optimizer_state_ : nullptr; }
  bool should_stop();
  /// Evaluates and tracks the lowest loss, for validation.patience and checkpoint.keep_best. True
  /// if the loss is the lowest so far.
  bool validate();
  bool tracks_best() const;
  /// Called before the first step: finds faults of validation data and prompts.
  void prepare_validation();
  /// Encodes validation.prompts as the dataset writes them, cut to what the model reads.
  void encode_prompts();
  /// Generates a text from each prompt and passes them to the observers. The prompts are divided
  /// among the data-parallel ranks if each can run the model without the others. Collective.
  void generate_texts();
  bool generates_together() const;
  SharedModel shared_model();
  std::vector<float> shared_logits(const MicroBatch& batch, int64_t row);
  Generations::Text generate_text(Generator& generator, size_t prompt);
  /// Gives rank 0 the texts of all ranks; `mine` are the indices of this rank's texts.
  void gather_texts(std::vector<Generations::Text>& texts, const std::vector<size_t>& mine);
  /// Called after a resume: discards the results of validations on other samples.
  void forget_other_validations();
  /// Called before the first step: discards a best step whose checkpoint no longer exists, and
  /// repeats a validation that a stop interrupted. Collective.
  void continue_validations();
  /// Called before a save, and after it has succeeded: determine which checkpoints are kept because
  /// of their loss.
  void keep_best_steps();
  void note_saved(int64_t step);
  void report_best();
  /// True if train.max_minutes have passed and this invocation has done at least one step.
  bool out_of_time() const;
  /// Runs a step of train.skip_steps: skips its samples without an update.
  void skip_listed_step();
  void report_memory();
  /// Called before a step: rebuilds loader and program if train.batch_schedule changes the batch
  /// size.
  void follow_batch_schedule();
  /// Samples of the next step.
  int64_t batch_now() const { return batches_.samples_at(state_.step); }
  /// One step with profiling and observers.
  void train_step();
  void require_agreement();
  void warn_of_mixed_arithmetic();
  void build();
  void build_step();
  Session::Options session_options() const;
  void build_teacher();
  /// Adds what the objective reports of a step. Collective.
  void add_objective_figures(const StepLoss& loss, NamedValues& figures);
  void require_teacher(const std::string& before, const std::string& checkpoint) const;
  /// Throws if the dataset's samples are not those of the objective; makes an objective over
  /// answers.
  void build_objective();
  void require_other_records() const;
  /// Gets the reference of an objective over answers: of the initial model before the first step,
  /// else from the run's folder. `keep`: writes it there. Collective.
  double computed_flops_per_token() const;
  void prepare_reference(bool keep);
  int64_t add_references(Split split, int64_t samples, int64_t micro_batch);
  void add_mismatched_references(Split split, int64_t samples);
  void require_neighbors(Split split, const std::string& batches, const std::string& there) const;
  void measure_references(std::span<const MicroBatch> batches, std::vector<int64_t>& keys,
                          std::vector<double>& values);
  void share_references(std::vector<int64_t>& keys, std::vector<double>& values);
  int64_t samples_of_reference(Split split, int64_t samples) const;
  void require_references(Split split, int64_t samples, int64_t there, const char* setting) const;
  /// Whether a rank has been asked to stop, during work before or between steps. Collective.
  bool stops_now();
  /// Called before a step's program: prepares the objective over answers for the micro-batches.
  /// Returns the number of records of all ranks. Collective.
  int64_t begin_answers(std::span<const MicroBatch> batches);
  AnswerObjective::Passes passes();
  LoaderConfig training_loader(int64_t samples) const;
  bool records_step();
  StepLoss forward_backward(std::span<const MicroBatch> batches);
  bool update(const StepLoss& loss, double grad_norm);
  std::string loss_scale_remedy() const;
  /// For a non-finite loss or gradient norm: skips the update or ends the run, as
  /// train.on_nonfinite says.
  void skip_or_stop(const StepLoss& loss, double grad_norm);
  /// The same for a gradient norm above optimizer.skip_grad_norm.
  void skip_large(double grad_norm);
  /// Calls the model's end_step() and returns its figures, combined over the pipeline's stages.
  std::vector<std::pair<std::string, double>> end_step(bool updated);
  void open_store();
  void resume();
  void save();
  /// For a save in the background: poll_save() advances it, finish_copy() waits until the state is
  /// copied to the host, end_save() waits for its end.
  void poll_save();
  void finish_copy();
  void end_save();
  /// `saved`: the step's checkpoint was written just now, so an export that is there already is of
  /// other weights.
  void export_hf(int64_t step, bool saved);
  void end_save_noexcept() noexcept;
  bool try_save(int64_t step, const std::function<void()>& part);
  void require_saved() const;
  /// The newest checkpoint, as part of a sentence, for messages about the end of the run.
  std::string newest_saved() const;
  /// Called before and after a step: record the profile of profiling.start to profiling.end, and
  /// write it after the last of these steps.
  void begin_profile();
  void end_profile(bool last);
  void fill_info();
  CheckpointMeta meta(int64_t consumed) const;
  /// `samples`: the number that the run reads from its first to its last step.
  void open_training_data(int64_t samples);
  /// Calls every observer; an observer that throws is removed with a warning.
  template <class Call>
  void notify(Call&& call);
  void event(const std::string& text);
  void show(const Generations& made);

  std::unique_ptr<OwnMesh> own_mesh_;
  RankMesh& mesh_;
  Communicator& ranks_;  // all ranks of the job
  const Recipe& recipe_;
  std::vector<std::unique_ptr<Observer>> observers_;
  std::function<bool()> stop_, interrupted_;
  MemoryPlan planned_;
  Session session_;
  std::unique_ptr<Dataset> dataset_;
  std::vector<AskedPrompt> prompts_;  // of validation.prompts
  std::unique_ptr<SampleSource> train_source_;
  int64_t train_samples_ = 0;  // read by the whole run
  int64_t step_limit_ = -1;    // steps of a benchmark; -1: a run
  std::optional<Loader> loader_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<ParamBuckets> buckets_;
  std::optional<OptimizerState> optimizer_state_;
  std::optional<ParamRates> rates_;
  std::optional<Teacher> teacher_;  // of objective.type=distillation
  std::string teacher_identity_;
  std::optional<AnswerObjective> answers_;  // absent: the losses of single tokens
  bool has_reference_ = false;
  std::optional<Interpreter> interpreter_;
  std::optional<GradReducer> reducer_;
  std::optional<CheckpointStore> store_;
  std::optional<StateSave> save_;    // in progress
  double save_blocked_seconds_ = 0;  // seconds during which training waited for the save
  BatchSchedule batches_;
  Program program_;  // for the loader's number of micro-batches
  LossScaler scaler_;
  TrainState state_;
  SavedConfig saved_;
  std::string base_;  // identity of the frozen weights; empty: none
  RunInfo info_;
  PeakRate peak_;  // of all ranks
  int64_t saved_step_ = -1;
  int64_t validated_step_ = -1;                           // by this object
  std::optional<std::pair<int64_t, double>> saved_best_;  // step and loss of the best checkpoint,
                                                          // of which the save is in progress
  std::optional<Error> save_failure_;  // of the last save; absent if it succeeded
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  int64_t steps_here_ = 0;  // by this object, for cuda_graph.warmup_steps
  int64_t steps_run_ = 0;   // by this object
  bool timed_out_ = false;
  std::optional<Profile> profile_;
  int64_t profile_from_ = 0;  // number of steps before the profile
};

/// Warns if the first `batches` global batches of `batch` samples contain samples of the split more
/// than once. `instead`: the end of the warning, which says what to change; empty: the settings of
/// validation.
MT_API void warn_of_repeats(const Dataset& dataset, Split split, int64_t batches, int64_t batch,
                            const std::string& instead);

/// Opens the validation data, to report faults before training and not after it. `warns`: of
/// samples that repeat.
void check_validation_data(const Recipe& recipe, const Dataset& dataset, bool warns);

/// The mean loss of the first `batches` global batches of a split. The samples are divided among
/// the data-parallel ranks; collective over the job. `mesh` null: this rank evaluates all of them,
/// and `batches` may be Dataset::kOneEpoch for every sample once. `stop` is called before each
/// batch and must return the same on all ranks; if it returns true, the result is absent. With
/// `answers`, the interpreter's objective, the loss is the mean over records; with a `teacher`, it
/// is that of distillation.
MT_API std::optional<EvalMetrics> evaluate_split(Session& session, Interpreter& interpreter,
                                                 const Dataset& dataset, Split split,
                                                 int64_t batches, const RankMesh* mesh,
                                                 const std::function<bool()>& stop = {},
                                                 AnswerObjective* answers = nullptr,
                                                 Teacher* teacher = nullptr);

/// The objective over answers of a recipe; absent if it has none. Refers to the session.
MT_API std::optional<AnswerObjective> make_answer_objective(Session& session,
                                                            const ParallelContext* parallel);

}  // namespace mtrain
