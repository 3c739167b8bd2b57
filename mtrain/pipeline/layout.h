// A pipeline layout in Megatron's notation: "Et*3|(tt|)*29,m|L" says which layers each stage holds.
// E embedding, t a block, m a block of multi-token prediction, L head and loss; | ends a stage,
// (…)*n and t*n repeat, commas and blanks are ignored. Stages are in the
// order of forward; stage i is on pipeline rank i % pp, except in the V of zb_v (StageMap).
// Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

struct PipelineLayout {
  std::vector<std::string> stages;  // "Ettt", "tt", "mL"
  std::string fault;                // why the text is invalid; empty if it is valid

  /// Number of occurrences of a letter in all stages.
  int64_t count(char letter) const;
};

/// Parses the text and checks the rules of every layout: it begins with the only E and ends with
/// the only L, no t follows an m, and all m are in one stage. Refuses a text that expands to more
/// than 100,000 letters.
MT_API PipelineLayout parse_pipeline_layout(std::string_view text);

}  // namespace mtrain
