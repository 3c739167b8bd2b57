// Which tensors of a Hugging Face folder hold which rows of which parameters, by the table of its
// family (hf_families.h). Both directions use it: import and export. Values; stateless functions;
// safe from any thread.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mtrain/autograd/ops.h"
#include "mtrain/recipe/hf_families.h"

namespace mtrain {

/// The settings of a model, as a family's table reads them. Refers to the section and the schema.
class MT_API HfModel {
 public:
  /// `section`: the settings of `model` in a recipe; defaults may be left out. `plugin`: the
  /// settings of the model plugin.
  HfModel(const Node& section, const Schema& plugin) : section_(section), plugin_(plugin) {}

  /// The setting; null if there is none.
  Node value(const std::string& path) const;
  int64_t number(const std::string& path) const;
  /// The size that the plugin publishes; 0 if it does not.
  int64_t fact(Fact fact) const;
  /// Whether the model has a head of scores.
  bool scores() const;
  /// Whether it has scores of each token, by a head with a bias.
  bool token_scores() const;
  bool holds(const HfConditions& conditions) const;
  bool contains(const HfBlocks& blocks, int64_t block) const;
  /// The rows of the fused projection of queries, keys and values.
  HeadLayout heads() const;
  const Node& section() const { return section_; }
  const Schema& plugin() const { return plugin_; }

 private:
  const Node& section_;
  const Schema& plugin_;
};

/// A tensor of the folder, and the parameters of which it holds rows.
struct HfTensor {
  std::string name;
  std::vector<std::string> parameters;
  const HfTensorRule* rule = nullptr;  // of the family, which must outlive it
  int64_t piece = 0, pieces = 1;       // of the parameters' rows: those of one expert
};

/// Rows of a parameter and their places in a tensor. Rows count the first dimension of a parameter,
/// or the first two of one with three dimensions, or the elements of stacked vectors; those of a
/// tensor likewise, as [out, in].
struct HfRows {
  size_t parameter = 0;  // index in HfTensor::parameters
  int64_t parameter_row = 0, tensor_row = 0, rows = 0;
  int64_t tensor_step = 1;  // distance of two rows in the tensor
};

/// A tensor for parameters of certain shapes.
struct HfPlacement {
  Shape shape;                    // in the file
  int64_t stacks = 1;             // matrices that are stored one after the other
  int64_t height = 0, width = 1;  // of one of them, as [out, in]
  bool transposed = false;        // the file stores each as [in, out]
  std::vector<HfRows> rows;

  /// The place of an element in the file's tensor.
  int64_t element(int64_t row, int64_t column) const {
    if (!transposed) return row * width + column;
    return (row / height * width + column) * height + row % height;
  }
};

/// All tensors of a model of the family, except copies.
MT_API std::vector<HfTensor> hf_tensors(const HfFamily& family, const HfModel& model);
/// The places of its parameters, whose shapes are `shapes`. Throws Error(plugin) if they cannot
/// form one tensor.
MT_API HfPlacement hf_placement(const HfTensor& tensor, const HeadLayout& heads,
                                const std::vector<Shape>& shapes);
/// Whether it is a tensor of a head of scores: score.weight, classifier.bias and so on.
MT_API bool hf_is_of_score_head(std::string_view tensor);
/// Whether it is a tensor of the head over the vocabulary, and the model has a head of scores.
MT_API bool hf_is_other_head(const HfFamily& family, const HfModel& model, std::string_view tensor);
/// The tensors that repeat another one in such a model, and that one.
MT_API std::vector<std::pair<std::string, std::string>> hf_copies(const HfFamily& family,
                                                                  const HfModel& model);
/// Whether the family's files may contain this tensor although the model does not use it.
MT_API bool hf_unused(const HfFamily& family, std::string_view tensor);
/// Whether it is a tensor of a block for multi-token prediction that the model does not have.
MT_API bool hf_is_unbuilt_depth(const HfFamily& family, const HfModel& model,
                                std::string_view tensor);
/// Whether it is a tensor of the family that is always fp32 (HfTensorRule::buffer).
MT_API bool hf_is_buffer(const HfFamily& family, std::string_view tensor);
/// A name without its first part: files differ in whether they have it ("model.",
/// "transformer.").
MT_API std::string_view without_root(std::string_view tensor);

}  // namespace mtrain
