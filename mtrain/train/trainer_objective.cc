// The trainer's objective: whether the dataset's samples suit it, and for an objective over answers
// the reference and the records of a step.
#include <algorithm>
#include <chrono>
#include <iterator>

#include "mtrain/base/counted.h"
#include "mtrain/base/log.h"
#include "mtrain/base/plugin_call.h"
#include "mtrain/data/answer_data.h"
#include "mtrain/recipe/hf_source.h"
#include "mtrain/train/answer_records.h"
#include "mtrain/train/model_input.h"
#include "mtrain/train/trainer.h"

namespace mtrain {

std::unique_ptr<Objective> make_objective(const Recipe& recipe, PluginHost& plugins) {
  const ObjectiveSection& section = recipe.settings.objective;
  if (!section.over_answers()) return nullptr;
  ObjectiveContext context;
  const Node* labels = recipe.config.root().find("dataset.labels");
  if (labels && labels->is_list())
    for (const Node& name : labels->items()) context.labels.push_back(name.as_text());
  return plugins.make<Objective>(section.type, recipe.component("objective"), context);
}

void require_records(const Recipe& recipe, PluginHost& plugins, const Dataset& dataset) {
  const auto* answers = dynamic_cast<const AnswerData*>(&dataset);
  const auto objective = answers ? make_objective(recipe, plugins) : nullptr;
  if (!objective || objective->records() != Objective::Records::pairs) return;
  const std::string place = answers->first_single_answer();
  MT_USER_CHECK(place.empty(), ErrorClass::data,
                cat(place,
                    ": has one answer, and the objective learns from pairs of answers "
                    "(objective.type=",
                    recipe.settings.objective.type, ")"),
                "to learn from answers with a label: objective=kto; pairs have the fields prompt, "
                "chosen and rejected");
}

std::optional<AnswerObjective> make_answer_objective(Session& session,
                                                     const ParallelContext* parallel) {
  auto objective = make_objective(session.recipe, session.plugins);
  if (!objective) return std::nullopt;
  const ReferenceSource source = reference_source(session.recipe.settings, *objective);
  const Node* labels = session.recipe.config.root().find("model.labels");
  return std::make_optional<AnswerObjective>(
      std::move(objective), source, session.adapters ? &*session.adapters : nullptr, parallel,
      labels && labels->is(NodeKind::integer) ? labels->as_int() : 0);
}

/// An objective that compares with the answers of other records needs some in each batch. Rules
/// check the batches before for the objectives that they know.
void Trainer::require_other_records() const {
  const Settings& s = recipe_.settings;
  const auto enough = [](int64_t samples, const char* setting) {
    MT_USER_CHECK(samples > 1, ErrorClass::config,
                  cat(setting,
                      ": the objective compares with the answers of other records of the "
                      "global batch, and a batch of ",
                      samples, " has none"),
                  cat("set ", setting, " to at least 2"));
  };
  enough(batches_.smallest(), "train.global_batch_size");
  if (s.validation.steps > 0) enough(s.eval_global_batch(), "validation.global_batch_size");
  MT_USER_CHECK(dataset_->split(Split::train, Dataset::kOneEpoch)->size() > 1, ErrorClass::data,
                "the training data has one record, and the objective compares with the answers of "
                "others",
                "add records; objective=kto objective.loss=apo_zero_unpaired compares with none");
}

void Trainer::build_objective() {
  const Settings& s = recipe_.settings;
  const std::string_view samples = dataset_->objective();
  // A rule checks the same before.
  const bool answers = samples == Dataset::kPreferences || samples == Dataset::kClasses ||
                       samples == Dataset::kTokenClasses,
             suit_any = session_.plugins.load(Dataset::kKind, s.dataset.type).schema.objective ==
                        Fields::kAnyObjective;
  MT_USER_CHECK(suit_any || answers == s.objective.over_answers(), ErrorClass::config,
                cat("dataset.type=", s.dataset.type, " has samples for the objective '", samples,
                    "', and objective.type is ", s.objective.type),
                answers ? "choose an objective over answers, such as objective=dpo"
                        : "set dataset=preference, or objective=tokens");
  MT_USER_CHECK(answers || samples == Dataset::kNextToken || samples == Dataset::kMaskedToken ||
                    samples == Dataset::kSequenceToSequence,
                ErrorClass::config,
                cat("dataset.type=", s.dataset.type, " has the training objective ", samples,
                    ", which mtrain does not implement"),
                "models predict the next token or masked tokens: choose a dataset such as gpt, "
                "sft, bert, t5 or mock");
  if (answers) require_records(recipe_, session_.plugins, *dataset_);
  if (std::optional<AnswerObjective> made = make_answer_objective(session_, &mesh_.parallel()))
    answers_.emplace(std::move(*made));
  if (answers_ && answers_->needs_mismatched() && s.train.steps > 0) require_other_records();
  if (answers && !suit_any && samples == Dataset::kPreferences && first() &&
      s.model.init_from.empty() && s.train.steps > 0)
    log_warn("model.init_from is not set: objective.type=", s.objective.type,
             " trains a model with random initial weights, which cannot answer yet\n  help: set "
             "model.init_from to a run or a folder of a model that answers, such as a run of "
             "dataset=sft");
  if (answers_ && first() && answers_->source() == ReferenceSource::none &&
      s.objective.reference != "auto")
    log_warn("objective.reference=", s.objective.reference,
             " has no effect: objective.type=", s.objective.type,
             " does not use a reference with these settings");
  const Node* labels = recipe_.config.root().find("model.labels");
  const Tokenizer* tokenizer = session_.tokenizer.get();
  const bool scores = labels && labels->is(NodeKind::integer) && labels->as_int() > 0 &&
                      samples != Dataset::kTokenClasses;
  if (!scores || !first() || !tokenizer || !tokenizer->eod()) return;
  if (hf_pad_token(recipe_, tokenizer->pad()) == tokenizer->eod())
    log_warn(cat(
        "the model's padding token is ", *tokenizer->eod(),
        ", the end-of-text token: transformers would read a sequence's scores before its "
        "end-of-text token, while training reads them at that token; set another padding token "
        "before training (pad_token_id of config.json, or pad_token of tokenizer_config.json where "
        "it has none)"));
}

void Trainer::build_teacher() {
  if (recipe_.settings.train.steps == 0) return;
  if (std::optional<Teacher> made = Teacher::of(session_, session_options()))
    teacher_.emplace(std::move(*made)), teacher_identity_ = teacher_->identity();
}

void Trainer::add_objective_figures(const StepLoss& loss, NamedValues& figures) {
  NamedValues own;
  Communicator *replicas = &mesh_.replicas(), *stages = &mesh_.dense()["pp"].comm();
  if (answers_) own = answers_->take_figures(replicas, stages);
  if (teacher_) own = teacher_->take_figures(replicas, stages, loss.num_targets);
  std::ranges::move(own, std::back_inserter(figures));
}

void Trainer::require_teacher(const std::string& before, const std::string& checkpoint) const {
  MT_USER_CHECK(
      !teacher_ || before.empty() || before == teacher_identity_, ErrorClass::checkpoint,
      cat("objective.teacher: the weights are not those with which ", checkpoint,
          " was trained: then ", before, ", now ", teacher_identity_),
      "restore the teacher's folder, or start a new run from the student: model.init_from=RUN");
}

AnswerObjective::Passes Trainer::passes() {
  return {.interpreter = *interpreter_,
          .input_of =
              [this](const MicroBatch& batch) {
                return own_part(*session_.ctx, batch, mesh_.parallel());
              },
          .replicas = &mesh_.replicas(),
          .stages = &mesh_.dense()["pp"].comm()};
}

int64_t Trainer::begin_answers(std::span<const MicroBatch> batches) {
  prepare_reference(false);
  const int64_t records = mesh_.data().comm().all_reduce_value(answers_->records(batches));
  answers_->begin(batches, loader_->mismatched(),
                  scaler_.scale() / static_cast<double>(std::max<int64_t>(1, records)), passes());
  if (answers_->source() == ReferenceSource::adapters || answers_->needs_mismatched())
    buckets_->release_values();
  return records;
}

void Trainer::prepare_reference(bool keep) {
  if (!answers_ || has_reference_) return;
  has_reference_ = true;
  if (answers_->source() != ReferenceSource::precomputed) return;
  const Settings& s = recipe_.settings;
  const fs::path file = ReferenceLogps::file_in(recipe_.run_directory());
  const bool limited = step_limit_ >= 0;
  const int64_t valid = limited ? 0 : s.validation.steps * s.eval_global_batch();
  if (state_.step > 0) {
    answers_->reference() = ReferenceLogps::read(file, ranks_);
    const ReferenceLogps& there = answers_->reference();
    require_neighbors(Split::train, batches_.text(), there.train_batches);
    require_references(Split::train, train_samples_, there.train_samples, "train.steps");
    if (valid > 0) {
      require_neighbors(Split::valid, cat(s.eval_global_batch()), there.valid_batches);
      require_references(Split::valid, valid, there.valid_samples, "validation.steps");
    }
    return;
  }
  const LongOperation computing(ranks_.activity(), "computing the reference");
  const auto start = std::chrono::steady_clock::now();
  ReferenceLogps& made = answers_->reference();
  const int64_t samples =
      limited ? std::min(train_samples_, batches_.samples_until(step_limit_)) : train_samples_;
  made.train_samples = add_references(Split::train, samples, s.train.micro_batch_size);
  if (valid > 0) made.valid_samples = add_references(Split::valid, valid, s.eval_micro_batch());
  if (answers_->needs_mismatched()) {
    add_mismatched_references(Split::train, samples), made.train_samples = samples;
    add_mismatched_references(Split::valid, valid), made.valid_samples = valid;
    made.train_batches = batches_.text();
    if (valid > 0) made.valid_batches = cat(s.eval_global_batch());
  }
  buckets_->release_values();
  if (stops_now()) {  // the run ends before its first step
    has_reference_ = false;
    return;
  }
  if (keep && first()) {
    make_directories(file.parent_path());
    answers_->reference().write(file, dataset_->identity());
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  event(cat("reference log-probabilities computed in ", human_seconds(seconds.count())));
}

bool Trainer::stops_now() {
  return interrupted_ &&
         ranks_.all_reduce_value<int32_t>(interrupted_() ? 1 : 0, ReduceOp::max) != 0;
}

/// The number of samples of a split for which a reference is needed: `samples`, or all records once
/// if they repeat.
int64_t Trainer::samples_of_reference(Split split, int64_t samples) const {
  const int64_t epoch = dataset_->split(split, Dataset::kOneEpoch)->size();
  // A source that repeats its data has less than one epoch more than requested.
  const bool repeats = dataset_->split(split, samples)->size() < samples + epoch;
  return repeats ? std::min(samples, epoch) : samples;
}

void Trainer::require_references(Split split, int64_t samples, int64_t there,
                                 const char* setting) const {
  // The answers of other records change with every epoch.
  const int64_t wanted =
      answers_->needs_mismatched() ? samples : samples_of_reference(split, samples);
  MT_USER_CHECK(wanted <= there, ErrorClass::checkpoint,
                cat("the run's reference log-probabilities are those of ", counted(there, "sample"),
                    " of the ", mtrain::name(split), " split, and the run now reads ", wanted),
                cat("the reference was computed before the first step: restore ", setting,
                    " and the batch size with which the run began, or start a new run"));
}

/// Batches of other sizes have other records next to each other. `there`: empty if unknown, or if
/// the run had no batches of the split.
void Trainer::require_neighbors(Split split, const std::string& batches,
                                const std::string& there) const {
  MT_USER_CHECK(!answers_->needs_mismatched() || there.empty() || there == batches,
                ErrorClass::checkpoint,
                cat("the run's reference log-probabilities were computed for global batches of ",
                    there, " samples of the ", mtrain::name(split), " split, and now they have ",
                    batches, "; the objective compares each record with others of its batch"),
                cat("the reference was computed before the first step: restore the ",
                    split == Split::train ? "" : "validation's ",
                    "batch size with which the run began, or start a new run"));
}

/// Adds the references of a split. Each data-parallel rank runs its share; then all ranks get all
/// values. Returns the number of samples; incomplete if the run is to stop.
int64_t Trainer::add_references(Split split, int64_t samples, int64_t micro_batch) {
  const int64_t ranks = mesh_.data().size(), once = micro_batch * ranks,
                needed = samples_of_reference(split, samples),
                count = std::min(samples, (needed + once - 1) / once * once),
                stages = mesh_.pipeline().ranks(), each = count % (once * stages) == 0 ? stages : 1;
  const auto source = dataset_->split(split, samples);
  Loader loader(*source, {.seq_length = recipe_.settings.model.seq_length,
                          .micro_batch_size = micro_batch,
                          .num_micro_batches = each,
                          .dp_rank = mesh_.data().index(),
                          .dp_size = ranks,
                          .vocab_size = session_.valid_vocab});
  std::vector<int64_t> keys(static_cast<size_t>(count), 0);
  std::vector<double> values(static_cast<size_t>(2 * count), 0);
  interpreter_->forget_shapes();
  for (int64_t at = 0; at < count && !stops_now(); at += once * each)
    measure_references(loader.next(), keys, values);
  interpreter_->forget_shapes();
  share_references(keys, values);
  return needed;
}

/// Adds those of the mismatched answers of each global batch until `samples` samples are read: in
/// every epoch, other records are in a batch.
void Trainer::add_mismatched_references(Split split, int64_t samples) {
  if (samples == 0) return;
  const Settings& s = recipe_.settings;
  const bool train = split == Split::train;
  const auto source = dataset_->split(split, train ? train_samples_ : samples);
  std::vector<int64_t> keys;
  std::vector<double> values;
  std::optional<Loader> loader;
  interpreter_->forget_shapes();
  for (int64_t at = 0, step = 0; at < samples && !stops_now(); ++step) {
    LoaderConfig config =
        training_loader(train ? batches_.samples_at(step) : s.eval_global_batch());
    const int64_t size = train ? config.global_batch_size() : s.eval_global_batch();
    if (!train) {
      config.micro_batch_size = s.eval_micro_batch();
      config.num_micro_batches = size / (config.micro_batch_size * config.dp_size);
    }
    if (!loader || loader->config().global_batch_size() != size) {
      loader.reset();
      loader.emplace(*source, config, at);
    }
    at += size;
    keys.resize(static_cast<size_t>(at), 0), values.resize(2 * keys.size(), 0);
    loader->next();
    measure_references(loader->mismatched(), keys, values);
  }
  interpreter_->forget_shapes();
  share_references(keys, values);
}

/// Runs the model over micro-batches and fills in what this rank is to contribute, by sample.
void Trainer::measure_references(std::span<const MicroBatch> batches, std::vector<int64_t>& keys,
                                 std::vector<double>& values) {
  const bool counts =
      axis_index(mesh_.parallel().cp) == 0 &&
      mesh_.pipeline_rank() == mesh_.pipeline().map.rank(mesh_.pipeline().map.stages() - 1);
  std::vector<ReferenceLogps::Entry> found;
  answers_->measure(batches, passes(), found);
  size_t next = 0;
  for (const MicroBatch& batch : batches)
    for (int64_t row = 0; row < batch.rows; ++row, ++next) {
      const auto length = static_cast<size_t>(batch.seq_length),
                 first = static_cast<size_t>(row) * length,
                 index = static_cast<size_t>(batch.first_sample + row);
      if (!counts) continue;
      keys[index] = ReferenceLogps::key(std::span(batch.tokens).subspan(first, length),
                                        std::span(batch.targets).subspan(first, length));
      values[2 * index] = found[next].chosen, values[2 * index + 1] = found[next].rejected;
    }
}

/// Gives all ranks the values of all.
void Trainer::share_references(std::vector<int64_t>& keys, std::vector<double>& values) {
  for (Communicator* group : {&mesh_.replicas(), &mesh_.dense()["pp"].comm()})
    group->all_reduce(std::span(keys)), group->all_reduce(std::span(values));
  for (size_t i = 0; i < keys.size(); ++i)
    answers_->reference().add(keys[i], {.chosen = values[2 * i], .rejected = values[2 * i + 1]});
}

}  // namespace mtrain
