#include "mtrain/train/adapter_layout.h"

#include <algorithm>
#include <map>

#include "mtrain/base/error.h"
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
      : recipe_(on_cpu(recipe)),
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
    if (!session_.parameters.find(cat(layer, ".lora_a"))) return nullptr;
    auto [place, added] = layers_.try_emplace(layer);
    Layer& out = place->second;
    if (!added) return &out;
    const Parameter& weight = *session_.parameters.find(parameter);
    const std::vector<size_t> matrices = plan_.matrices_of(layer, weight.matrices);
    out.sizes = {layer, weight.global[0], weight.global[1], static_cast<int64_t>(matrices.size())};
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
  /// All of them; Error(config) if one has not been found.
  std::vector<AdaptedLayer> all(const HfFamily& family) {
    std::vector<AdaptedLayer> out;
    for (const Parameter& p : session_.parameters.all()) {
      if (!p.name.ends_with(".lora_a")) continue;
      const std::string layer = p.name.substr(0, p.name.rfind('.'));
      const Layer& its = *of(layer + ".weight");
      MT_USER_CHECK(
          its.found, ErrorClass::config,
          cat("the family ", family.model_type, " has no tensor for the weight of ", layer),
          "leave this weight out of peft.targets");
      out.push_back(its.sizes);
    }
    return out;
  }

 private:
  /// Shapes do not depend on the device, which may be absent here.
  static Recipe on_cpu(Recipe recipe) {
    recipe.settings.dist.backend = "cpu";
    return recipe;
  }
  const Recipe recipe_;
  Session session_;
  AdapterPlan plan_;
  std::map<std::string, Layer> layers_;
};

AdaptedTensor adapted_tensor(const HfTensor& tensor, const HfPlacement& place,
                             const std::vector<Layers::Layer*>& layers) {
  AdaptedTensor out{.name = tensor.name,
                    .out = place.stacks * place.height,
                    .in = place.width,
                    .transposed = place.transposed,
                    .blocks = {},
                    .rows = {}};
  for (const HfRows& run : place.rows) {
    Layers::Layer* layer = layers[run.parameter];
    for (int64_t i = 0; layer && i < run.rows; ++i) {
      layer->found = true;
      const int64_t row = run.parameter_row + i,
                    matrix = layer->matrix_of[static_cast<size_t>(row)];
      if (matrix < 0) continue;
      const AdaptedTensor::Block block{layer->sizes.layer, matrix};
      auto at = std::ranges::find(out.blocks, block);
      if (at == out.blocks.end()) at = out.blocks.insert(at, block);
      out.rows.push_back({run.tensor_row + i * run.tensor_step,
                          static_cast<size_t>(at - out.blocks.begin()), row});
    }
  }
  return out;
}

}  // namespace

AdapterLayout adapter_layout(const Recipe& recipe, PluginHost& plugins) {
  MT_USER_CHECK(!hf_source_folder(recipe).empty(), ErrorClass::config,
                "model.init_from is not a Hugging Face folder, so the adapters' weights have no "
                "names there",
                "export the run of model.init_from, and train the adapters from that folder");
  const SchemaCatalog catalog = schema_catalog(plugins);
  const HfFamilies families = HfFamilies::read(plugins.folders());
  const HfModel model(recipe.config.root().at("model"),
                      *catalog.component("model", recipe.settings.model.type));
  const HfFamily& family = hf_family_for_export(families, "", hf_source_config(recipe), model);
  Layers layers(recipe, plugins);
  AdapterLayout out;
  for (const HfTensor& tensor : hf_tensors(family, model)) {
    std::vector<Layers::Layer*> of_tensor;
    std::vector<Shape> shapes;
    for (const std::string& name : tensor.parameters)
      of_tensor.push_back(layers.of(name)), shapes.push_back(layers.shape(name));
    if (std::ranges::all_of(of_tensor, [](const auto* layer) { return layer == nullptr; }))
      continue;
    AdaptedTensor adapted =
        adapted_tensor(tensor, hf_placement(tensor, model.heads(), shapes), of_tensor);
    if (!adapted.blocks.empty()) out.tensors.push_back(std::move(adapted));
  }
  out.layers = layers.all(family);
  return out;
}

}  // namespace mtrain
