// Adapters between a run's parameters and the names of a Hugging Face folder.
#include <algorithm>
#include <cmath>
#include <map>

#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/base/text.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/checkpoint/hf_weights.h"
#include "mtrain/recipe/hf_source.h"
#include "mtrain/recipe/hf_write_config.h"
#include "mtrain/record/saved_step.h"
#include "mtrain/train/adapter_layout.h"
#include "mtrain/train/adapter_modules.h"
#include "mtrain/train/adapter_vectors.h"
#include "mtrain/train/adapter_whole.h"
#include "mtrain/train/coded_values.h"
#include "mtrain/train/model_options.h"
#include "mtrain/train/peft_adapter.h"
#include "mtrain/train/session.h"

namespace mtrain {
namespace {

/// The item whose name is `name`; otherwise one whose name is the same without its first part
/// ("model."), if neither has the other's exact name. `items.end()` if there is none.
template <class Items, class Name>
auto find_named(const Items& items, const std::string& name, const Name& name_of) {
  const auto exact = std::ranges::find(items, name, name_of);
  if (exact != items.end()) return exact;
  const std::string_view rest = without_root(name);
  auto is_root = [&](const std::string& other) {  // one of the two lacks the first part
    return other == rest || without_root(other) == name;
  };
  return std::ranges::find_if(items, is_root, name_of);
}

/// The norms of the rows of the weights in the folder of model.init_from; of those that are
/// quantized in training, of their dequantized values.
class BaseNorms {
 public:
  BaseNorms(const Recipe& recipe, PluginHost& plugins)
      : folder_(hf_source_folder(recipe)), weights_(folder_) {
    if (recipe.settings.peft.base != "same") coded_.emplace(recipe, plugins);
  }
  std::vector<float> of(const AdaptedTensor& tensor) const {
    const TensorInfo* t = weights_.find(tensor.name);
    if (!t) t = weights_.find(without_root(tensor.name));
    MT_USER_CHECK(t && t->shape.numel() == tensor.out * tensor.in, ErrorClass::checkpoint,
                  cat(folder_.path().string(), " has no tensor ", tensor.name, " [", tensor.out,
                      ", ", tensor.in, "]"),
                  "set model.init_from to the folder with which the adapters were trained");
    std::vector<float> values = weights_.floats(*t, 0, t->shape.numel());
    if (coded_ && coded_->has(t->name)) coded_->replace(t->name, values);
    return row_norms(values, tensor.out, tensor.in, tensor.transposed);
  }

 private:
  const HfDir folder_;
  const HfWeights weights_;
  std::optional<CodedValues> coded_;
};

/// Adds rows of a weight of the folder to the parameter of which they are rows, and gives the sums
/// the norms of `magnitude`, unless that is empty.
void add_rows(Parameter& p, size_t index, const HfPlacement& place, const std::vector<float>& delta,
              const std::vector<float>& magnitude) {
  change_values(p, [&](std::span<float> values) {
    for (const HfRows& run : place.rows)
      for (int64_t i = 0; run.parameter == index && i < run.rows; ++i) {
        const float* from = delta.data() + (run.tensor_row + i * run.tensor_step) * place.width;
        float* to = values.data() + (run.parameter_row + i) * place.width;
        for (int64_t c = 0; c < place.width; ++c) to[c] += from[c];
        if (magnitude.empty()) continue;
        const std::span<float> row(to, static_cast<size_t>(place.width));
        const float norm = row_norms(row, 1, place.width, false)[0],
                    wanted = magnitude[static_cast<size_t>(run.tensor_row + i * run.tensor_step)];
        for (float& x : row) x *= norm > 0 ? wanted / norm : 1;
      }
  });
}

std::vector<std::string> differing_modules(const PeftAdapter& adapter,
                                           const AdapterLayout& layout) {
  std::vector<std::string> out;
  for (const PeftModule& m : adapter.modules)
    if (find_named(layout.tensors, m.weight, &AdaptedTensor::name) == layout.tensors.end())
      out.push_back(cat(m.module(), " has no adapter by peft.targets"));
  for (const AdaptedTensor& t : layout.tensors)
    if (find_named(adapter.modules, t.name, &PeftModule::weight) == adapter.modules.end())
      out.push_back(cat(t.name, " has an adapter by peft.targets, but not in the folder"));
  return out;
}

}  // namespace

namespace {

/// peft's name of what the model is for; empty if it has none.
std::string task_of(const Recipe& recipe, PluginHost& plugins) {
  const std::string& objective =
      plugins.load(Model::kKind, recipe.settings.model.type).schema.objective;
  if (objective == Dataset::kSequenceToSequence) return "SEQ_2_SEQ_LM";
  const Node* labels = recipe.config.root().find("model.labels");
  if (labels && labels->is(NodeKind::integer) && labels->as_int() > 0) {
    const Node* of = recipe.config.root().find("model.labels_of");
    return of && of->as_text() == "token" ? "TOKEN_CLS" : "SEQ_CLS";
  }
  return objective == Dataset::kMaskedToken ? "" : "CAUSAL_LM";
}

}  // namespace

namespace {

/// The values with which adapters of peft.init=pissa start.
std::map<std::string, LayerValues> principal_starts(const Recipe& recipe, PluginHost& plugins,
                                                    const AdapterLayout& layout) {
  const Recipe here = recipe_on_cpu(recipe);
  Session session(here, plugins, {.new_adapters = false});
  auto values_of = [&](const std::string& name) {
    const Parameter& p = *session.parameters.find(name);
    std::vector<float> out(static_cast<size_t>(p.numel()));
    session.ctx->download(p.master, out.data());
    return out;
  };
  std::map<std::string, LayerValues> out;
  for (const AdaptedLayer& its : layout.layers)
    out[its.layer] = {values_of(cat(its.layer, ".lora_a")), values_of(cat(its.layer, ".lora_b"))};
  return out;
}

/// Takes `start` away from the adapter of the same weight: b · a - b₀ · a₀ is one of the sum of
/// their ranks, for the weight before its principal part was split off. As peft converts them.
void take_away(PeftModule& m, const PeftModule& start, bool rslora) {
  std::vector<float> b;
  for (int64_t row = 0; row < m.out; ++row) {
    b.insert(b.end(), m.b.begin() + row * m.rank, m.b.begin() + (row + 1) * m.rank);
    for (int64_t k = 0; k < start.rank; ++k)
      b.push_back(-start.b[static_cast<size_t>(row * start.rank + k)]);
  }
  m.b = std::move(b);
  m.a.insert(m.a.end(), start.a.begin(), start.a.end());
  m.start_rank = start.rank;
  m.rank += start.rank;
  m.alpha *= rslora ? std::sqrt(2.0) : 2.0;
}

}  // namespace

PeftAdapter adapter_of_run(const Recipe& recipe, PluginHost& plugins, const CheckpointStore& store,
                           int64_t step) {
  const PeftSection& peft = recipe.settings.peft;
  const AdapterLayout layout = adapter_layout(recipe, plugins);
  CheckpointReader reader(store, step);
  std::map<std::string, LayerValues> values;
  const bool dora = peft.type == "dora", ia3 = peft.type == "ia3";
  LayerVectors vectors;
  for (const AdaptedLayer& its : layout.layers) {
    if (ia3) {
      vectors[its.layer] = stored_values(reader, cat(its.layer, ".ia3_l"), its.vector);
      continue;
    }
    auto stored = [&](const char* name, const Shape& shape) {
      return stored_values(reader, cat(its.layer, ".", name), shape);
    };
    LayerValues& of_layer = values[its.layer];
    of_layer = {stored("lora_a", its.a), stored("lora_b", its.b)};
    if (dora) of_layer.magnitude = stored("lora_magnitude", Shape{its.out});
  }
  PeftAdapter out{.modules = {},
                  .whole = whole_of_run(recipe, layout, reader),
                  .rank = ia3 ? 0 : peft.rank,
                  .alpha = ia3 ? 0 : peft.alpha,
                  .dropout = peft.dropout,
                  .rslora = peft.rslora,
                  .dora = dora,
                  .ia3 = ia3,
                  .tied = true,
                  .base = hf_source_folder(recipe).string(),
                  .task = task_of(recipe, plugins)};
  std::optional<BaseNorms> norms;
  if (dora) norms.emplace(recipe, plugins);
  auto norms_of = [&](const AdaptedTensor& tensor) -> std::vector<float> {
    if (!dora) return {};
    const auto own = find_named(out.whole, tensor.name, &PeftWhole::tensor);  // trained itself
    return own == out.whole.end()
               ? norms->of(tensor)
               : row_norms(own->values, tensor.out, tensor.in, tensor.transposed);
  };
  for (const AdaptedTensor& tensor : layout.tensors)
    out.modules.push_back(ia3 ? vector_module(tensor, vectors)
                              : peft_module(tensor, values, peft, norms_of(tensor)));
  if (!peft.starts_principal()) return out;
  const std::map<std::string, LayerValues> starts = principal_starts(recipe, plugins, layout);
  for (size_t i = 0; i < out.modules.size(); ++i)
    take_away(out.modules[i], peft_module(layout.tensors[i], starts, peft, {}), peft.rslora);
  out.rank *= 2;
  out.alpha *= peft.rslora ? std::sqrt(2.0) : 2.0;
  return out;
}

namespace {

struct FittedValues {
  std::map<std::string, LayerValues> layers;
  LayerVectors vectors;
};

/// The values of the layers; Error(checkpoint) with everything in which the adapters differ from
/// those of the recipe. `norms`: null: magnitudes are not read.
FittedValues fitted_values(const PeftAdapter& adapter, const std::string& folder,
                           const Recipe& recipe, const AdapterLayout& layout,
                           const BaseNorms* norms, bool warns) {
  const PeftSection& peft = recipe.settings.peft;
  std::vector<std::string> faults = differing_modules(adapter, layout);
  for (std::string& fault : whole_faults(adapter, layout, recipe))
    faults.push_back(std::move(fault));
  const bool same_type = type_of(adapter) == peft.type;
  const std::string& from = recipe.settings.model.init_from;
  if (warns && !from.empty() && !is_saved_run(recipe.resolve(from)))
    warn_of_other_base(adapter, folder, hf_source_folder(recipe));
  if (warns && !adapter.ia3 && adapter.dropout != peft.dropout)
    log_warn("the adapters of ", printable(folder), " were trained with lora_dropout ",
             adapter.dropout, ", and peft.dropout is ", peft.dropout,
             "\n  help: to train on as before, set peft.dropout=", adapter.dropout);
  if (!same_type)
    faults.push_back(
        cat("they are adapters of ", type_of(adapter), ", and peft.type is ", peft.type));
  FittedValues out;
  std::map<std::string, LayerValues>& values = out.layers;
  for (const AdaptedLayer& its : layout.layers)
    if (adapter.ia3)
      out.vectors[its.layer].assign(static_cast<size_t>(its.vector.numel()), 0);
    else
      values[its.layer] = {std::vector<float>(static_cast<size_t>(its.a.numel())),
                           std::vector<float>(static_cast<size_t>(its.b.numel())),
                           std::vector<float>(static_cast<size_t>(its.out))};
  const PeftModule* split = nullptr;
  InputModules inputs;
  for (const PeftModule& m : adapter.modules) {
    const auto tensor = find_named(layout.tensors, m.weight, &AdaptedTensor::name);
    if (tensor == layout.tensors.end() || !same_type) continue;
    if (adapter.ia3) {
      if (std::string fault = take_vector(m, *tensor, out.vectors, inputs); !fault.empty())
        faults.push_back(std::move(fault));
      continue;
    }
    std::string fault = take_module(m, *tensor, peft, values);
    if (fault.empty() && m.rank < rank_of(*tensor)) split = &m;
    if (fault.empty() && norms && adapter.dora)
      fault = take_magnitude(m, *tensor, norms->of(*tensor), values);
    if (!fault.empty()) faults.push_back(std::move(fault));
  }
  constexpr size_t kMost = 12;
  if (faults.size() > kMost) {
    const size_t more = faults.size() - kMost;
    faults.resize(kMost);
    faults.push_back(cat("and ", more, " more"));
  }
  MT_USER_CHECK(faults.empty(), ErrorClass::checkpoint,
                cat("peft.init_from: the adapters of ", printable(folder),
                    " are not those of this recipe:\n  ", join(faults, "\n  ")),
                "set peft.type, targets, rank, alpha, rslora, feedforward and train as the "
                "folder's adapter_config.json has them");
  if (split && warns)
    log_warn("peft.init_from: adapters of fused weights, such as ", split->module(),
             ", are split into one for each matrix, with copies of lora_A: the initial function "
             "is the same, but training differs from peft");
  return out;
}

}  // namespace

void import_adapters(const PeftAdapter& adapter, const std::string& folder, const Recipe& recipe,
                     PluginHost& plugins, ParamList& parameters, bool warns) {
  const PeftSection& peft = recipe.settings.peft;
  const AdapterLayout layout = adapter_layout(recipe, plugins);
  std::optional<BaseNorms> norms;
  if (peft.type == "dora") norms.emplace(recipe, plugins);
  const FittedValues fitted =
      fitted_values(adapter, folder, recipe, layout, norms ? &*norms : nullptr, warns);
  for (const auto& [layer, vector] : fitted.vectors)
    if (Parameter* l = parameters.find(cat(layer, ".ia3_l"))) put_part(*l, vector);
  for (const auto& [layer, its] : fitted.layers) {
    if (Parameter* a = parameters.find(cat(layer, ".lora_a"))) put_part(*a, its.a);
    if (Parameter* b = parameters.find(cat(layer, ".lora_b"))) put_part(*b, its.b);
    if (Parameter* m = parameters.find(cat(layer, ".lora_magnitude"))) put_part(*m, its.magnitude);
  }
  import_whole(adapter, layout, parameters);
}

void check_adapters(const Recipe& recipe, PluginHost& plugins) {
  const PeftSection& peft = recipe.settings.peft;
  if (!peft.frozen()) return;
  const Recipe here = recipe_on_cpu(recipe);
  const Session built(here, plugins, {.initialise = false, .planning = true});
  if (peft.init_from.empty()) return;
  const fs::path folder = recipe.resolve(peft.init_from);
  fitted_values(read_peft_folder(folder), folder.string(), recipe, adapter_layout(recipe, plugins),
                nullptr, true);
}

namespace {

/// Writes the tensor among `left` that is this one, if any, to its parameters, and removes it.
void take_whole(const HfTensor& tensor, const HeadLayout& heads, bool tied,
                std::vector<const PeftWhole*>& left, Session& session,
                std::vector<std::string>& faults) {
  const auto found = find_named(left, tensor.name,
                                [](const PeftWhole* w) -> const std::string& { return w->tensor; });
  if (found == left.end()) return;
  const PeftWhole& whole = **found;
  left.erase(found);
  if (!tied && is_tied_table(session.recipe, tensor.parameters))
    return faults.push_back(untied_fault(whole.tensor));
  if (tensor.rule->vocabulary && whole.shape.rank() > 0 && whole.shape[0] < session.valid_vocab)
    return faults.push_back(cat(whole.tensor, " is ", whole.shape, ", and this model has ",
                                session.valid_vocab, " token ids"));
  std::vector<Shape> shapes;
  for (const std::string& name : tensor.parameters) {
    shapes.push_back(session.parameters.find(name)->global);
    if (tensor.rule->vocabulary && whole.shape.rank() > 0)
      shapes.back()[0] = std::min(shapes.back()[0], whole.shape[0]);
  }
  const HfPlacement place = hf_placement(tensor, heads, shapes);
  if (whole.shape != place.shape)
    return faults.push_back(
        cat(whole.tensor, " is ", whole.shape, ", and this model's is ", place.shape));
  for (size_t i = 0; i < tensor.parameters.size(); ++i)
    put_rows(*session.parameters.find(tensor.parameters[i]), i, place, whole.values);
}

void scale_parameters(const HfTensor& tensor, const HfPlacement& place, const PeftModule& m,
                      Session& session) {
  for (size_t i = 0; i < tensor.parameters.size(); ++i)
    scale_parameter(*session.parameters.find(tensor.parameters[i]), i, place, m);
}

/// Multiplies a bias by the gains of its weight, if this tensor is one.
void scale_bias(const HfTensor& tensor, const HeadLayout& heads, const PeftAdapter& adapter,
                Session& session) {
  for (const PeftModule& m : adapter.modules) {
    if (m.gains.empty() || m.of_input) continue;
    const std::string bias = bias_of(m);
    if (bias != tensor.name && without_root(bias) != tensor.name &&
        bias != without_root(tensor.name))
      continue;
    std::vector<Shape> shapes;
    for (const std::string& name : tensor.parameters)
      shapes.push_back(session.parameters.find(name)->global);
    scale_parameters(tensor, hf_placement(tensor, heads, shapes), m, session);
  }
}

}  // namespace

void add_adapters(const PeftAdapter& adapter, const std::string& folder, Session& session) {
  const Recipe& recipe = session.recipe;
  const SchemaCatalog catalog = schema_catalog(session.plugins);
  const HfFamilies families = HfFamilies::read(session.plugins.folders());
  const HfModel model(recipe.config.root().at("model"),
                      *catalog.component("model", recipe.settings.model.type));
  const HfFamily& family = hf_family_for_export(families, "", hf_source_config(recipe), model);
  std::vector<const PeftModule*> left;
  for (const PeftModule& m : adapter.modules) left.push_back(&m);
  std::vector<const PeftWhole*> whole;
  for (const PeftWhole& w : adapter.whole) whole.push_back(&w);
  std::vector<std::string> faults;
  for (const HfTensor& tensor : hf_tensors(family, model)) {
    take_whole(tensor, model.heads(), adapter.tied, whole, session, faults);
    scale_bias(tensor, model.heads(), adapter, session);
    const auto found = find_named(
        left, tensor.name, [](const PeftModule* m) -> const std::string& { return m->weight; });
    if (found == left.end()) continue;
    const PeftModule& m = **found;
    left.erase(found);
    std::vector<Shape> shapes;
    for (const std::string& name : tensor.parameters)
      shapes.push_back(session.parameters.find(name)->global);
    const HfPlacement place = hf_placement(tensor, model.heads(), shapes);
    const int64_t height = place.stacks * place.height;
    const bool vector = !m.gains.empty();
    const bool fits = vector ? std::ssize(m.gains) == (m.of_input ? place.width : height)
                             : m.out == height && m.in == place.width;
    if (!fits) {
      const std::string its = vector ? cat("a dimension of ", m.gains.size())
                                     : cat("a weight [", m.out, ", ", m.in, "]");
      faults.push_back(cat(m.module(), " is for ", its, ", and this model's weight is [", height,
                           ", ", place.width, "]"));
      continue;
    }
    if (vector) {
      scale_parameters(tensor, place, m, session);
      continue;
    }
    std::vector<float> delta(static_cast<size_t>(m.out * m.in), 0);
    add_product(m, delta);
    for (size_t i = 0; i < tensor.parameters.size(); ++i)
      add_rows(*session.parameters.find(tensor.parameters[i]), i, place, delta, m.magnitude);
  }
  for (const auto* m : left) faults.push_back(cat(m->module(), " is no weight of this model"));
  for (const PeftWhole* w : whole) faults.push_back(cat(w->tensor, " is no tensor of this model"));
  MT_USER_CHECK(faults.empty(), ErrorClass::checkpoint,
                cat("the adapters of ", printable(folder), " do not fit this model:\n  ",
                    join(faults, "\n  ")),
                "give the folder of the model for which they were trained");
}

}  // namespace mtrain
