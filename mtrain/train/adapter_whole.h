// Tensors that a run with adapters trains directly, not through adapters (peft.train; peft's
// modules_to_save). Stateless functions for one thread.
#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "mtrain/checkpoint/checkpoint_reader.h"
#include "mtrain/train/adapter_layout.h"
#include "mtrain/train/peft_adapter.h"

namespace mtrain {

/// All values of a tensor of a checkpoint.
std::vector<float> stored_values(CheckpointReader& reader, const std::string& name,
                                 const Shape& shape);

/// Lets `change` change the values [local] of a parameter, in fp32. Error(config) for a quantized
/// one, to which adapters cannot be added.
void change_values(Parameter& p, const std::function<void(std::span<float>)>& change);
/// Fills this rank's part of a parameter that is trained, and that has memory.
void put_part(Parameter& p, const std::vector<float>& whole);

/// The trained tensors of a checkpoint, and the other tensors of their modules, from the folder of
/// model.init_from.
std::vector<PeftWhole> whole_of_run(const Recipe& recipe, const AdapterLayout& layout,
                                    CheckpointReader& reader);

/// Whether a tensor of these parameters is the embedding and, by model.tie_embeddings, the head.
bool is_tied_table(const Recipe& recipe, const std::vector<std::string>& parameters);
/// The error text for such a tensor in a folder of peft that was trained as embedding only, not as
/// head.
std::string untied_fault(const std::string& tensor);

/// The mismatches between the tensors of a folder of peft and those that peft.train names, one line
/// each.
std::vector<std::string> whole_faults(const PeftAdapter& adapter, const AdapterLayout& layout,
                                      const Recipe& recipe);
/// Writes the rows of a tensor to this rank's part of a trained parameter, whose index among those
/// of the tensor is `index`.
void put_rows(Parameter& p, size_t index, const HfPlacement& place,
              const std::vector<float>& values);
/// Writes the tensors to the trained parameters of this rank. REQUIRES: no faults.
void import_whole(const PeftAdapter& adapter, const AdapterLayout& layout, ParamList& parameters);

}  // namespace mtrain
