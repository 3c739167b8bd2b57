#include "mtrain/train/adapter_layout.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "mtrain/base/error.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/checkpoint/hf_weights.h"
#include "mtrain/recipe/hf_source.h"
#include "mtrain/recipe/hf_tensors.h"
#include "mtrain/recipe/hf_write_config.h"
#include "mtrain/train/model_options.h"
#include "mtrain/train/session.h"

namespace mtrain {
namespace {

/// The layers of the whole model that have adapters.
class Layers {
 public:
  Layers(const Recipe& recipe, PluginHost& plugins)
      : recipe_(recipe_on_cpu(recipe)),
        session_(recipe_, plugins, {.initialise = false, .planning = true}),
        plan_(*adapter_plan(recipe.settings)) {}

  struct Layer {
    AdaptedLayer sizes;
    std::vector<int64_t> matrix_of;  // for each row of the weight; -1: without adapter
    bool found = false;              // in a tensor of the family
  };
  /// Null if the parameter has no adapters.
  Layer* of(const std::string& parameter) {
    constexpr std::string_view kWeight = ".weight";
    if (!parameter.ends_with(kWeight)) return nullptr;
    const std::string layer = parameter.substr(0, parameter.size() - kWeight.size());
    const Parameter *first = session_.parameters.find(cat(layer, ".lora_a")),
                    *vector = session_.parameters.find(cat(layer, ".ia3_l"));
    if (!first && !vector) return nullptr;
    auto [place, added] = layers_.try_emplace(layer);
    Layer& out = place->second;
    if (!added) return &out;
    const Parameter& weight = *session_.parameters.find(parameter);
    const Shape a = first ? first->global : Shape{},
                b = first ? session_.parameters.find(cat(layer, ".lora_b"))->global : Shape{};
    if (weight.global.rank() == 3) {  // experts, or one adapter for all of them
      out.sizes = {layer, b[0] * b[1], weight.global[2], {}, a, b};
      out.sizes.sizes.assign(static_cast<size_t>(a[0]), plan_.size_of(layer, ""));
      for (int64_t row = 0; row < weight.global[0] * weight.global[1]; ++row)
        out.matrix_of.push_back(a[0] == 1 ? 0 : row / weight.global[1]);
      return &out;
    }
    const std::vector<size_t> matrices = plan_.matrices_of(layer, weight.matrices);
    out.sizes = {layer, weight.global[0], weight.global[1], {}, a, b};
    for (size_t m : matrices)
      out.sizes.sizes.push_back(plan_.size_of(layer, weight.matrices[m].name));
    if (vector)
      out.sizes.vector = vector->global,
      out.sizes.of_input = plan_.scales_input(layer, weight.matrices);
    out.matrix_of.assign(static_cast<size_t>(weight.global[0]), -1);
    for (size_t m = 0; m < matrices.size(); ++m)
      for (const RowRange& range : weight.matrices[matrices[m]].rows)
        std::fill_n(out.matrix_of.begin() + range.first, range.rows, static_cast<int64_t>(m));
    return &out;
  }
  Shape shape(const std::string& parameter) {
    const Parameter* p = session_.parameters.find(parameter);
    return p ? p->global : Shape{};
  }
  /// Whether it is trained, and no adapter.
  bool trains(const std::string& parameter) {
    const Parameter* p = session_.parameters.find(parameter);
    if (!p || !p->trained || p->adapter) return false;
    found_.insert(parameter);
    return true;
  }
  /// All of them; Error(config) if one has not been found.
  std::vector<AdaptedLayer> all(const HfFamily& family) {
    std::vector<AdaptedLayer> out;
    for (const Parameter& p : session_.parameters.all()) {
      if (!p.name.ends_with(".lora_a") && !p.name.ends_with(".ia3_l")) continue;
      const std::string layer = p.name.substr(0, p.name.rfind('.'));
      const Layer& its = *of(layer + ".weight");
      MT_USER_CHECK(
          its.found, ErrorClass::config,
          cat("the family ", family.model_type, " has no tensor for the weight of ", layer),
          "leave this weight out of peft.targets");
      out.push_back(its.sizes);
    }
    for (const Parameter& p : session_.parameters.all())
      MT_USER_CHECK(!p.trained || p.adapter || found_.contains(p.name), ErrorClass::config,
                    cat("the family ", family.model_type, " has no tensor for ", p.name),
                    "leave this parameter out of peft.train");
    return out;
  }

 private:
  const Recipe recipe_;
  Session session_;
  AdapterPlan plan_;
  std::map<std::string, Layer> layers_;
  std::set<std::string> found_;  // trained parameters that are in a tensor
};

AdaptedTensor adapted_tensor(const HfTensor& tensor, const HfPlacement& place,
                             const std::vector<Layers::Layer*>& layers) {
  AdaptedTensor out{.name = tensor.name,
                    .out = place.stacks * place.height,
                    .in = place.width,
                    .transposed = place.transposed,
                    .stacks = place.stacks,
                    .experts = false,
                    .of_input = false,
                    .blocks = {},
                    .rows = {}};
  for (const HfRows& run : place.rows) {
    Layers::Layer* layer = layers[run.parameter];
    for (int64_t i = 0; layer && i < run.rows; ++i) {
      layer->found = true;
      const int64_t row = run.parameter_row + i,
                    matrix = layer->matrix_of[static_cast<size_t>(row)];
      if (matrix < 0) continue;
      const AdaptedLayer& sizes = layer->sizes;
      const AdaptedTensor::Block block{
          .layer = sizes.layer,
          .matrix = matrix,
          .size = sizes.sizes[static_cast<size_t>(matrix)],
          .width = sizes.b.rank() > 0 ? sizes.b[sizes.b.rank() - 1] : 0};
      auto at = std::ranges::find(out.blocks, block);
      if (at == out.blocks.end()) at = out.blocks.insert(at, block);
      out.experts = out.experts || layer->sizes.a.rank() == 3;
      out.of_input = layer->sizes.of_input;
      out.rows.push_back({run.tensor_row + i * run.tensor_step,
                          static_cast<size_t>(at - out.blocks.begin()), row % layer->sizes.out});
    }
  }
  return out;
}

/// The tensor, if some of its parameters are trained.
std::optional<TrainedTensor> trained_tensor(const HfTensor& tensor, const HeadLayout& heads,
                                            Layers& layers, const HfWeights& folder) {
  TrainedTensor out{.name = tensor.name,
                    .parameters = tensor.parameters,
                    .shapes = {},
                    .trained = {},
                    .place = {},
                    .copies = {}};
  std::vector<Shape> shapes;
  bool any = false;
  for (const std::string& name : tensor.parameters) {
    out.trained.push_back(layers.trains(name));
    out.shapes.push_back(layers.shape(name));
    any = any || out.trained.back();
  }
  if (!any) return std::nullopt;
  shapes = out.shapes;
  const TensorInfo* there = folder.find(tensor.name);
  if (!there) there = folder.find(without_root(tensor.name));
  if (tensor.rule->vocabulary && there && there->shape.rank() > 0)  // without padding
    for (Shape& shape : shapes) shape[0] = std::min(shape[0], there->shape[0]);
  out.place = hf_placement(tensor, heads, shapes);
  return out;
}

}  // namespace

AdapterLayout adapter_layout(const Recipe& recipe, PluginHost& plugins) {
  MT_USER_CHECK(!recipe.settings.model.init_from.empty(), ErrorClass::config,
                "the adapters were trained on random weights, which no folder has",
                "train them from trained weights: model.init_from=FOLDER");
  MT_USER_CHECK(!hf_source_folder(recipe).empty(), ErrorClass::config,
                "model.init_from is not a Hugging Face folder, so the adapters' weights have no "
                "names there",
                "export that run, and start from the folder: mtrain export RUN FOLDER, "
                "model.init_from=FOLDER");
  const SchemaCatalog catalog = schema_catalog(plugins);
  const HfFamilies families = HfFamilies::read(plugins.folders());
  const HfModel model(recipe.config.root().at("model"),
                      *catalog.component("model", recipe.settings.model.type));
  const HfFamily& family = hf_family_for_export(families, "", hf_source_config(recipe), model);
  Layers layers(recipe, plugins);
  AdapterLayout out;
  const HfDir folder(hf_source_folder(recipe));
  const HfWeights weights(folder);
  for (const HfTensor& tensor : hf_tensors(family, model)) {
    out.names.push_back(tensor.name);
    if (auto trained = trained_tensor(tensor, model.heads(), layers, weights)) {
      for (const auto& [copy, original] : hf_copies(family, model))
        if (original == tensor.name) trained->copies.push_back(copy);
      out.trained.push_back(std::move(*trained));
    }
    std::vector<Layers::Layer*> of_tensor;
    std::vector<Shape> shapes;
    for (const std::string& name : tensor.parameters)
      of_tensor.push_back(layers.of(name)), shapes.push_back(layers.shape(name));
    if (std::ranges::all_of(of_tensor, [](const auto* layer) { return layer == nullptr; }))
      continue;
    AdaptedTensor adapted =
        adapted_tensor(tensor, hf_placement(tensor, model.heads(), shapes), of_tensor);
    const bool one_layer = std::ranges::all_of(adapted.blocks, [&](const auto& block) {
      return block.layer == adapted.blocks.front().layer;
    });
    MT_USER_CHECK(!adapted.of_input || one_layer, ErrorClass::config,
                  cat("peft.feedforward: ", tensor.name, " of the family ", family.model_type,
                      " holds several weights whose inputs have vectors of their own"),
                  "leave these weights out of peft.feedforward");
    if (!adapted.blocks.empty()) out.tensors.push_back(std::move(adapted));
  }
  out.layers = layers.all(family);
  return out;
}

}  // namespace mtrain
