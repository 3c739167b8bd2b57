// Adapters that are vectors (IA3: Liu et al. 2022, arXiv:2205.05638) between a run's parameters,
// which are l - 1, and the gains l of a folder's modules. Stateless functions for one thread.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "mtrain/train/adapter_layout.h"
#include "mtrain/train/peft_adapter.h"

namespace mtrain {

/// ia3_l of layers.
using LayerVectors = std::map<std::string, std::vector<float>>;

/// The module of a tensor; rows of matrices without adapters have the gain 1.
PeftModule vector_module(const AdaptedTensor& tensor, const LayerVectors& vectors);
/// By layer, the module of the folder whose gains multiply the inputs.
using InputModules = std::map<std::string, const PeftModule*>;
/// Writes a module's gains to the vectors of the layers. Returns a description of a mismatch;
/// empty: none. `inputs`: the modules whose gains of inputs were written before; this call adds its
/// own. Several modules of the folder can share the inputs of one layer, which has one vector for
/// them.
std::string take_vector(const PeftModule& m, const AdaptedTensor& tensor, LayerVectors& vectors,
                        InputModules& inputs);

/// "model.layers.0.self_attn.k_proj.bias"
std::string bias_of(const PeftModule& m);
/// Multiplies the rows of a weight of the folder that belong to a parameter, or of its bias, by the
/// gains.
void scale_parameter(Parameter& p, size_t index, const HfPlacement& place, const PeftModule& m);
/// The same for all values of a weight, stored as the module says, or of its bias [out].
void scale_values(const PeftModule& m, bool bias, std::span<float> values);

}  // namespace mtrain
