#include "hf_subject.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "mtrain/base/error.h"
#include "mtrain/cpu/cpu_backend.h"
#include "mtrain/recipe/hf_config.h"
#include "mtrain/recipe/recipe.h"
#include "mtrain/tensor/device_backend.h"
#include "mtrain/train/hf_import.h"
#include "roots.h"

namespace mtrain::golden {
namespace {

struct Built {
  std::string type;
  Node section = Node::map();
  int64_t vocab_size = 0, max_positions = 0;
};

Built read_settings(const std::string& text, const SubjectOptions& options, const HfFamily& family,
                    const HfFamilies& families, PluginHost& plugins) {
  const std::string& file = options.config;
  auto config = nlohmann::json::parse(text);
  Built built{.type = family.plugin, .vocab_size = config.at("vocab_size")};
  built.max_positions = config.value(
      "n_positions",
      config.value("max_position_embeddings", config.value("max_seq_len", int64_t{0})));
  const Schema& schema = plugins.load(Model::kKind, built.type).schema;
  const SchemaCatalog catalog = schema_catalog(plugins);
  HfTarget target{.families = families,
                  .plugin = built.type,
                  .schemas = {&schema},
                  .schema_of = model_schemas(catalog),
                  .seq_length = options.seq_length ? options.seq_length : built.max_positions,
                  .ignored = {"vocab_size"}};
  const HfFolderConfig read = read_hf_config(text, file, target);
  std::string refused;
  for (const HfRefusal& refusal : read.refused) refused += cat("\n  ", refusal.what);
  if (!refused.empty())
    throw Error(ErrorClass::config, cat(file, " is refused:", refused),
                "the family's file says what is read");
  for (auto& setting : read.settings)
    built.section.set(setting.path.substr(std::string("model.").size()), setting.value);
  return built;
}

std::vector<float> host_values(ExecutionContext& ctx, const Tensor& t) {
  std::vector<float> values(static_cast<size_t>(t.numel()));
  ctx.download(t, values.data());
  return values;
}

}  // namespace

std::string backend_under_test() {
  const char* name = std::getenv("MTRAIN_TEST_BACKEND");
  return name ? name : "cpu";
}

std::unique_ptr<Backend> make_backend(PluginHost& plugins) {
  std::string name = backend_under_test();
  if (name == "cpu") return make_cpu_backend(2);
  BackendContext context;
  auto made = plugins.make<DeviceBackend>(name, Node::map(), context);
  Probe probe = made->probe();
  if (probe.devices == 0)
    throw Error(ErrorClass::config, cat("MTRAIN_TEST_BACKEND=", name, ": ", probe.reason),
                made->remedy());
  return made;
}

Subject::Subject(const fs::path& folder, SubjectOptions options) {
  // families/ describes models that are only in this folder.
  PluginHost plugins({testing::source_root() / "tests/golden/families",
                      testing::build_root() / "lib/mtrain/plugins"});
  backend_ = make_backend(plugins);
  ctx_ = std::make_unique<ExecutionContext>(*backend_);
  HfDir source(folder);
  const auto text = source.text(options.config);
  if (!text)
    throw Error(ErrorClass::checkpoint, cat(source.path().string(), " has no ", options.config));
  const HfFamilies families = HfFamilies::read(plugins.folders());
  std::string model_type = nlohmann::json::parse(*text).at("model_type").get<std::string>();
  const HfFamily* family = families.find(model_type, "");
  if (!family)
    throw Error(ErrorClass::config,
                cat(folder.string(), ": no family describes the model type '", model_type, "'"));
  family_ = *family;
  Built built = read_settings(*text, options, family_, families, plugins);
  if (options.seq_length) built.max_positions = options.seq_length;
  decoder_ = options.decoder;
  if (decoder_ > 0) built.section.set("decoder_seq_length", Node::integer(decoder_));
  section_ = built.section;
  schema_ = plugins.load(Model::kKind, built.type).schema;
  build_.emplace(BuildSettings{.ctx = *ctx_,
                               .parameters = parameters_,
                               .dtype = options.dtype,
                               .initialise = false,
                               .blocks = &blocks_});
  blocks_.full = options.recompute;
  ModelContext context{.scope = Scope(*build_),
                       .stage = {},
                       .vocab_size = built.vocab_size,
                       .valid_vocab = built.vocab_size,
                       .max_positions = built.max_positions};
  model_ = plugins.make<Model>(built.type, built.section, context);
  import_hf_weights(source, family_, HfModel(section_, schema_), parameters_);
  parameters_.allocate_gradients(*ctx_);
  Node adamw = Node::map();
  adamw.set("beta1", Node::number(0.9));
  adamw.set("beta2", Node::number(0.95));
  adamw.set("eps", Node::number(1e-8));
  OptimizerContext optimizer_context{*ctx_};
  optimizer_ = plugins.make<Optimizer>("adamw", adamw, optimizer_context);
  optimizer_state_.emplace(*ctx_, parameters_, *optimizer_);
  interpreter_.emplace(*ctx_, *model_, parameters_);
}

Subject::~Subject() = default;

ModelInput Subject::input(const Rows& ids, const Rows& wanted) {
  std::vector<int32_t> tokens, positions, targets, bounds = {0};
  for (const auto& row : ids) {
    if (decoder_ > 0) {
      const auto begin = static_cast<int32_t>(tokens.size()),
                 encoder = static_cast<int32_t>(row.size()) - static_cast<int32_t>(decoder_);
      int32_t text = encoder;
      while (text > 1 && row[static_cast<size_t>(text) - 1] == 0) --text;
      bounds.push_back(begin + text);
      if (text < encoder) bounds.push_back(begin + encoder);
    }
    for (size_t t = 0; t < row.size(); ++t) positions.push_back(static_cast<int32_t>(t));
    tokens.insert(tokens.end(), row.begin(), row.end());
    bounds.push_back(static_cast<int32_t>(tokens.size()));
  }
  for (const auto& row : wanted) targets.insert(targets.end(), row.begin(), row.end());
  Shape shape{static_cast<int64_t>(tokens.size())};
  ModelInput out;
  out.tokens_T = ctx_->from_host<int32_t>(tokens, shape);
  out.positions_T = ctx_->from_host<int32_t>(positions, shape);
  if (!targets.empty()) out.targets_T = ctx_->from_host<int32_t>(targets, shape);
  out.bounds = std::make_shared<const std::vector<int32_t>>(std::move(bounds));
  return out;
}

std::vector<float> Subject::logits(const Rows& rows) {
  GradMode off(*ctx_, false);
  Tensor out = model_->forward(input(rows, {}), {});
  Tensor wide = ctx_->empty(out.shape(), DType::f32);
  ctx_->copy(wide, out);
  return host_values(*ctx_, wide);
}

std::vector<float> Subject::logits_in_pieces(const std::vector<int32_t>& row,
                                             const std::vector<int64_t>& pieces) {
  GradMode off(*ctx_, false);
  KeyValueCache cache(std::ssize(row));
  std::vector<float> out;
  for (int64_t piece : pieces) {
    const auto begin = row.begin() + cache.tokens();
    ModelInput some = input({{begin, begin + piece}}, {});
    std::vector<int32_t> positions(static_cast<size_t>(piece));
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(cache.tokens()));
    some.positions_T = ctx_->from_host<int32_t>(positions, {piece});
    cache.read({{.text = 0, .tokens = piece}});
    some.cache = &cache;
    Tensor logits = model_->forward(some, {});
    Tensor wide = ctx_->empty(logits.shape(), DType::f32);
    ctx_->copy(wide, logits);
    const std::vector<float> values = host_values(*ctx_, wide);
    out.insert(out.end(), values.begin(), values.end());
    cache.advance();
  }
  return out;
}

Batch next_tokens(const Rows& rows) {
  Batch out;
  for (const auto& row : rows) {
    out.ids.emplace_back(row.begin(), row.end() - 1);
    out.targets.emplace_back(row.begin() + 1, row.end());
  }
  return out;
}

namespace {
int64_t target_count(const Rows& targets) {
  int64_t count = 0;
  for (const auto& row : targets)
    count += std::count_if(row.begin(), row.end(), [](int32_t id) { return id >= 0; });
  return count;
}
}  // namespace

double Subject::evaluate(const Batch& batch) {
  StepLoss loss = interpreter_->evaluate(input(batch.ids, batch.targets));
  return loss.loss_sum / static_cast<double>(target_count(batch.targets));
}

double Subject::forward_backward(const Batch& batch, int64_t rows_per_micro) {
  auto rows = static_cast<int64_t>(batch.ids.size());
  MT_CHECK(rows % rows_per_micro == 0, rows, " rows");
  Program program = one_f_one_b({.stages = 1, .micro_batches = rows / rows_per_micro})[0];
  auto input_of = [&](int64_t micro) {
    auto part = [&](const Rows& all) {
      auto first = all.begin() + micro * rows_per_micro;
      return Rows(first, first + rows_per_micro);
    };
    return input(part(batch.ids), part(batch.targets));
  };
  return interpreter_->run(program, input_of, target_count(batch.targets), 1).mean();
}

void Subject::update(const Recipe& recipe) {
  optimizer_state_->update({.lr = recipe.lr,
                            .weight_decay = recipe.weight_decay,
                            .clip = recipe.clip,
                            .grad_norm = grad_norm(),
                            .step = ++updates_});
}

Tensors Subject::parameters() const { return to_hf(false); }
Tensors Subject::gradients() const { return to_hf(true); }

// The family's table read backwards.
Tensors Subject::to_hf(bool gradients) const {
  const HfModel settings(section_, schema_);
  Tensors out;
  for (const HfTensor& tensor : hf_tensors(family_, settings)) {
    if (tensor.rule->buffer) continue;
    std::vector<Shape> shapes;
    std::vector<std::vector<float>> values;
    for (const std::string& name : tensor.parameters) {
      const Parameter* p = const_cast<ParamList&>(parameters_).find(name);
      MT_CHECK(p != nullptr, name);
      shapes.push_back(p->global);
      values.push_back(host_values(*ctx_, gradients ? p->main_grad : p->master));
    }
    const HfPlacement place = hf_placement(tensor, settings.heads(), shapes);
    std::vector<float>& to = out[tensor.name];
    to.resize(static_cast<size_t>(place.shape.numel()));
    std::vector<bool> filled(to.size());
    for (const HfRows& run : place.rows)
      for (int64_t r = 0; r < run.rows; ++r)
        for (int64_t c = 0; c < place.width; ++c) {
          const auto at =
              static_cast<size_t>(place.element(run.tensor_row + r * run.tensor_step, c));
          MT_CHECK(!filled[at], tensor.name, " is covered twice");
          filled[at] = true;
          to[at] =
              values[run.parameter][static_cast<size_t>((run.parameter_row + r) * place.width + c)];
        }
    for (size_t i = 0; i < filled.size(); ++i)
      MT_CHECK(filled[i], tensor.name, " has a hole at ", i);
  }
  return out;
}

std::vector<float> floats(const TensorInfo& tensor) {
  MT_CHECK(tensor.dtype == DType::f32, tensor.name, " is ", tensor.file_dtype);
  std::vector<float> values(tensor.data.size() / sizeof(float));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

Rows id_rows(const TensorInfo& tensor) {
  MT_CHECK(tensor.dtype == DType::i64 && tensor.shape.rank() == 2, tensor.name);
  std::vector<int64_t> ids(static_cast<size_t>(tensor.shape.numel()));
  std::memcpy(ids.data(), tensor.data.data(), tensor.data.size());
  Rows rows;
  for (int64_t r = 0; r < tensor.shape[0]; ++r)
    rows.emplace_back(ids.begin() + r * tensor.shape[1], ids.begin() + (r + 1) * tensor.shape[1]);
  return rows;
}

Tensors read_tensors(const fs::path& file) {
  SafetensorsFile source(file);
  Tensors out;
  for (const auto& tensor : source.tensors()) out[tensor.name] = floats(tensor);
  return out;
}

}  // namespace mtrain::golden
