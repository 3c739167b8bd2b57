#include "mtrain/train/teacher.h"

#include <algorithm>
#include <numeric>

#include "mtrain/base/plugin_call.h"
#include "mtrain/base/text.h"
#include "mtrain/recipe/teacher.h"
#include "mtrain/train/base_weights.h"
#include "mtrain/train/vocabulary_fit.h"

namespace mtrain {
namespace {

constexpr const char* kTeacher = "objective.teacher";

/// Names the setting in what a reader of the teacher's folder says about model.init_from.
Error of_teacher(const Error& error) {
  std::string message = error.message();
  const std::string theirs = "model.init_from: ";
  if (message.starts_with(theirs)) message = message.substr(theirs.size());
  return {error.error_class(),
          message.starts_with(kTeacher) ? message : cat(kTeacher, ": ", message), error.hint()};
}

/// Throws if the teacher was not made for the student's tokenizer.
void require_vocabulary(const Session& student, const Recipe& teacher) {
  require_same_tokens(teacher, *student.tokenizer, student.plugins);
  const int64_t ids = student.tokenizer->vocab_size(), rows = teacher.settings.model.vocab_size;
  MT_USER_CHECK(rows == 0 || rows >= ids, ErrorClass::config,
                cat(kTeacher, ": the teacher's embedding has ", rows, " rows, and the tokenizer '",
                    student.recipe.settings.tokenizer.type, "' has ", ids, " ids"),
                "choose a teacher with the student's tokenizer and vocabulary");
}

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

/// Evaluates within a scope: no tape, no dropout.
class Evaluating {
 public:
  explicit Evaluating(ExecutionContext& ctx)
      : ctx_(ctx), off_(ctx, false), training_(std::exchange(ctx.training, false)) {}
  ~Evaluating() { ctx_.training = training_; }
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  ExecutionContext& ctx_;
  GradMode off_;
  bool training_;
};

}  // namespace

Teacher::Teacher(Session& student, const Session::Options& options)
    : student_(&student),
      settings_(distillation_of(student.recipe).value()),
      recipe_(std::make_unique<Recipe>(teacher_recipe(student.recipe, student.plugins))) {
  try {
    require_vocabulary(student, *recipe_);
    if (!has_last_stage(options)) return;
    session_ =
        std::make_unique<Session>(*recipe_, student.plugins,
                                  Session::Options{.initialise = options.initialise,
                                                   .ranks_here = options.ranks_here,
                                                   .local_rank = options.local_rank,
                                                   .planning = options.planning,
                                                   .parallel = options.parallel,
                                                   .shared_context = &student.ctx,
                                                   .seed_shift = 1,
                                                   .check_whole_model = options.check_whole_model});
    require_same_rows(student, *session_, options.parallel);
  } catch (const Error& error) {
    throw of_teacher(error);
  }
}

std::optional<Teacher> Teacher::of(Session& student, const Session::Options& options) {
  if (!distillation_of(student.recipe)) return std::nullopt;
  return std::make_optional<Teacher>(student, options);
}

void Teacher::attach(ModelInput& input) {
  collect();
  if (!session_) return;
  ExecutionContext& ctx = *student_->ctx;
  MemoryScope use(ctx.memory(), MemoryUse::activations);
  ModelInput own = input;
  own.targets_T = {}, own.logits_of_part = true, own.ahead.clear();
  Model& model = *session_->model;
  auto made = std::make_shared<Distillation>();
  {
    const Evaluating evaluating(ctx);
    made->teacher_TV =
        call_plugin(model, "forward()", [&] { return model.forward(own, {}); }).detach();
  }
  made->shared = std::min(student_->valid_vocab, session_->valid_vocab);
  made->temperature = static_cast<float>(settings_.temperature);
  made->beta = static_cast<float>(settings_.mixture());
  made->alpha = static_cast<float>(settings_.alpha);
  const Shape tokens{input.targets_T.numel()};
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
  return settings_.teacher.empty() ? "random"
                                   : base_identity(student_->recipe.resolve(settings_.teacher));
}

}  // namespace mtrain
