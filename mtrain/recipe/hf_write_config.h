// Writes config.json of a Hugging Face folder from the settings of a model, by the table of its
// family: the inverse of hf_config.h. Stateless functions; safe from any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/base/dtype.h"
#include "mtrain/recipe/hf_tensors.h"

namespace mtrain {

/// The contents of config.json other than the model's settings.
struct HfConfigFacts {
  DType dtype = DType::f32;  // of the tensors
  int64_t vocab_size = 0;    // rows of the embedding matrix in the file
  /// config.json of the folder from which the run started; empty: none. Keys that do not change the
  /// function, such as the ids of special tokens, are taken from it if it is of the same family.
  std::string source;
  int64_t trained_length = 0;  // tokens of the sequences of training; 0: not trained
  /// Ids of the tokenizer, which are written if `source` has none.
  std::optional<int32_t> bos = {}, eos = {}, pad = {};
  /// Of a model with a decoder after an encoder: the token with which the decoder starts.
  std::optional<int32_t> decoder_start = {};
  /// Of a model of scores: names of its labels; empty: those of `source`, or transformers' LABEL_0
  /// …
  std::vector<std::string> labels = {};
};

/// The settings that the family cannot express, one line each: "model.attention.window=512: …".
MT_API std::vector<std::string> hf_unexpressed(const HfFamily& family, const HfModel& model);

/// The settings with an effect that are lost on export, one line each, with the reason.
MT_API std::vector<std::string> hf_lost(const HfFamily& family, const HfModel& model);

/// The text of config.json. REQUIRES: hf_unexpressed() is empty.
MT_API std::string hf_config_text(const HfFamilies& families, const HfFamily& family,
                                  const HfModel& model, const HfConfigFacts& facts);

/// config.json with another type of tensors, none of which is quantized.
MT_API std::string hf_config_with_dtype(const std::string& config_json,
                                        const std::string& file_name, DType dtype);

/// config.json with this padding token, if it has none or null.
MT_API std::string hf_config_with_padding(const std::string& config_json,
                                          const std::string& file_name, std::optional<int32_t> pad);

/// config.json with these names of its labels; unchanged if it has another number of them.
MT_API std::string hf_config_with_labels(const std::string& config_json,
                                         const std::string& file_name,
                                         const std::vector<std::string>& names);

/// The family in which to write a run of the model plugin: the one that `wanted` names, or that of
/// the folder from which the run started (`source`: its config.json, or empty), or the first that
/// can express all settings. Throws Error(config) that names the settings that prevent it.
MT_API const HfFamily& hf_family_for_export(const HfFamilies& families, const std::string& wanted,
                                            const std::string& source, const HfModel& model);

}  // namespace mtrain
