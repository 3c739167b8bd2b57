// The adapter of one tensor of a Hugging Face folder, made from the adapters of the layers that the
// tensor holds, or written to them. Stateless functions; safe from any thread.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "mtrain/recipe/settings.h"
#include "mtrain/train/adapter_layout.h"
#include "mtrain/train/peft_adapter.h"

namespace mtrain {

/// lora_a [matrices · rank, in] and lora_b [out, rank] of a layer; lora_magnitude [out] if it has
/// one.
struct LayerValues {
  std::vector<float> a, b, magnitude = {};
};

/// The ranks of all of its blocks.
int64_t rank_of(const AdaptedTensor& tensor);

/// `values`: by the name of the layer. `norms`: of the rows of the weight; empty: without
/// magnitude.
PeftModule peft_module(const AdaptedTensor& tensor,
                       const std::map<std::string, LayerValues>& values, const PeftSection& peft,
                       std::vector<float> norms);

/// Writes a module's values to those of the layers. Returns what does not fit; empty: all did.
std::string take_module(const PeftModule& m, const AdaptedTensor& tensor, const PeftSection& peft,
                        std::map<std::string, LayerValues>& values);

/// Writes a module's magnitudes to those of the layers, as differences to the norms of the weight.
/// Returns what does not fit.
std::string take_magnitude(const PeftModule& m, const AdaptedTensor& tensor,
                           const std::vector<float>& norms,
                           std::map<std::string, LayerValues>& values);

}  // namespace mtrain
