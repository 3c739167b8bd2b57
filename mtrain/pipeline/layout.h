// A pipeline's layout as people write it (Megatron's notation): "Et*3|(tt|)*29,m|L" says what each
// stage holds. E embedding, t a block, m a block of multi-token prediction, L head and loss; | ends
// a stage, (…)*n and t*n repeat, commas and blanks only separate. Stages are numbered over virtual
// stages first: stage i lies on pipeline rank i % pp. Stateless.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

struct PipelineLayout {
  std::vector<std::string> stages;  // "Ettt", "tt", "mL"
  std::string fault;                // why the text is no layout; empty when it is one

  /// How many of one letter there are in all stages.
  int64_t count(char letter) const;
};

/// Reads the text and checks what holds for every layout: it begins with the one E and ends with
/// the one L, no t follows an m, all m are in one stage. A text that would repeat into more than
/// 100,000 letters is refused.
MT_API PipelineLayout parse_pipeline_layout(std::string_view text);

}  // namespace mtrain
