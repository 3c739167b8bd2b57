#include "mtrain/train/adapter_vectors.h"

#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/train/adapter_whole.h"

namespace mtrain {

PeftModule vector_module(const AdaptedTensor& tensor, const LayerVectors& vectors) {
  PeftModule out{.weight = tensor.name,
                 .out = tensor.out,
                 .in = tensor.in,
                 .transposed = tensor.transposed,
                 .stacks = tensor.stacks,
                 .a = {},
                 .b = {},
                 .of_input = tensor.of_input};
  out.gains.assign(static_cast<size_t>(tensor.of_input ? tensor.in : tensor.out), 1);
  if (tensor.of_input) {
    const std::vector<float>& of_layer = vectors.at(tensor.blocks.front().layer);
    std::ranges::transform(of_layer, out.gains.begin(), [](float x) { return 1 + x; });
    return out;
  }
  for (const AdaptedTensor::Row& row : tensor.rows)
    out.gains[static_cast<size_t>(row.row)] +=
        vectors.at(tensor.blocks[row.block].layer)[static_cast<size_t>(row.layer_row)];
  return out;
}

std::string take_vector(const PeftModule& m, const AdaptedTensor& tensor, LayerVectors& vectors,
                        InputModules& inputs) {
  if (m.of_input != tensor.of_input)
    return cat(m.module(), " multiplies its ", m.of_input ? "inputs" : "results",
               ", and by peft.feedforward its ", tensor.of_input ? "inputs" : "results");
  const int64_t wanted = tensor.of_input ? tensor.in : tensor.out;
  if (std::ssize(m.gains) != wanted)
    return cat(m.module(), " has ia3_l of ", m.gains.size(), " elements, and this model needs ",
               wanted);
  if (tensor.of_input) {
    const std::string& layer = tensor.blocks.front().layer;
    const auto [first, is_new] = inputs.try_emplace(layer, &m);
    if (!is_new && first->second->gains != m.gains)
      return cat(m.module(), " and ", first->second->module(),
                 " multiply the inputs that they share by different vectors, and ", layer,
                 " has one vector for them");
    std::vector<float>& to = vectors[layer];
    std::ranges::transform(m.gains, to.begin(), [](float x) { return x - 1; });
    return {};
  }
  std::vector<bool> covered(m.gains.size(), false);
  for (const AdaptedTensor::Row& row : tensor.rows) {
    const auto at = static_cast<size_t>(row.row);
    covered[at] = true;
    vectors[tensor.blocks[row.block].layer][static_cast<size_t>(row.layer_row)] = m.gains[at] - 1;
  }
  for (size_t row = 0; row < covered.size(); ++row)
    if (!covered[row] && m.gains[row] != 1)
      return cat(m.module(), ": ia3_l changes row ", row, ", whose matrix is not in peft.targets");
  return {};
}

std::string bias_of(const PeftModule& m) { return m.module() + ".bias"; }

void scale_parameter(Parameter& p, size_t index, const HfPlacement& place, const PeftModule& m) {
  change_values(p, [&](std::span<float> values) {
    for (const HfRows& run : place.rows)
      for (int64_t i = 0; run.parameter == index && i < run.rows; ++i)
        for (int64_t c = 0; c < place.width; ++c)
          values[static_cast<size_t>((run.parameter_row + i) * place.width + c)] *=
              gain_of(m, run.tensor_row + i * run.tensor_step, c);
  });
}

void scale_values(const PeftModule& m, bool bias, std::span<float> values) {
  if (bias) {
    MT_CHECK_EQ(values.size(), m.gains.size());
    for (size_t i = 0; i < values.size(); ++i) values[i] *= m.gains[i];
    return;
  }
  MT_CHECK_EQ(static_cast<int64_t>(values.size()), m.out * m.in);
  for (int64_t row = 0; row < m.out; ++row)
    for (int64_t c = 0; c < m.in; ++c)
      values[static_cast<size_t>(m.element(row, c))] *= gain_of(m, row, c);
}

}  // namespace mtrain
