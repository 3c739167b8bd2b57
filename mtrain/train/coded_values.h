// The dequantized values of quantized frozen weights (peft.base), with which training computes, as
// tensors of the Hugging Face folder of model.init_from. For the thread that creates it.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>

#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/hf_tensors.h"
#include "mtrain/train/session.h"

namespace mtrain {

class MT_API CodedValues {
 public:
  /// Reads and quantizes the weights of model.init_from, on the CPU. REQUIRES: peft.base is not
  /// same.
  CodedValues(const Recipe& recipe, PluginHost& plugins);
  /// Replaces the values of a tensor that are quantized in training by their dequantized values.
  /// REQUIRES: has(tensor).
  void replace(std::string_view tensor, std::span<float> values) const;
  bool has(std::string_view tensor) const { return find(tensor) != sources_.end(); }
  /// The number of tensors.
  size_t size() const { return sources_.size(); }

 private:
  struct Source {
    HfPlacement placement;
    std::vector<const Parameter*> parameters;  // null: not quantized
  };
  using Sources = std::map<std::string, Source, std::less<>>;
  Sources::const_iterator find(std::string_view tensor) const;
  const Recipe recipe_;
  Session session_;
  Sources sources_;  // by tensor; a folder may leave out the first part of its name
};

}  // namespace mtrain
