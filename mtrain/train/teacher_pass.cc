#include "mtrain/train/teacher_pass.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include "mtrain/base/counted.h"
#include "mtrain/base/elapsed.h"
#include "mtrain/base/error.h"
#include "mtrain/base/failpoint.h"
#include "mtrain/base/log.h"
#include "mtrain/base/plugin_call.h"
#include "mtrain/checkpoint/run_lock.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/comm/rank_activity.h"
#include "mtrain/data/loader.h"
#include "mtrain/launch/job.h"
#include "mtrain/launch/rank_mesh.h"
#include "mtrain/recipe/input_paths.h"
#include "mtrain/recipe/teacher.h"
#include "mtrain/record/train_state.h"
#include "mtrain/train/model_input.h"
#include "mtrain/train/session.h"
#include "mtrain/train/teacher.h"
#include "mtrain/train/teacher_store.h"

namespace mtrain {
namespace {

/// One row of a micro-batch, kept until the micro-batch is full.
void add_row(const MicroBatch& one, MicroBatch& batch) {
  const auto before = static_cast<int32_t>(batch.tokens.size());
  for (auto [from, to] :
       {std::pair(&one.tokens, &batch.tokens), std::pair(&one.targets, &batch.targets),
        std::pair(&one.positions, &batch.positions)})
    to->insert(to->end(), from->begin(), from->end());
  if (batch.cu_seqlens.empty()) batch.cu_seqlens.push_back(0);
  for (size_t i = 1; i < one.cu_seqlens.size(); ++i)
    batch.cu_seqlens.push_back(before + one.cu_seqlens[i]);
  if (!one.padding.empty() || !batch.padding.empty()) {
    batch.padding.resize(static_cast<size_t>(batch.rows), 0);
    batch.padding.push_back(one.padding.empty() ? 0 : one.padding[0]);
  }
  if (batch.rows == 0) batch.first_sample = one.first_sample;
  batch.max_seqlen = std::max(batch.max_seqlen, one.max_seqlen);
  batch.num_target_tokens += one.num_target_tokens;
  batch.seq_length = one.seq_length;
  ++batch.rows;
}

/// Samples [begin, end) of a split.
struct SampleRange {
  const SampleSource* source;
  const char* split;
  int64_t begin, end;
};

class TeacherPass {
 public:
  TeacherPass(const Recipe& recipe, PluginHost& plugins, Communicator& ranks, std::mutex& building,
              const TeacherPassOptions& options, fs::path folder)
      : recipe_(recipe),
        plugins_(plugins),
        ranks_(ranks),
        building_(building),
        options_(options),
        folder_(std::move(folder)),
        settings_(distillation_of(recipe).value()) {}

  bool run() {
    const LongOperation computing(ranks_.activity(), "computing the teacher's distributions");
    build_in_turn(ranks_, building_, [&] { open_data(); });
    if (teacher_) mesh_ = std::make_unique<RankMesh>(*teacher_, ranks_);
    open_store();
    const std::vector<SampleRange> ranges = with_path_origins(
        recipe_.inputs, [&] { return call_plugin(*dataset_, "split()", [&] { return split(); }); });
    for (const SampleRange& one : ranges) total_ += one.end - one.begin;
    const bool all = std::ranges::all_of(ranges, [&](const SampleRange& one) { return add(one); });
    if (writer_) writer_->flush();
    if (!all && first())
      log_warn(
          "stopped before all distributions of the teacher are computed: the same command "
          "continues");
    else if (computed_ > 0 && first())
      log_info("the teacher's distributions of ", counted(computed_, "sample"), " are in ",
               printable(folder_.string()), ", computed in ", human_seconds(seconds_since(start_)));
    ranks_.barrier();  // other ranks read the files next
    return all;
  }

 private:
  bool first() const { return ranks_.rank() == 0; }
  int64_t parts() const { return mesh_ ? mesh_->data().size() : ranks_.size(); }
  int64_t part() const { return mesh_ ? mesh_->data().index() : ranks_.rank(); }
  /// One rank of those that have the same samples.
  bool counts() const {
    return !mesh_ ||
           (axis_index(mesh_->parallel().tp) == 0 && axis_index(mesh_->parallel().cp) == 0);
  }

  void open_data() {
    const Settings& s = recipe_.settings;
    TokenizerContext context{recipe_.directory};
    tokenizer_ = with_path_origins(
        recipe_.inputs,
        [&] {
          return plugins_.make<Tokenizer>(s.tokenizer.type, recipe_.component("tokenizer"),
                                          context);
        },
        "tokenizer");
    DatasetContext data = dataset_context(recipe_, tokenizer_.get());
    data.log_summary = false;
    dataset_ = with_path_origins(recipe_.inputs, [&] {
      return plugins_.make<Dataset>(s.dataset.type, recipe_.component("dataset"), data);
    });
    identity_ = stored_identity(recipe_, *tokenizer_);
    if (settings_.teacher.empty()) return;
    try {
      teacher_.emplace(teacher_recipe(recipe_, plugins_));
      require_vocabulary(recipe_, *teacher_, *tokenizer_, plugins_);
    } catch (const Error& error) {
      throw of_teacher(error);
    }
    identity_.vocabulary =
        std::min(predicted_ids(s, *tokenizer_), predicted_ids(teacher_->settings, *tokenizer_));
    require_top_k(settings_.top_k, identity_.vocabulary);
  }

  void open_store() {
    store_ = std::make_unique<TeacherStore>(folder_, identity_);
    const int64_t mine = store_->samples();
    MT_USER_CHECK(
        ranks_.all_reduce_value(mine, ReduceOp::min) ==
            ranks_.all_reduce_value(mine, ReduceOp::max),
        ErrorClass::config,
        cat("objective.store: ranks find different files in ", printable(folder_.string())),
        "give a folder that all machines of the job share: objective.store=DIR");
  }

  /// By how many samples a run that continues is ahead of the recipe, because its earlier steps had
  /// other batch sizes.
  int64_t samples_ahead() {
    std::vector<int64_t> out = {0};
    std::error_code none;
    const fs::path folder = recipe_.checkpoint_directory();
    if (first() && fs::exists(folder, none)) {
      const CheckpointStore store(folder);
      if (const auto latest = store.latest_valid(); latest.step) {
        const TrainState before =
            meta_from_json(store.meta(*latest.step), store.step_folder(*latest.step).string())
                .state;
        out[0] = before.consumed_samples - recipe_.settings.batches().samples_until(before.step);
      }
    }
    ranks_.broadcast(std::span(out), 0);
    return out[0];
  }

  /// What the run reads.
  std::vector<SampleRange> split() {
    const Settings& s = recipe_.settings;
    std::vector<SampleRange> out;
    const bool whole = options_.steps < 0;
    const int64_t last = whole ? s.train.steps : std::min(options_.steps, s.train.steps);
    add_ranges(Split::train, s.batches().samples_until(last) + samples_ahead(), out);
    if (whole) add_ranges(Split::valid, s.validation.steps * s.eval_global_batch(), out);
    return out;
  }

  /// One range for each epoch: its samples are stored before the next one, which may repeat them,
  /// is divided among the ranks.
  void add_ranges(Split which, int64_t samples, std::vector<SampleRange>& out) {
    if (samples == 0) return;
    sources_.push_back(dataset_->split(which, samples));
    const SampleSource& source = *sources_.back();
    int64_t epoch = samples;
    try {
      epoch = std::max<int64_t>(1, dataset_->split(which, Dataset::kOneEpoch)->size());
    } catch (const Error&) {  // of endless data, or of a weighted blend
    }
    const int64_t end = source.repeats() ? std::min(samples, source.size()) : samples;
    for (int64_t begin = 0; begin < end; begin += epoch)
      out.push_back({&source, name(which), begin, std::min(end, begin + epoch)});
  }

  /// Adds what is missing of a range. False if the job is to stop.
  bool add(const SampleRange& range) {
    const int64_t size = range.end - range.begin;
    int64_t at = range.begin + size * part() / parts();
    const int64_t end = range.begin + size * (part() + 1) / parts();
    Loader loader(*range.source,
                  {.seq_length = recipe_.settings.model.seq_length,
                   .prefetch = false,
                   .vocab_size = predicted_ids(recipe_.settings, *tokenizer_)},
                  at);
    const int64_t before = computed_;
    for (;;) {
      MicroBatch batch;
      const int64_t from = at;
      find_missing(loader, end, at, batch);
      // {stops, samples seen, samples to compute, samples left} of all ranks.
      std::vector<int64_t> all = {options_.stop() ? 1 : 0, counts() ? at - from : 0,
                                  counts() ? batch.rows : 0, end - at};
      ranks_.all_reduce(std::span(all));
      if (all[0] > 0) return false;
      if (all[2] > 0 && !session_) begin(range, batch);
      if (batch.rows > 0) compute(batch);
      seen_ += all[1], computed_ += all[2];
      report();
      if (all[3] == 0) break;
    }
    if (computed_ > before) {
      if (writer_) writer_->flush();
      ranks_.barrier();
      open_store();
    }
    return true;
  }

  /// Reads samples from `at` on until a micro-batch of missing ones is full, or for a while.
  void find_missing(Loader& loader, int64_t end, int64_t& at, MicroBatch& batch) {
    constexpr int64_t kMost = 4096;
    for (const int64_t from = at;
         at < end && at - from < kMost && batch.rows < recipe_.settings.train.micro_batch_size;
         ++at) {
      const MicroBatch& one = loader.next()[0];
      const int64_t key = TeacherStore::key(one, 0);
      if (store_->has(key) || !done_.insert(key).second) continue;
      add_row(one, batch);
    }
  }

  /// Called when the first missing sample is found, on all ranks.
  void begin(const SampleRange& range, const MicroBatch& batch) {
    if (!teacher_) {
      std::vector<int64_t> where = {batch.rows > 0 ? batch.first_sample : INT64_MAX};
      ranks_.all_reduce(std::span(where), ReduceOp::min);
      throw Error(ErrorClass::config,
                  cat("objective.store: ", printable(folder_.string()),
                      " lacks distributions of the data, first of sample ", where[0], " of the ",
                      range.split, " split, and there is no objective.teacher"),
                  "give the teacher of which it was computed: objective.teacher=FOLDER-OR-RUN; or "
                  "the data, "
                  "model.seq_length, rng.seed and number of steps for which it was computed");
    }
    if (first()) {
      if (options_.begins) options_.begins();
      make_directories(folder_);
      lock_.emplace(folder_);
      remove_unfinished();
      log_info("computing the ", counted(settings_.top_k, "most likely id"),
               " of the teacher for each token; up to ",
               human_bytes(static_cast<uint64_t>(recipe_.settings.model.seq_length) *
                           static_cast<uint64_t>(6 * settings_.top_k + 4)),
               " a sample in ", printable(folder_.string()));
    }
    start_ = reported_ = std::chrono::steady_clock::now();
    seen_before_ = seen_;
    build_in_turn(ranks_, building_, [&] { build(); });
    if (counts()) writer_.emplace(folder_, identity_, cat(mesh_->token(), "-", part()));
  }

  /// Files that a killed job was writing.
  void remove_unfinished() const {
    std::vector<fs::path> found;
    for (const auto& one : fs::directory_iterator(folder_))
      if (one.path().extension() == TeacherStore::kUnfinished) found.push_back(one.path());
    std::error_code ignored;
    for (const fs::path& path : found) fs::remove(path, ignored);
  }

  void build() {
    try {
      session_ = std::make_unique<Session>(
          *teacher_, plugins_,
          Session::Options{.ranks_here = ranks_.kind() == "thread" ? ranks_.size() : 1,
                           .local_rank = mesh_->local_rank(),
                           .own_device = ranks_.device_memory(),
                           .parallel = &mesh_->parallel(),
                           .frozen = true,
                           .check_whole_model = first()});
    } catch (const Error& error) {
      throw of_teacher(error);
    }
  }

  void compute(const MicroBatch& batch) {
    constexpr uint64_t kFileBytes = uint64_t{256} << 20;
    ExecutionContext& ctx = *session_->ctx;
    ModelInput input = own_part(ctx, batch, mesh_->parallel());
    input.targets_T = {}, input.logits_of_part = true;
    Model& model = *session_->model;
    const TopKRows own = [&] {
      const MemoryScope use(ctx.memory(), MemoryUse::activations);
      const Evaluating evaluating(ctx);
      const Tensor logits =
          call_plugin(model, "forward()", [&] { return model.forward(input, {}); }).detach();
      return most_likely(logits, identity_.vocabulary, identity_.k, identity_.temperature,
                         mesh_->parallel().tp, session_->vocab_size);
    }();
    const TopKRows rows = of_all_tokens(own, input, std::ssize(batch.tokens));
    if (!writer_) return;
    for (int64_t row = 0; row < batch.rows; ++row) writer_->add(batch, row, rows);
    if (writer_->pending_bytes() > kFileBytes || seconds_since(written_) > 60)
      writer_->flush(), written_ = std::chrono::steady_clock::now();
    failpoint("teacher.batch");
  }

  /// Joins the tokens of the ranks of cp.
  TopKRows of_all_tokens(const TopKRows& own, const ModelInput& input, int64_t tokens) const {
    if (!input.cp_slice) return own;
    TopKRows all(own.k, tokens);
    std::ranges::fill(all.ids, 0);
    int64_t from = 0;
    for (const RowRange& range : input.cp_slice->tokens())
      for (int64_t i = 0; i < range.rows; ++i) all.set(range.first + i, own, from++);
    Communicator& ranks = mesh_->parallel().cp->comm();
    ranks.all_reduce(std::span(all.ids));
    ranks.all_reduce(std::span(all.log_probabilities));
    ranks.all_reduce(std::span(all.log_rest));
    return all;
  }

  void report() {
    if (!first() || !session_ || seconds_since(reported_) < 10) return;
    reported_ = std::chrono::steady_clock::now();
    const auto done = static_cast<double>(seen_ - seen_before_),
               left = static_cast<double>(total_ - seen_);
    log_info("the teacher's distributions: ", seen_, " of ", counted(total_, "sample"), ", ",
             computed_, " computed, ",
             done > 0 ? human_seconds(seconds_since(start_) * left / done) : "?", " left");
  }

  const Recipe& recipe_;
  PluginHost& plugins_;
  Communicator& ranks_;
  std::mutex& building_;
  const TeacherPassOptions& options_;
  const fs::path folder_;
  const DistillationSettings settings_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Dataset> dataset_;
  std::vector<std::unique_ptr<SampleSource>> sources_;
  std::optional<Recipe> teacher_;
  TeacherIdentity identity_;
  std::unique_ptr<RankMesh> mesh_;
  std::unique_ptr<TeacherStore> store_;
  std::optional<RunLock> lock_;
  std::unique_ptr<Session> session_;
  std::optional<TeacherStoreWriter> writer_;  // on one rank of those that have the same samples
  std::unordered_set<int64_t> done_;          // keys of samples of this pass
  int64_t total_ = 0, seen_ = 0, seen_before_ = 0, computed_ = 0;
  std::chrono::steady_clock::time_point start_, reported_,
      written_ = std::chrono::steady_clock::now();
};

}  // namespace

bool store_teacher(const Recipe& recipe, PluginHost& plugins, Communicator& ranks,
                   std::mutex& building, const TeacherPassOptions& options) {
  const auto folder = teacher_store_folder(recipe);
  if (!folder || recipe.settings.train.steps == 0) return true;
  return TeacherPass(recipe, plugins, ranks, building, options, *folder).run();
}

}  // namespace mtrain
