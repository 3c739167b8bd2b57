// Which rows of a run's adapters belong to which weight of a Hugging Face folder. A tensor of the
// folder may hold several of mtrain's matrices, and the other way round. Values.
#pragma once
#include <string>
#include <vector>

#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// The adapters of one weight of the folder, in blocks of `rank` rows of a and columns of b.
struct AdaptedTensor {
  /// A matrix of one of mtrain's weights.
  struct Block {
    std::string layer;   // "layers.3.attn.qkv"
    int64_t matrix = 0;  // among those of the weight that have adapters
    bool operator==(const Block&) const = default;
  };
  struct Row {
    int64_t row = 0;  // of the folder's weight
    size_t block = 0;
    int64_t layer_row = 0;  // of the layer's weight
  };
  std::string name;  // of the tensor
  int64_t out = 0, in = 0;
  bool transposed = false;  // the file stores [in,out]
  std::vector<Block> blocks;
  std::vector<Row> rows;  // those that have an adapter
};

/// One layer with adapters.
struct AdaptedLayer {
  std::string layer;
  int64_t out = 0, in = 0, matrices = 0;
};

struct AdapterLayout {
  std::vector<AdaptedTensor> tensors;
  std::vector<AdaptedLayer> layers;
};

/// Of the model of a recipe and the family of its model.init_from. Error(config) if that is not a
/// Hugging Face folder, or if an adapted weight is in none of its tensors.
AdapterLayout adapter_layout(const Recipe& recipe, PluginHost& plugins);

}  // namespace mtrain
