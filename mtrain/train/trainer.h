// Trainer: the loop. Builds the run from a recipe, resumes if there is something to resume, then
// steps, evaluates and saves until it is done or a signal stops it. One per rank, for the rank's
// thread. Ranks step together; only rank 0 plans memory, saves, and calls observers and the log.
// Refers to recipe, plugins and mesh, which must outlive it.
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
#include "mtrain/train/memory_plan.h"
#include "mtrain/train/observer.h"
#include "mtrain/train/peak_rate.h"
#include "mtrain/train/session.h"
#include "mtrain/train/state_io.h"

namespace mtrain {

class MT_API Trainer {
 public:
  /// Builds everything and resumes, without communication. Calls `stop` at every step edge; when it
  /// returns true on one rank, all ranks stop.
  Trainer(const Recipe& recipe, PluginHost& plugins, std::function<bool()> stop, RankMesh& mesh);
  /// The one rank of its job.
  Trainer(const Recipe& recipe, PluginHost& plugins, std::function<bool()> stop);
  ~Trainer();
  /// Adds an observer. Observers are called from run() on.
  void add_observer(std::unique_ptr<Observer> observer) {
    observers_.push_back(std::move(observer));
  }

  /// `interrupted` is called before each batch of a validation, which ends without a result when it
  /// returns true on one rank. REQUIRES: all ranks set it, or none.
  void set_interrupt(std::function<bool()> interrupted) { interrupted_ = std::move(interrupted); }

  /// Trains to the last step or to the first step edge at which `stop` says so, saving before it
  /// returns.
  void run();
  /// run() ended before the last step because of train.max_minutes.
  bool timed_out() const { return timed_out_; }
  /// One step, without evaluation, saving or observers: for benchmarks. REQUIRES: steps are left.
  StepMetrics step();
  /// Times kernels and phases of the steps to come; null: no longer.
  void set_profile(Profile* profile) { session_.run->set_profile(profile); }
  Run& context() { return *session_.run; }
  const TrainState& state() const { return state_; }
  /// What is trained, as far as this rank holds it; gradients are those of the last step.
  ParamList& parameters() { return session_.parameters; }
  /// What this rank updates of them.
  std::span<const OptimizerState::Entry> slices() { return optimizer_state_->entries(); }
  const RunInfo& info() const { return info_; }
  /// What this rank computes on: "cpu", or "NVIDIA H200, 139.8 GiB, compute capability 9.0".
  const std::string& device() const { return session_.device; }
  /// What is kept of the configuration in the run's folder and in its checkpoints.
  const SavedConfig& saved_config() const { return saved_; }
  /// Saves the state as it is as a checkpoint in another folder. All ranks together.
  void save_copy(const fs::path& folder);
  /// Evaluates the fixed validation batches; absent when the recipe asks for none, and where it was
  /// interrupted.
  std::optional<EvalMetrics> evaluate();

 private:
  struct Alone;  // a job of one rank, where none was given
  Trainer(const Recipe& recipe, PluginHost& plugins, std::function<bool()> stop,
          std::unique_ptr<Alone> alone);
  bool first() const { return mesh_.first(); }
  bool told_to_stop();
  /// The limit of train.max_minutes has passed, and this run has made a step.
  bool out_of_time() const;
  /// A step of train.skip_steps: moves on in the data without an update.
  void pass_over_step();
  void report_memory();
  /// Before a step: loader and program have the size that train.batch_schedule gives it.
  void follow_batch_schedule();
  /// Samples of the step that comes next.
  int64_t batch_now() const { return batches_.samples_at(state_.step); }
  /// One step with its profile, and with all observers informed.
  void train_step();
  void require_agreement();
  void warn_of_mixed_arithmetic();
  void build();
  bool records_step();
  StepLoss forward_backward(std::span<const Batch> batches);
  bool update(const StepLoss& loss, double grad_norm, double lr);
  /// Passes over an update that cannot be made, or ends the run: train.on_nonfinite.
  void skip_or_stop(const StepLoss& loss, double grad_norm);
  /// The same for a gradient norm above optimizer.skip_grad_norm.
  void skip_large(double grad_norm);
  /// What the model does once per step by itself, and tells of it.
  std::vector<std::pair<std::string, double>> end_step(bool updated);
  void open_store();
  void resume();
  void save();
  /// Of a save that goes on beside the steps: looks whether it may go on; waits until its copy of
  /// the state is made; waits for its end.
  void poll_save();
  void finish_copy();
  void end_save();
  void end_save_or_drop_it() noexcept;
  bool try_save(int64_t step, const std::function<void()>& part);
  void require_saved() const;
  /// What of the run is kept, as half a sentence for a message about its end.
  std::string newest_saved() const;
  /// Before and after a step: keeps the profile that the recipe asks for, and writes it when its
  /// steps are done.
  void begin_profile();
  void end_profile(bool last);
  void fill_info();
  CheckpointMeta meta(int64_t consumed) const;
  /// For a run that reads so many samples from its beginning to its end.
  void open_training_data(int64_t samples);
  /// Calls every observer; one that throws is dropped with a warning.
  template <class Call>
  void tell(Call&& call);
  void event(const std::string& text);

  std::unique_ptr<Alone> alone_;
  RankMesh& mesh_;
  Communicator& ranks_;  // the whole job
  const Recipe& recipe_;
  std::vector<std::unique_ptr<Observer>> observers_;
  std::function<bool()> stop_, interrupted_;
  MemoryPlan planned_;
  Session session_;
  std::unique_ptr<Dataset> dataset_;
  std::unique_ptr<SampleSource> train_source_;
  int64_t train_samples_ = 0;  // that the whole run reads
  std::optional<Loader> loader_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<ParamBuckets> buckets_;
  std::optional<OptimizerState> optimizer_state_;
  std::optional<Interpreter> interpreter_;
  std::optional<GradReducer> reducer_;
  std::optional<CheckpointStore> store_;
  std::optional<StateSave> save_;  // under way
  double save_held_ = 0;           // seconds that training stood still for it
  BatchSchedule batches_;
  Program program_;  // for the loader's number of micro-batches
  LossScaler scaler_;
  TrainState state_;
  SavedConfig saved_;
  RunInfo info_;
  PeakRate peak_;  // of all ranks
  int64_t saved_step_ = -1;
  std::optional<Error> save_failure_;  // of the last save; absent when it succeeded
  int64_t skips_ = 0;  // updates in a row that were skipped for their loss or gradient
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  int64_t steps_here_ = 0;  // by this object, for cuda_graph.warmup_steps
  bool timed_out_ = false;
  std::optional<Profile> profile_;
  int64_t profile_from_ = 0;  // steps before it
};

/// Mean loss of the first `batches` global batches of a split, shared out among the ranks; `mesh`
/// null: this one alone, which may also evaluate each sample of the split once, Dataset::kOneEpoch.
/// `stop` is asked before each batch, on all ranks with one answer: absent where it says so.
MT_API std::optional<EvalMetrics> evaluate_split(Session& session, Interpreter& interpreter,
                                                 const Dataset& dataset, Split split,
                                                 int64_t batches, const RankMesh* mesh,
                                                 const std::function<bool()>& stop = {});

}  // namespace mtrain
