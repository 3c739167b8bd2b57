#include "mtrain/train/teacher.h"

#include <algorithm>
#include <numeric>

#include "mtrain/base/hash.h"
#include "mtrain/base/plugin_call.h"
#include "mtrain/base/text.h"
#include "mtrain/recipe/teacher.h"
#include "mtrain/train/base_weights.h"
#include "mtrain/train/vocabulary_fit.h"

namespace mtrain {
namespace {

constexpr const char* kTeacher = "objective.teacher";

/// A sharded vocabulary is divided by rows, so the rows of both must be the same ids on each rank.
void require_same_rows(const Session& student, const Session& teacher,
                       const ParallelContext* parallel) {
  const bool sharded = parallel && active_axis(parallel->tp);
  MT_USER_CHECK(!sharded || student.vocab_size == teacher.vocab_size, ErrorClass::config,
                cat(kTeacher, ": the embedding of the teacher has ", teacher.vocab_size,
                    " rows and that of the student ", student.vocab_size,
                    ", so dist.tp would divide them differently"),
                "set dist.tp=1; or give the student as many rows: model.vocab_size, or with "
                "model.init_from model.init_vocab=resize");
}

/// Whether this rank has the stage that learns the teacher's distribution.
bool has_last_stage(const Session::Options& options) {
  if (!options.pipeline) return true;
  const auto mine = options.pipeline->map.stages_of(options.pipeline_rank);
  MT_CHECK(mine.size() == 1, "a teacher with ", mine.size(), " stages of the student on a rank");
  return mine.front() + 1 == options.pipeline->map.stages();
}

double sum_of(ExecutionContext& ctx, const Tensor& values) {
  std::vector<float> all(static_cast<size_t>(values.numel()));
  ctx.download(values, all.data());
  return std::accumulate(all.begin(), all.end(), 0.0);
}

/// The rows of the tokens that this rank of cp holds.
TopKRows own_rows(const TopKRows& all, const ModelInput& input) {
  if (!input.cp_slice) return all;
  TopKRows out(all.k, input.cp_slice->rows());
  int64_t to = 0;
  for (const RowRange& range : input.cp_slice->tokens())
    for (int64_t i = 0; i < range.rows; ++i) out.set(to++, all, range.first + i);
  return out;
}

}  // namespace

Error of_teacher(const Error& error) {
  std::string message = error.message();
  const std::string theirs = "model.init_from: ";
  if (message.starts_with(theirs)) message = message.substr(theirs.size());
  return {error.error_class(),
          message.starts_with("objective.") ? message : cat(kTeacher, ": ", message), error.hint()};
}

void require_vocabulary(const Recipe& student, const Recipe& teacher, const Tokenizer& tokenizer,
                        PluginHost& plugins) {
  require_same_tokens(teacher, tokenizer, plugins);
  const int64_t ids = tokenizer.vocab_size(), rows = teacher.settings.model.vocab_size;
  MT_USER_CHECK(rows == 0 || rows >= ids, ErrorClass::config,
                cat(kTeacher, ": the teacher's embedding has ", rows, " rows, and the tokenizer '",
                    student.settings.tokenizer.type, "' has ", ids, " ids"),
                "choose a teacher with the student's tokenizer and vocabulary");
}

int64_t predicted_ids(const Settings& settings, const Tokenizer& tokenizer) {
  return settings.model.vocab_size > 0 ? vocabulary_rows(settings, tokenizer)
                                       : tokenizer.vocab_size();
}

void require_top_k(int64_t k, int64_t shared) {
  MT_USER_CHECK(k <= shared, ErrorClass::config,
                cat("objective.top_k=", k, ", but student and teacher have ", shared, " ids"),
                cat("set objective.top_k to at most ", shared,
                    ", or to 0 for the whole distribution of a teacher in each step"));
}

TeacherIdentity stored_identity(const Recipe& student, const Tokenizer& tokenizer) {
  const DistillationSettings settings = distillation_of(student).value();
  return {
      .teacher = settings.teacher.empty() ? "" : base_identity(student.resolve(settings.teacher)),
      .tokenizer = sha256(tokenizer.identity()),
      .k = settings.top_k,
      .temperature = settings.temperature,
      .seq_length = student.settings.model.seq_length};
}

Teacher::Teacher(Session& student, const Session::Options& options)
    : student_(&student),
      settings_(distillation_of(student.recipe).value()),
      here_(has_last_stage(options)),
      shared_(student.valid_vocab) {
  try {
    const auto folder = teacher_store_folder(student.recipe);
    if (!folder)
      build(options);
    else if (!options.planning)
      open_store(*folder);
    require_top_k(settings_.top_k, shared_);
  } catch (const Error& error) {
    throw of_teacher(error);
  }
}

void Teacher::build(const Session::Options& options) {
  recipe_ = std::make_unique<Recipe>(teacher_recipe(student_->recipe, student_->plugins));
  require_vocabulary(student_->recipe, *recipe_, *student_->tokenizer, student_->plugins);
  shared_ = std::min(shared_, predicted_ids(recipe_->settings, *student_->tokenizer));
  if (!here_) return;
  session_ =
      std::make_unique<Session>(*recipe_, student_->plugins,
                                Session::Options{.initialise = options.initialise,
                                                 .ranks_here = options.ranks_here,
                                                 .local_rank = options.local_rank,
                                                 .planning = options.planning,
                                                 .parallel = options.parallel,
                                                 .shared_context = &student_->ctx,
                                                 .seed_shift = 1,
                                                 .check_whole_model = options.check_whole_model});
  require_same_rows(*student_, *session_, options.parallel);
  vocabulary_ = options.parallel ? options.parallel->tp : nullptr;
}

void Teacher::open_store(const fs::path& folder) {
  store_ = std::make_unique<TeacherStore>(folder,
                                          stored_identity(student_->recipe, *student_->tokenizer));
  MT_USER_CHECK(store_->samples() > 0, ErrorClass::config,
                cat("objective.store: ", printable(folder.string()), " has no distributions"),
                "give objective.teacher, of which mtrain train computes them");
  MT_USER_CHECK(store_->identity().vocabulary <= shared_, ErrorClass::config,
                cat("objective.store: ", printable(folder.string()), " has distributions over ",
                    store_->identity().vocabulary, " ids, and the student has ", shared_),
                "give the student as many rows: model.vocab_size; or choose another folder");
  shared_ = store_->identity().vocabulary;
}

std::optional<Teacher> Teacher::of(Session& student, const Session::Options& options) {
  if (!distillation_of(student.recipe)) return std::nullopt;
  return std::make_optional<Teacher>(student, options);
}

Tensor Teacher::logits_of(const ModelInput& input) {
  ModelInput own = input;
  own.targets_T = {}, own.logits_of_part = true, own.ahead.clear();
  Model& model = *session_->model;
  const Evaluating evaluating(*student_->ctx);
  return call_plugin(model, "forward()", [&] { return model.forward(own, {}); }).detach();
}

TopKRows Teacher::top_of(const ModelInput& input, const MicroBatch& batch) {
  if (store_) return own_rows(store_->read(batch), input);
  if (!session_) return TopKRows(settings_.top_k, input.targets_T.numel());  // a plan with a store
  return most_likely(logits_of(input), shared_, settings_.top_k, settings_.temperature, vocabulary_,
                     session_->vocab_size);
}

void Teacher::attach(ModelInput& input, const MicroBatch& batch) {
  collect();
  if (!here_) return;
  ExecutionContext& ctx = *student_->ctx;
  MemoryScope use(ctx.memory(), MemoryUse::activations);
  const Shape tokens{input.targets_T.numel()};
  auto made = std::make_shared<Distillation>();
  if (settings_.top_k == 0) {
    made->teacher_TV = logits_of(input);
  } else {
    const TopKRows top = top_of(input, batch);
    const Shape rows{tokens[0], settings_.top_k};
    made->ids_TK = ctx.from_host<int32_t>(top.ids, rows);
    made->log_probabilities_TK = ctx.from_host<float>(top.log_probabilities, rows);
    made->log_rest_T = ctx.from_host<float>(top.log_rest, tokens);
  }
  made->shared = shared_;
  made->temperature = static_cast<float>(settings_.temperature);
  made->beta = static_cast<float>(settings_.mixture());
  made->alpha = static_cast<float>(settings_.alpha);
  made->divergence_T = ctx.empty(tokens, DType::f32);
  made->cross_entropy_T = ctx.empty(tokens, DType::f32);
  last_ = made;
  input.distillation = std::move(made);
}

/// Adds up the parts of the last micro-batch, whose losses the head has computed.
void Teacher::collect() {
  const auto done = std::exchange(last_, nullptr);
  ExecutionContext& ctx = *student_->ctx;
  if (!done || !ctx.backend().computes()) return;
  divergence_ += sum_of(ctx, done->divergence_T);
  cross_entropy_ += sum_of(ctx, done->cross_entropy_T);
}

std::vector<std::pair<std::string, double>> Teacher::take_figures(Communicator* replicas,
                                                                  Communicator* stages,
                                                                  int64_t tokens) {
  collect();
  std::vector<double> sums = {std::exchange(divergence_, 0.0), std::exchange(cross_entropy_, 0.0)};
  for (Communicator* ranks : {replicas, stages})
    if (ranks) ranks->all_reduce(std::span(sums));
  if (tokens == 0) return {};
  const auto count = static_cast<double>(tokens);
  return {{"kl", sums[0] / count}, {"ce_loss", sums[1] / count}};
}

std::string Teacher::identity() const {
  if (store_) return store_->identity().teacher;
  return settings_.teacher.empty() ? "random"
                                   : base_identity(student_->recipe.resolve(settings_.teacher));
}

}  // namespace mtrain
