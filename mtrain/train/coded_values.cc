#include "mtrain/train/coded_values.h"

#include <algorithm>

#include "mtrain/nn/coded_parameter.h"
#include "mtrain/recipe/hf_source.h"
#include "mtrain/recipe/hf_write_config.h"
#include "mtrain/train/model_options.h"

namespace mtrain {
CodedValues::CodedValues(const Recipe& recipe, PluginHost& plugins)
    : recipe_(recipe_on_cpu(recipe)), session_(recipe_, plugins, {.new_adapters = false}) {
  const SchemaCatalog catalog = schema_catalog(plugins);
  const HfFamilies families = HfFamilies::read(plugins.folders());
  const HfModel model(recipe_.config.root().at("model"),
                      *catalog.component("model", recipe_.settings.model.type));
  const HfFamily& family = hf_family_for_export(families, "", hf_source_config(recipe_), model);
  for (const HfTensor& tensor : hf_tensors(family, model)) {
    std::vector<const Parameter*> parameters;
    std::vector<Shape> shapes;
    for (const std::string& name : tensor.parameters) {
      const Parameter* p = session_.parameters.find(name);
      parameters.push_back(p && p->coded ? p : nullptr);
      shapes.push_back(p ? p->global : Shape{});
    }
    if (std::ranges::all_of(parameters, [](const auto* p) { return p == nullptr; })) continue;
    sources_[tensor.name] = {hf_placement(tensor, model.heads(), shapes), std::move(parameters)};
  }
}

CodedValues::Sources::const_iterator CodedValues::find(std::string_view tensor) const {
  const auto found = sources_.find(tensor);
  if (found != sources_.end()) return found;
  return std::ranges::find_if(
      sources_, [&](const auto& source) { return without_root(source.first) == tensor; });
}

void CodedValues::replace(std::string_view tensor, std::span<float> values) const {
  const auto found = find(tensor);
  MT_CHECK(found != sources_.end(), tensor);
  const HfPlacement& place = found->second.placement;
  for (size_t i = 0; i < found->second.parameters.size(); ++i) {
    const Parameter* p = found->second.parameters[i];
    if (!p) continue;
    const std::vector<float> own = decoded_values(*p);
    for (const HfRows& run : place.rows)
      for (int64_t r = 0; run.parameter == i && r < run.rows; ++r)
        for (int64_t c = 0; c < place.width; ++c)
          values[static_cast<size_t>(place.element(run.tensor_row + r * run.tensor_step, c))] =
              own[static_cast<size_t>((run.parameter_row + r) * place.width + c)];
  }
}

}  // namespace mtrain
