// Which rows of a run's adapters, and of the other parameters that it trains, belong to which
// tensor of a Hugging Face folder. A tensor of the folder may hold several of mtrain's matrices,
// and several tensors may hold one of mtrain's parameters. Values.
#pragma once
#include <string>
#include <vector>

#include "mtrain/nn/adapter.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/hf_tensors.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// The adapters of one weight of the folder, in blocks of rows of a and columns of b.
struct AdaptedTensor {
  /// A matrix of one of mtrain's weights.
  struct Block {
    std::string layer;   // "layers.3.attn.qkv"
    int64_t matrix = 0;  // index among the weight's matrices with adapters
    AdapterSize size = {};
    int64_t width = 0;  // the largest rank of the weight's matrices: columns of lora_b
    bool operator==(const Block&) const = default;
  };
  struct Row {
    int64_t row = 0;  // in the folder's weight
    size_t block = 0;
    int64_t layer_row = 0;  // in the layer's b
  };
  std::string name;  // of the tensor
  int64_t out = 0, in = 0;
  bool transposed = false;  // the file stores [in,out]
  int64_t stacks = 1;       // the tensor is this many matrices [out / stacks, in] in a row
  bool experts = false;     // the weight of experts
  bool of_input = false;    // the adapter is a vector that multiplies the inputs
  std::vector<Block> blocks;
  std::vector<Row> rows;  // the rows with an adapter
};

/// One layer with adapters. `out`: rows of all b, which are fewer than those of the weight if
/// experts share an adapter.
struct AdaptedLayer {
  std::string layer;
  int64_t out = 0, in = 0;
  std::vector<AdapterSize> sizes = {};  // of its matrices
  Shape a = {}, b = {};                 // of lora_a and lora_b; empty for a layer with a vector
  Shape vector = {};                    // of ia3_l
  bool of_input = false;                // the vector multiplies the inputs
};

/// A tensor of the folder with rows of parameters that peft.train names.
struct TrainedTensor {
  std::string name;
  std::vector<std::string> parameters;  // whose rows it holds
  std::vector<Shape> shapes;            // of the whole parameters, including padding rows
  std::vector<bool> trained;            // which of these are trained
  HfPlacement place;
  std::vector<std::string> copies;  // tensors that repeat this one
};

struct AdapterLayout {
  std::vector<AdaptedTensor> tensors;
  std::vector<AdaptedLayer> layers;
  std::vector<TrainedTensor> trained;
  std::vector<std::string> names;  // of all tensors of the family
};

/// The layout for a recipe's model and the family of its model.init_from. Error(config) if that is
/// not a Hugging Face folder, or if an adapted or trained parameter is in none of its tensors.
AdapterLayout adapter_layout(const Recipe& recipe, PluginHost& plugins);

}  // namespace mtrain
